"""Who holds what for how long: fairness among a queue's consumers, slow ones, and those that hoard what they prefetched.

Deliveries that failed have a row each; those that succeeded are counted by consumer and hour, with the time they were held. An export
of a broker that did not count them yet shows consumers through their failures alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Fewer deliveries than this say nothing about a consumer.
ENOUGH = 10
#: So many times the typical hold of the queue's other consumers is slow.
SLOW = 4
#: Waiting this long in a window, and so many times as long as elsewhere in the queue, is hoarding.
HOARDED_MS, HOARDED = 5_000, 10
#: So many times its fair share, and by more than so many standard errors, is greedy.
GREEDY, ERRORS = 1.5, 3.0


def consumers(attempts: DataFrame, served: DataFrame) -> DataFrame:
    """One row for each queue and consumer: ``deliveries``, of them ``failed``, and their ``share`` of the queue's; ``fair_share``, and
    ``fairness`` of the queue (Jain's index: 1 where all consumers have equally many, 1/n where one of n has all). ``served``:
    deliveries_by_consumer.

    ``hold_p50_ms``, ``hold_p90_ms``: of the failed, from given to ended; ``hold_mean_ms``: of the others; ``window_p50_ms``,
    ``window_p90_ms``: of the failed, from assigned to given, which is time in the consumer's window while others might have been free.
    Null: none. ``slow``, ``hoards``: against the median consumer of the queue; ``greedy``: far more than its fair share.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    hold = (F.unix_micros("at") - F.unix_micros("given_at")) / 1000
    window = (F.unix_micros("given_at") - F.unix_micros("assigned_at")) / 1000
    lost = (
        attempts.where("consumer IS NOT NULL AND given_at IS NOT NULL")
        .groupBy("queue", "consumer")
        .agg(
            F.count(F.lit(1)).alias("failed"),
            F.percentile_approx(hold, [0.5, 0.9]).alias("hold"),
            F.percentile_approx(window, [0.5, 0.9]).alias("window"),
        )
    )
    won = served.groupBy("queue", "consumer").agg(F.sum("succeeded").alias("succeeded"), F.sum("held_ms").alias("held_ms"))
    each = (
        lost.join(won, ["queue", "consumer"], "full")
        .fillna(0, ["failed", "succeeded", "held_ms"])
        .withColumn("deliveries", F.col("failed") + F.col("succeeded"))
        .withColumns({"hold_p50_ms": F.col("hold")[0], "hold_p90_ms": F.col("hold")[1], "window_p50_ms": F.col("window")[0]})
        .withColumns({"window_p90_ms": F.col("window")[1], "hold_mean_ms": F.try_divide("held_ms", "succeeded")})
    )
    queue = Window.partitionBy("queue")
    n, all_of_queue = F.count(F.lit(1)).over(queue), F.sum("deliveries").over(queue)

    def far_above(name: str, times: float, count: str) -> Column:
        typical = F.greatest(F.percentile(name, 0.5).over(queue), F.lit(1.0))
        return F.coalesce((F.col(count) >= ENOUGH) & (n > 1) & (F.col(name) > times * typical), F.lit(False))

    share, fair = F.col("deliveries") / all_of_queue, 1 / n
    above = share - fair > ERRORS * F.sqrt(fair * (1 - fair) / all_of_queue)
    shown = each.select(
        *("queue", "consumer", "deliveries", "failed"),
        share.alias("share"),
        fair.alias("fair_share"),
        (F.pow(all_of_queue, F.lit(2)) / (n * F.sum(F.pow("deliveries", F.lit(2))).over(queue))).alias("fairness"),
        *("hold_p50_ms", "hold_p90_ms", "hold_mean_ms", "window_p50_ms", "window_p90_ms"),
        (far_above("hold_p50_ms", SLOW, "failed") | far_above("hold_mean_ms", SLOW, "succeeded")).alias("slow"),
        (far_above("window_p50_ms", HOARDED, "failed") & (F.col("window_p50_ms") >= HOARDED_MS)).alias("hoards"),
        ((F.col("deliveries") >= ENOUGH) & (share >= GREEDY * fair) & above).alias("greedy"),
    )
    return shown.orderBy(F.desc("hoards"), F.desc("slow"), F.desc("greedy"), "queue", F.desc("deliveries"), "consumer")
