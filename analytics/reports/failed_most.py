"""The messages that failed most, with the error they failed with last."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LIMIT = 50
#: By which programs know a message.
_IDS = ("amqp_message_id", "app_id")


def failed_most(messages: DataFrame, attempts: DataFrame, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` messages with most failed attempts over all their entries, most first, then by message_id.

    ``amqp_message_id``, ``app_id``: AMQP's, of messages that are still here; ``queue``, ``state``, ``outcome``, ``address`` are those of
    the latest entry; ``failed_in``: the queue they failed in last; ``last_error_class``, ``last_error_text``, ``last_failed_at``: of the
    last attempt on record, null where history has forgotten it; ``first_failed_at``: of the first on record.
    """
    key = ["broker_id", "message_id"]
    # Numbers first, of all messages; what is shown of one is then looked up for a few.
    failed = messages.where("failed_attempts > 0").groupBy(*key).agg(F.sum("failed_attempts").alias("failed_attempts"))
    most = failed.orderBy(F.desc("failed_attempts"), "message_id", "broker_id").limit(limit)
    latest = F.max_by(F.struct("queue", "state", "outcome", "reason"), "sequence")
    entries = messages.join(F.broadcast(most.select(*key)), key, "left_semi")
    where = entries.groupBy(*key).agg(latest.alias("now"), *(F.max(name).alias(name) for name in ("address", *_IDS)))
    last = F.max_by(F.struct("queue", "error_class", "error_text"), F.struct("at", "sequence", "attempt"))
    errors = (
        attempts.join(F.broadcast(most.select(*key)), key, "left_semi")
        .groupBy(*key)
        .agg(last.alias("last"), F.max("at").alias("last_failed_at"), F.min("at").alias("first_failed_at"))
    )
    return (
        most.join(where, key)
        .join(errors, key, "left")
        .select(
            *key,
            *_IDS,
            "address",
            "failed_attempts",
            F.col("last.queue").alias("failed_in"),
            F.col("now.queue").alias("queue"),
            F.col("now.state").alias("state"),
            F.col("now.outcome").alias("outcome"),
            F.col("last.error_class").alias("last_error_class"),
            F.col("last.error_text").alias("last_error_text"),
            "first_failed_at",
            "last_failed_at",
        )
        .orderBy(F.desc("failed_attempts"), "message_id", "broker_id")
    )
