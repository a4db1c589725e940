"""What retries cost: deliveries minute by minute, first ones and repeated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SUMS = ("succeeded_first", "succeeded_retry", "failed_first", "failed_retry")


def retry_load(attempts: DataFrame, deliveries_by_minute: DataFrame) -> DataFrame:
    """One row for each queue and minute with a delivery that ended: how many ``succeeded_first`` try, ``succeeded_retry``,
    ``failed_first`` try, ``failed_retry``; ``retries`` = succeeded_retry + failed_retry.

    Successes come from the counts, failures from the rows of ``attempts`` (attempt 1 is a first try).
    """
    from pyspark.sql import functions as F

    zero = F.lit(0).cast("long")
    good = deliveries_by_minute.where("succeeded > 0").select(
        "queue",
        "minute",
        F.col("first_try").alias("succeeded_first"),
        (F.col("succeeded") - F.col("first_try")).alias("succeeded_retry"),
        zero.alias("failed_first"),
        zero.alias("failed_retry"),
    )
    bad = (
        attempts.groupBy("queue", F.date_trunc("minute", "at").alias("minute"))
        .agg(F.count_if(F.col("attempt") == 1).alias("failed_first"), F.count_if(F.col("attempt") > 1).alias("failed_retry"))
        .withColumns({"succeeded_first": zero, "succeeded_retry": zero})
    )
    return (
        good.unionByName(bad)
        .groupBy("queue", "minute")
        .agg(*(F.sum(name).alias(name) for name in _SUMS))
        .withColumn("retries", F.col("succeeded_retry") + F.col("failed_retry"))
        .orderBy("minute", "queue")
    )


def over_time(load: DataFrame, bin_minutes: int) -> DataFrame:
    """``retry_load`` of all queues together, in bins of ``bin_minutes``; for the chart."""
    from pyspark.sql import functions as F

    width = 60 * bin_minutes
    start = F.timestamp_seconds(F.floor(F.unix_seconds("minute") / width) * width)
    return load.groupBy(start.alias("minute")).agg(*(F.sum(name).alias(name) for name in _SUMS)).orderBy("minute")
