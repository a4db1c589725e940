"""Retry storms: seconds in which far more messages of a queue fell due than it is used to, so that they came back as one herd."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A second with fewer due messages than this is no storm, whatever is usual.
LEAST = 20
#: So many times what a second with any retry usually has.
TIMES = 8
LIMIT = 200


def retry_storms(attempts: DataFrame, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` worst seconds: ``queue``, ``second``, ``due`` messages, ``usual`` (the mean of the queue's other seconds with any),
    ``times`` (due / usual), and ``failures_s``: over how many seconds the failures behind it were spread. Failures that were spread and
    came back together are a herd that jitter would have broken up; failures of one moment come back together by any fixed delay.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    seconds = (
        attempts.where("due_at IS NOT NULL")
        .groupBy("queue", F.date_trunc("second", "due_at").alias("second"))
        .agg(F.count(F.lit(1)).alias("due"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
    )
    queue = Window.partitionBy("queue")
    others = F.count(F.lit(1)).over(queue) - 1
    usual = F.when(others > 0, (F.sum("due").over(queue) - F.col("due")) / others).otherwise(1.0)
    spread_s = (F.unix_micros("last_at") - F.unix_micros("first_at")) / 1_000_000
    return (
        seconds.withColumns({"usual": usual, "failures_s": spread_s})
        .where((F.col("due") >= LEAST) & (F.col("due") >= TIMES * F.col("usual")))
        .select("queue", "second", "due", "usual", (F.col("due") / F.col("usual")).alias("times"), "failures_s")
        .orderBy(F.desc("due"), "queue", "second")
        .limit(limit)
    )
