"""What failing cost in the last minutes before the export, second by second: of a short run all there is to see."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: How far back it reaches.
REACH_S = 600
COUNTS = ("failed_first", "failed_retry", "succeeded_retry")


def recent_load(attempts: DataFrame, messages: DataFrame, exported_at_us: int) -> DataFrame:
    """One row for each second with any: ``second``, deliveries that ``failed_first`` try, ``failed_retry``, ``succeeded_retry``.

    Of what is on record by itself: messages that succeeded at once are counted by the minute (``retry_load``).
    """
    since = F.timestamp_micros(F.lit(exported_at_us - REACH_S * 1_000_000).cast("long"))
    one, none = F.lit(1), F.lit(0)
    failed = attempts.where(F.col("at") >= since).select(
        F.col("at"), F.when(F.col("attempt") == 1, one).otherwise(none), F.when(F.col("attempt") > 1, one).otherwise(none), none
    )
    won = messages.where((F.col("outcome") == "succeeded") & (F.col("failed_attempts") > 0) & (F.col("settled_at") >= since))
    return (
        failed.union(won.select("settled_at", none, none, one))
        .toDF("at", *COUNTS)
        .groupBy(F.date_trunc("second", "at").alias("second"))
        .agg(*(F.sum(name).alias(name) for name in COUNTS))
        .orderBy("second")
    )
