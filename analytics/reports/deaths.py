"""Every death: what left its queue without success, by the reason that the broker gave."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

ENTRY = ("broker_id", "sequence")
#: Reasons that are not the consumer's: the last error, if there was one, is not the cause. All others are, also the name of a rule.
OTHERWISE = ("expired", "maxlen", "deleted", "dead-letter-retention", "dead-letter-quota")
#: So many entries, of two numbers each, every machine can hold.
FEW = 100_000


def deaths(
    dead_letters: DataFrame, messages: DataFrame, attempts: DataFrame, deliveries_by_minute: DataFrame, *, small: bool = False
) -> DataFrame:
    """One row a death, and one for each queue and minute in which messages were dropped of which the broker keeps no more than the count.

    ``broker_id``, ``message_id`` (null: counted only), ``queue``, ``address``, ``died_at``; ``outcome``: ``dead-lettered``, ``expired``,
    ``dropped`` (removed); ``reason``: ``delivery_limit``, ``poison``, ``not-retryable``, ``rejected``, ``expired``, ``maxlen``, the setting
    that removed a dead letter, or the name of the rule that dropped it; ``error_class``, ``error_text``: of the last attempt, where failing
    was the reason; ``target_queues``, ``lies_in``: where it was put, and where a copy is; ``deaths``: how many, 1 but for those that were
    only counted.
    """
    failing = ~F.col("reason").isin(*OTHERWISE)
    died = dead_letters.select(
        *("broker_id", "message_id", "queue", "address", "died_at", F.lit("dead-lettered").alias("outcome"), "reason"),
        F.when(failing, F.col("error_class")).alias("error_class"),
        F.when(failing, F.col("error_text")).alias("error_text"),
        *("target_queues", "lies_in", F.lit(1).cast("long").alias("deaths")),
    )
    nowhere = F.array().cast("array<string>")
    gone = messages.where("outcome IN ('expired', 'dropped')")
    failed = gone.where(failing).select(*ENTRY)
    last = (
        attempts.join(failed if small else _sent_to_all(failed), list(ENTRY), "left_semi")
        .groupBy(*ENTRY)
        .agg(F.max_by(F.struct("error_class", "error_text"), "attempt").alias("last"))
    )
    removed = gone.join(last, list(ENTRY), "left").select(
        *("broker_id", "message_id", "queue", "address", F.col("settled_at").alias("died_at"), "outcome"),
        F.coalesce("reason", F.when(F.col("outcome") == "expired", "expired")).alias("reason"),
        *("last.error_class", "last.error_text"),
        *("target_queues", nowhere.alias("lies_in"), F.lit(1).cast("long").alias("deaths")),
    )
    # Each on record is in the count that begins last before it: of a minute, or of an hour or more where they are older.
    counts = deliveries_by_minute.where("dropped > 0").select("broker_id", "queue", "minute", F.col("minute").alias("begins"), "dropped")
    minute = F.date_trunc("minute", "died_at").alias("minute")
    on_record = removed.where("outcome = 'dropped'").groupBy("broker_id", "queue", minute).agg((-F.count(F.lit(1))).alias("dropped"))
    counted = (
        counts.unionByName(on_record, allowMissingColumns=True)
        .withColumn("died_at", F.max("begins").over(Window.partitionBy("broker_id", "queue").orderBy("minute")))
        .groupBy("broker_id", "queue", "died_at")
        .agg(F.sum("dropped").alias("deaths"))
        .where("deaths > 0")
        # What never failed leaves no more than a count; it was dropped because its queue was full.
        .select("broker_id", "queue", "died_at", F.lit("dropped").alias("outcome"), F.lit("maxlen").alias("reason"), "deaths")
    )
    return died.unionByName(removed).unionByName(counted, allowMissingColumns=True)


def _sent_to_all(entries: DataFrame) -> DataFrame:
    """``entries``, told to be FEW where they are: else every attempt would be moved and sorted to find theirs."""
    return F.broadcast(entries) if entries.limit(FEW + 1).count() <= FEW else entries
