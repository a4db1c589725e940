"""How punctual redelivery was: from when a message was due to when the next consumer had it. Early is by hand (`homing retry`); late is
a busy queue, no consumer, a late timer, or by hand, too.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

#: A median lateness above this is called late. The broker's timer looks at least every second.
LATE_MS = 1_000
#: column -> retries no later than so many milliseconds, and later than those before.
BINS = {"within_10_ms": 10, "within_100_ms": 100, "within_1_s": 1_000, "within_10_s": 10_000, "later": None}


def due_error(ordered: DataFrame) -> DataFrame:
    """From fates.in_order, one row for each broker and queue: ``retries`` with a due time on record, ``early`` among them (somebody gave
    them another time, or a clock went back), and how late the others were assigned to a consumer: ``p50_ms``, ``p99_ms``, ``max_ms`` (null:
    there is none), and counts by lateness: BINS; ``late``. Only retries that failed have a row, so only they are seen.
    """
    # The broker keeps times by the millisecond: less than that is no error.
    error_ms = F.floor((F.unix_micros("assigned_at") - F.unix_micros("was_due_at") + 999) / 1000)
    return (
        ordered.where("was_due_at IS NOT NULL AND assigned_at IS NOT NULL")
        .withColumn("error_ms", F.when(error_ms >= 0, error_ms))
        .groupBy("broker_id", "queue")
        .agg(
            F.count(F.lit(1)).alias("retries"),
            F.count_if(F.col("error_ms").isNull()).alias("early"),
            F.percentile_approx("error_ms", [0.5, 0.99]).alias("p"),
            F.max("error_ms").alias("max_ms"),
            *_binned(),
        )
        .selectExpr(
            "broker_id",
            "queue",
            "retries",
            "early",
            "p[0] AS p50_ms",
            "p[1] AS p99_ms",
            "max_ms",
            *BINS,
            f"coalesce(p[0] > {LATE_MS}, false) AS late",
        )
        .orderBy(F.desc("p50_ms"), "queue", "broker_id")
    )


def _binned() -> list[Column]:
    counts, above = [], None
    for name, end in BINS.items():
        after = F.lit(True) if above is None else F.col("error_ms") > above
        counts.append(F.count_if(after if end is None else after & (F.col("error_ms") <= end)).alias(name))
        above = end
    return counts
