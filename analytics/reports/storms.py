"""Retry storms: stretches of time in which most of a queue's work was retries. Thundering herds: seconds in which far more messages
fell due than the queue is used to, so that they came back all at once.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: A minute with at least so many retries, and at least this part of its deliveries, belongs to a storm.
RETRIES, PART = 30, 0.5
#: Minutes of calm that do not end it.
CALM_MINUTES = 2
#: A second with fewer due messages than this is no herd, whatever is usual; nor one with fewer than TIMES the usual.
LEAST, TIMES = 20, 8
#: Failures spread over more seconds than this that come back in one second were herded by the policy, not by the outage.
SPREAD_S = 5
LIMIT = 200
_HOUR_US = 3_600_000_000


def retry_storms(load: DataFrame, exported_at_us: int, limit: int = LIMIT) -> DataFrame:
    """From ``retry_load``, the ``limit`` largest: ``broker_id``, ``queue``, ``from_at``, ``until`` (the end of its last minute),
    ``minutes``, ``retries`` in them and ``deliveries`` in all, ``peak`` retries of a minute, ``wasted``: those of dead letters in the
    end.

    Counts that history keeps by the hour or the day are left out: what came in a minute is not known, nor what failed then.
    """
    queue = Window.partitionBy("broker_id", "queue").orderBy("minute")
    load = load.withColumn(
        "fine_from", fine_from(F.col("succeeded_first") + F.col("succeeded_retry") > 0).over(Window.partitionBy("broker_id", "queue"))
    )
    load = load.where(F.expr("minute >= fine_from OR succeeded_first + succeeded_retry = 0") | is_recent(exported_at_us))
    deliveries = F.col("succeeded_first") + F.col("failed_first") + F.col("retries")
    stormy = load.withColumn("deliveries", deliveries).where((F.col("retries") >= RETRIES) & (F.col("retries") >= PART * deliveries))
    gap_s = F.unix_seconds("minute") - F.unix_seconds(F.lag("minute").over(queue))
    begins = F.coalesce(gap_s > 60 * (CALM_MINUTES + 1), F.lit(True)).cast("int")
    return (
        stormy.withColumn("begins", begins)
        .withColumn("storm", F.sum("begins").over(queue))
        .groupBy("broker_id", "queue", "storm")
        .agg(
            F.min("minute").alias("from_at"),
            (F.max("minute") + F.expr("INTERVAL 1 MINUTE")).alias("until"),
            F.count(F.lit(1)).alias("minutes"),
            F.sum("retries").alias("retries"),
            F.sum("deliveries").alias("deliveries"),
            F.max("retries").alias("peak"),
            F.sum("wasted").alias("wasted"),
        )
        .drop("storm")
        .orderBy(F.desc("retries"), "queue", "from_at", "broker_id")
        .limit(limit)
    )


def fine_from(counted: Column) -> Column:
    """An aggregate over counts: from when on they are by the minute. Older ones are by whole hours, or coarser. Null: there are none."""
    on_the_hour = F.unix_seconds("minute") % 3600 == 0
    return F.min(F.when(counted & ~on_the_hour, F.date_trunc("hour", "minute")))


def is_recent(exported_at_us: int) -> Column:
    """Counts that begin less than an hour before the export are by the minute, on the hour too; unless ``history-retention`` is shorter."""
    return F.unix_micros("minute") > F.lit(exported_at_us - _HOUR_US)


def thundering_herds(attempts: DataFrame, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` worst seconds: ``broker_id``, ``queue``, ``second``, ``due`` messages, ``usual`` (the mean of the queue's other seconds
    with any), ``times`` (due / usual), ``failures_s``: over how many seconds the failures behind it were spread, and ``herded``: they were
    spread and came back together, which a collision avoidance factor breaks up; failures of one moment come back together by any fixed
    delay.
    """
    seconds = (
        attempts.where("due_at IS NOT NULL")
        .groupBy("broker_id", "queue", F.date_trunc("second", "due_at").alias("second"))
        .agg(F.count(F.lit(1)).alias("due"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
    )
    queue = Window.partitionBy("broker_id", "queue")
    others = F.count(F.lit(1)).over(queue) - 1
    usual = F.when(others > 0, (F.sum("due").over(queue) - F.col("due")) / others).otherwise(1.0)
    spread_s = (F.unix_micros("last_at") - F.unix_micros("first_at")) / 1_000_000
    return (
        seconds.withColumns({"usual": usual, "failures_s": spread_s})
        .where((F.col("due") >= LEAST) & (F.col("due") >= TIMES * F.col("usual")))
        .withColumns({"times": F.col("due") / F.col("usual"), "herded": F.col("failures_s") > SPREAD_S})
        .select("broker_id", "queue", "second", "due", "usual", "times", "failures_s", "herded")
        .orderBy(F.desc("due"), "queue", "second", "broker_id")
        .limit(limit)
    )
