"""What failing costs over time: first deliveries and repeated ones, those that came to nothing, and the time consumers spent on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fates import DIED, KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTS = ("succeeded_first", "succeeded_retry", "failed_first", "failed_retry", "wasted", "failed_ms")


def retry_load(attempts: DataFrame, deliveries_by_minute: DataFrame, messages: DataFrame, ordered: DataFrame) -> DataFrame:
    """One row for each queue and minute with a delivery that ended: how many ``succeeded_first`` try, ``succeeded_retry``,
    ``failed_first`` try, ``failed_retry``; ``retries`` = succeeded_retry + failed_retry. ``wasted``: retries of messages that died of
    it in the end. ``failed_ms``: time for which consumers held what then failed.

    Successes come from the counts, failures from the rows of ``attempts`` (attempt 1 is a first try). ``ordered``: fates.in_order.
    """
    from pyspark.sql import functions as F

    good = deliveries_by_minute.where("succeeded > 0").select(
        "queue", "minute", F.col("first_try").alias("succeeded_first"), (F.col("succeeded") - F.col("first_try")).alias("succeeded_retry")
    )
    held_us = F.greatest(F.unix_micros("at") - F.unix_micros("given_at"), F.lit(0))
    bad = attempts.groupBy("queue", F.date_trunc("minute", "at").alias("minute")).agg(
        F.count_if(F.col("attempt") == 1).alias("failed_first"),
        F.count_if(F.col("attempt") > 1).alias("failed_retry"),
        F.floor(F.coalesce(F.sum(held_us), F.lit(0)) / 1000).alias("failed_ms"),
    )
    died = messages.where((F.col("failed_attempts") > 0) & F.col("outcome").isin(*DIED)).select(*KEY, "queue")
    waste = (
        ordered.where("attempt > 1")
        .select(*KEY, F.date_trunc("minute", "at").alias("minute"))
        .join(died, list(KEY))
        .groupBy("queue", "minute")
        .agg(F.count(F.lit(1)).alias("wasted"))
    )
    union = good.unionByName(bad, allowMissingColumns=True).unionByName(waste, allowMissingColumns=True)
    return (
        union.groupBy("queue", "minute")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS))
        .select("queue", "minute", *COUNTS[:4], (F.col("succeeded_retry") + F.col("failed_retry")).alias("retries"), *COUNTS[4:])
        .orderBy("minute", "queue")
    )
