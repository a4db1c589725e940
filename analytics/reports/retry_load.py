"""What failing costs over time: first deliveries and repeated ones, those that came to nothing, and the time consumers spent on them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COUNTS = ("succeeded_first", "succeeded_retry", "failed_first", "failed_retry", "wasted", "failed_ms")
_MINUTE = ("broker_id", "queue", "minute")


def retry_load(attempts: DataFrame, deliveries_by_minute: DataFrame, messages: DataFrame) -> DataFrame:
    """One row for each broker, queue and minute with a delivery that ended: how many ``succeeded_first`` try, ``succeeded_retry``,
    ``failed_first`` try, ``failed_retry``; ``retries`` = succeeded_retry + failed_retry. ``wasted``: retries of dead letters in
    this minute. ``failed_ms``: time for which consumers held what then failed.

    All from counts, which are of every delivery, however few attempts the broker keeps of each message. Exports of schema version 1 do
    not tell ``failed_first`` and ``failed_ms``; there they are of the attempts on record.
    """
    counted = deliveries_by_minute.where("succeeded > 0 OR failed > 0")
    held_us = F.greatest(F.unix_micros("at") - F.unix_micros("given_at"), F.lit(0))
    unknown = counted.where("failed > 0 AND failed_first IS NULL").select(*_MINUTE)
    on_record = (
        attempts.withColumn("minute", F.date_trunc("minute", "at"))
        .join(F.broadcast(unknown), list(_MINUTE), "left_semi")
        .groupBy(*_MINUTE)
        .agg(F.count_if(F.col("attempt") == 1).alias("seen_first"), F.floor(F.sum(held_us) / 1000).alias("seen_ms"))
    )
    first = F.least(F.coalesce("failed_first", "seen_first", F.lit(0)), F.col("failed"))
    load = counted.join(on_record, list(_MINUTE), "left").select(
        *_MINUTE,
        F.col("first_try").alias("succeeded_first"),
        (F.col("succeeded") - F.col("first_try")).alias("succeeded_retry"),
        first.alias("failed_first"),
        (F.col("failed") - first).alias("failed_retry"),
        F.coalesce("failed_ms", "seen_ms", F.lit(0)).alias("failed_ms"),
    )
    waste = (
        messages.where("failed_attempts > 1 AND outcome IN ('dead-lettered', 'dropped')")
        .groupBy("broker_id", "queue", F.date_trunc("minute", "settled_at").alias("minute"))
        .agg(F.sum(F.col("failed_attempts") - 1).alias("wasted"))
    )
    return (
        load.unionByName(waste, allowMissingColumns=True)
        .groupBy(*_MINUTE)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS))
        .select(*_MINUTE, *COUNTS[:4], (F.col("succeeded_retry") + F.col("failed_retry")).alias("retries"), *COUNTS[4:])
        .orderBy("minute", "queue", "broker_id")
    )
