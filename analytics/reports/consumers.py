"""Who holds what for how long: fairness among a queue's consumers, slow ones, and those that hoard what they prefetched.

All deliveries are counted by consumer and hour, with the time they were held; those that failed have a row each, as far as the broker
keeps them. Exports of schema version 1 count successes only, and of a broker that did not count them yet none.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..spark.session import in_one_piece

#: Fewer deliveries than this say nothing about a consumer.
ENOUGH = 10
#: So many times the typical hold of the queue's other consumers, and so long, is slow.
SLOW, SLOW_MS = 4, 100
#: Waiting this long in a window, and so many times as long as elsewhere in the queue, is hoarding.
HOARDED_MS, HOARDED = 5_000, 10
#: So many times its fair share, and by more than so many standard errors, is greedy.
GREEDY, ERRORS = 1.5, 3.0
#: So many consumers of a queue, those with most deliveries, are compared one by one.
COMPARED = 200
WHO = ("broker_id", "queue", "client_id", "host", "version", "consumer")


def consumers(attempts: DataFrame, served: DataFrame) -> DataFrame:
    """One row for each broker, queue and consumer: ``deliveries``, of them ``failed``; ``served``: deliveries_by_consumer.

    A consumer is known by the ``client_id`` that its program gave itself and by its number there, over restarts of either side; where
    there is none, by the ``consumer`` of one connection. It is compared with those that were there at the same time, for half of the time
    of either at least: ``together`` (itself included), its ``share`` of their deliveries, the ``fair_share``, and their ``fairness``
    (Jain's index: 1 where all have equally many, 1/n where one of n has all).

    ``hold_p50_ms``, ``hold_p90_ms``: of the failed, from given to ended; ``hold_mean_ms``: of the others; ``window_p50_ms``,
    ``window_p90_ms``: of the failed, from assigned to given, which is time in the consumer's window while others might have been free.
    Null: none. ``slow``, ``hoards``: against the median consumer of the queue; ``greedy``: far more than its fair share.
    """
    queue = Window.partitionBy("broker_id", "queue")
    several = F.count(F.lit(1)).over(queue) > 1

    def far_above(name: str, times: float, least_ms: int, count: str) -> Column:
        typical = F.percentile(name, 0.5).over(queue)
        return F.coalesce((F.col(count) >= ENOUGH) & several & (F.col(name) > F.greatest(times * typical, F.lit(least_ms))), F.lit(False))

    share, fair = F.col("deliveries") / F.col("all_deliveries"), 1 / F.col("together")
    above = share - fair > ERRORS * F.sqrt(fair * (1 - fair) / F.col("all_deliveries"))
    shown = _together(_each(attempts, served)).select(
        *WHO,
        "deliveries",
        "failed",
        F.coalesce("together", F.lit(1)).alias("together"),
        F.coalesce(share, F.lit(1.0)).alias("share"),
        F.coalesce(fair, F.lit(1.0)).alias("fair_share"),
        F.coalesce("even", F.lit(1.0)).alias("fairness"),
        *("hold_p50_ms", "hold_p90_ms", "hold_mean_ms", "window_p50_ms", "window_p90_ms"),
        (far_above("hold_p50_ms", SLOW, SLOW_MS, "failed") | far_above("hold_mean_ms", SLOW, SLOW_MS, "succeeded")).alias("slow"),
        far_above("window_p50_ms", HOARDED, HOARDED_MS, "failed").alias("hoards"),
        F.coalesce((F.col("deliveries") >= ENOUGH) & (share >= GREEDY * fair) & above, F.lit(False)).alias("greedy"),
    )
    return shown.orderBy(F.desc("hoards"), F.desc("slow"), F.desc("greedy"), "queue", F.desc("deliveries"), *WHO)


def _each(attempts: DataFrame, served: DataFrame) -> DataFrame:
    # The connection's part of the name is another one after a restart.
    number = F.substring_index("consumer", "/", -1)
    name = F.when(F.col("client_id").isNull(), F.col("consumer")).otherwise(number).alias("consumer")
    hold = (F.unix_micros("at") - F.unix_micros("given_at")) / 1000
    window = (F.unix_micros("given_at") - F.unix_micros("assigned_at")) / 1000
    seen = (
        attempts.where("consumer IS NOT NULL AND given_at IS NOT NULL")
        .groupBy(*WHO[:-1], name)
        .agg(
            F.count(F.lit(1)).alias("seen"),
            F.percentile_approx(hold, [0.5, 0.9]).alias("hold"),
            F.percentile_approx(window, [0.5, 0.9]).alias("window"),
            F.min("assigned_at").alias("seen_from"),
            F.max("at").alias("seen_to"),
        )
    )
    counted = served.groupBy(*WHO[:-1], name).agg(
        F.sum("succeeded").alias("succeeded"),
        F.sum("held_ms").alias("held_ms"),
        F.sum("failed").alias("counted"),
        F.min("first_at").alias("served_from"),
        F.max("last_at").alias("served_to"),
    )
    return (
        _joined(seen, counted)
        .select(
            *WHO,
            *("hold", "window", F.coalesce("counted", "seen", F.lit(0)).alias("failed")),
            *(F.coalesce(name, F.lit(0)).alias(name) for name in ("succeeded", "held_ms")),
            F.unix_micros(F.least("seen_from", "served_from")).alias("from_us"),
            F.unix_micros(F.greatest("seen_to", "served_to")).alias("to_us"),
        )
        .withColumn("deliveries", F.col("failed") + F.col("succeeded"))
        .withColumns({"hold_p50_ms": F.col("hold")[0], "hold_p90_ms": F.col("hold")[1], "window_p50_ms": F.col("window")[0]})
        .withColumns({"window_p90_ms": F.col("window")[1], "hold_mean_ms": F.try_divide("held_ms", "succeeded")})
    )


def _together(each: DataFrame) -> DataFrame:
    """``each`` with ``together``, ``all_deliveries`` and ``even`` of those that were there when it was, among the COMPARED largest; null
    where it is none of these."""
    queue = Window.partitionBy("broker_id", "queue")
    ranked = each.withColumn("rank", F.row_number().over(queue.orderBy(F.desc("deliveries"), *WHO)))
    largest = F.collect_list(F.when(F.col("rank") <= COMPARED, F.struct("deliveries", "from_us", "to_us"))).over(queue)

    def there(other: Column) -> Column:
        shared_us = F.least("to_us", other["to_us"]) - F.greatest("from_us", other["from_us"])
        longer_us = F.greatest(F.col("to_us") - F.col("from_us"), other["to_us"] - other["from_us"])
        return (F.col("rank") <= COMPARED) & (shared_us >= 0) & (2 * shared_us >= longer_us)

    n, zero = F.nullif(F.size("others").cast("long"), F.lit(0)), F.lit(0).cast("long")
    total = F.aggregate("others", zero, lambda so_far, one: so_far + one["deliveries"])
    squares = F.aggregate("others", zero, lambda so_far, one: so_far + one["deliveries"] * one["deliveries"])
    even = F.pow(total, F.lit(2)) / (n * squares)
    found = ranked.withColumn("largest", largest).withColumn("others", F.filter("largest", there))
    return found.withColumns({"together": n, "all_deliveries": F.when(n > 0, total), "even": even})


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """All of both, by WHO, where null is like null."""
    from functools import reduce
    from operator import and_

    renamed = right.withColumnsRenamed({name: f"_{name}" for name in WHO})
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in WHO))
    both = in_one_piece(left.join(renamed, same, "full"))
    return both.withColumns({name: F.coalesce(name, f"_{name}") for name in WHO}).drop(*(f"_{name}" for name in WHO))
