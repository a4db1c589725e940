"""Who holds what for how long: fairness among a queue's consumers, slow ones, and those that hoard what they prefetched.

Seen through the deliveries that failed: those are the ones with a row each. A consumer that never fails is not in the export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Fewer attempts than this say nothing about a consumer.
ENOUGH = 10
#: So many times the typical hold of the queue's other consumers is slow.
SLOW = 4
#: Waiting this long in a window, and so many times as long as elsewhere in the queue, is hoarding.
HOARDED_MS, HOARDED = 5_000, 10


def consumers(attempts: DataFrame) -> DataFrame:
    """One row for each queue and consumer: ``attempts`` that failed there and their ``share`` of the queue's, ``fair_share``.

    ``hold_p50_ms``, ``hold_p90_ms``: from given to ended; ``window_p50_ms``, ``window_p90_ms``: from assigned to given, which is time in
    the consumer's window while others might have been free. ``slow``, ``hoards``: against the median consumer of the queue.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    hold = (F.unix_micros("at") - F.unix_micros("given_at")) / 1000
    window = (F.unix_micros("given_at") - F.unix_micros("assigned_at")) / 1000
    each = (
        attempts.where("consumer IS NOT NULL AND given_at IS NOT NULL")
        .groupBy("queue", "consumer")
        .agg(
            F.count(F.lit(1)).alias("attempts"),
            F.percentile_approx(hold, [0.5, 0.9]).alias("hold"),
            F.percentile_approx(window, [0.5, 0.9]).alias("window"),
        )
    )
    queue = Window.partitionBy("queue")
    typical = {name: F.percentile(F.col(name)[0], 0.5).over(queue) for name in ("hold", "window")}
    enough = (F.col("attempts") >= ENOUGH) & (F.count(F.lit(1)).over(queue) > 1)
    hoarded = (F.col("window")[0] >= HOARDED_MS) & (F.col("window")[0] > HOARDED * F.greatest(typical["window"], F.lit(1.0)))
    return each.select(
        "queue",
        "consumer",
        "attempts",
        (F.col("attempts") / F.sum("attempts").over(queue)).alias("share"),
        (1 / F.count(F.lit(1)).over(queue)).alias("fair_share"),
        F.col("hold")[0].alias("hold_p50_ms"),
        F.col("hold")[1].alias("hold_p90_ms"),
        F.col("window")[0].alias("window_p50_ms"),
        F.col("window")[1].alias("window_p90_ms"),
        (enough & (F.col("hold")[0] > SLOW * F.greatest(typical["hold"], F.lit(1.0)))).alias("slow"),
        (enough & hoarded).alias("hoards"),
    ).orderBy(F.desc("hoards"), F.desc("slow"), "queue", F.desc("attempts"), "consumer")
