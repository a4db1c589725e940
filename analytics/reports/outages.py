"""When what a queue depends on was down: from when to when hardly a delivery of it succeeded, of messages that are well."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .storms import fine_from, is_recent

#: Of the deliveries of a minute that is down no more than this part succeeds; of the queue's others this part at least.
DOWN, UP = 0.1, 0.5
#: Minutes, failures and messages that failed for the first time, at least.
MINUTES, FAILURES, MET = 2, 10, 5
#: That so many first attempts fail one after the other is less probable than this where no more fail than usual.
CHANCE, LEAST_RATE = 1e-6, 0.01
#: So long without any delivery ends it.
SILENCE_S = 1_800
LIMIT = 200
_RUN = ("broker_id", "queue", "run")


def outage_windows(fates: DataFrame, attempts: DataFrame, deliveries_by_minute: DataFrame, exported_at_us: int) -> DataFrame:
    """The LIMIT outages with most failures: ``broker_id``, ``queue``, ``error_class`` (of most of its failures), ``from_at`` and ``to_at``:
    the first and the last failure; ``up_before`` and ``up_after``: the last minute before it and the first one after it in which messages
    succeeded (null: none is counted); ``failures``, and ``messages`` that failed for the first time in it; of these ``succeeded`` since.

    A run of minutes in which nearly every delivery failed, counted over all of them. It tells of the time, and not of the messages, if
    most of those that failed had not failed before, and came from minute to minute or succeeded later. What history keeps by the hour is
    left out.
    """
    runs = _runs(deliveries_by_minute, exported_at_us)
    key, within = list(_RUN[:2]), F.col("at").between(F.col("from_minute"), F.col("to_minute"))
    failed = (
        attempts.select(*key, "message_id", "error_class", F.date_trunc("minute", "at").alias("at"), F.col("at").alias("exactly"))
        .join(F.broadcast(runs), key)
        .where(within)
        .groupBy(*_RUN)
        .agg(
            F.mode("error_class", deterministic=True).alias("error_class"),
            F.min("exactly").alias("from_at"),
            F.max("exactly").alias("to_at"),
            F.countDistinct("message_id").alias("every"),
        )
    )
    met = (
        fates.select(*key, "won", F.date_trunc("minute", "first_at").alias("at"))
        .join(F.broadcast(runs), key)
        .where(within)
        .groupBy(*_RUN)
        .agg(F.count(F.lit(1)).alias("messages"), F.count_if("won").alias("succeeded"), F.countDistinct("at").alias("came_in"))
    )
    of_time = (F.col("messages") >= F.greatest(F.lit(MET), F.col("every") / 2)) & (
        (F.col("came_in") > MINUTES) | (2 * F.col("succeeded") >= F.col("messages"))
    )
    beyond_chance = F.pow(F.greatest("fails", F.lit(LEAST_RATE)), F.col("messages")) < CHANCE
    return (
        runs.join(failed, list(_RUN))
        .join(met, list(_RUN))
        .where(of_time & beyond_chance)
        .select(*key, "error_class", "from_at", "to_at", "up_before", "up_after", "failures", "messages", "succeeded")
        .orderBy(F.desc("failures"), "queue", "from_at", "broker_id")
        .limit(LIMIT)
    )


def _runs(deliveries_by_minute: DataFrame, exported_at_us: int) -> DataFrame:
    """Runs of minutes that are down, with at least MINUTES and FAILURES, of queues in which most deliveries succeed otherwise."""
    queue = Window.partitionBy(*_RUN[:2])
    in_time = queue.orderBy("minute")
    succeeded, failed = F.col("succeeded"), F.col("failed")
    down = succeeded <= DOWN * (succeeded + failed)
    silence = F.unix_seconds("minute") - F.unix_seconds(F.lag("minute").over(in_time)) > SILENCE_S

    def when_up(aggregate: Column) -> Column:
        return F.when(~F.col("down"), aggregate)

    fine = F.expr("minute >= fine_from") | is_recent(exported_at_us)
    return (
        deliveries_by_minute.where("succeeded + failed > 0")
        .groupBy(*_RUN[:2], "minute")
        .agg(
            F.sum("succeeded").alias("succeeded"),
            F.sum("failed").alias("failed"),
            F.sum("first_try").alias("first_try"),
            F.coalesce(F.sum("failed_first"), F.sum("failed")).alias("failed_first"),
        )
        .withColumn("fine_from", fine_from(F.lit(True)).over(queue))
        .where(fine)
        .withColumn("down", down)
        .withColumn("begins", (~F.col("down") | F.coalesce(silence, F.lit(False))).cast("int"))
        .withColumn("run", F.sum("begins").over(in_time))
        .withColumns(
            {
                "up_before": F.max(when_up(F.col("minute"))).over(in_time),
                # Backwards: of all that follows Spark would go through the rest again for each minute.
                "up_after": F.min(when_up(F.col("minute"))).over(queue.orderBy(F.desc("minute"))),
                "fails": F.try_divide(
                    F.sum(when_up(F.col("failed_first"))).over(queue),
                    F.sum(when_up(F.col("failed_first") + F.col("first_try"))).over(queue),
                ),
                "usual": F.try_divide(F.sum(when_up(succeeded)).over(queue), F.sum(when_up(succeeded + failed)).over(queue)),
            }
        )
        .where(F.col("down") & (F.col("usual") >= UP))
        .groupBy(*_RUN)
        .agg(
            F.min("minute").alias("from_minute"),
            F.max("minute").alias("to_minute"),
            F.first("up_before").alias("up_before"),
            F.first("up_after").alias("up_after"),
            F.first("fails").alias("fails"),
            F.sum("failed").alias("failures"),
            F.count(F.lit(1)).alias("minutes"),
        )
        .where((F.col("minutes") >= MINUTES) & (F.col("failures") >= FAILURES))
    )
