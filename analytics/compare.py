"""Two periods side by side: what got better, what got worse, queue by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from analytics.inputs import Export

#: Changes of shares smaller than this many standard errors are noise.
ERRORS = 3.0


def compare(before: Export, after: Export) -> DataFrame:
    """A row a queue in either, what changed first. For each period ``_a`` and ``_b``: ``delivered``, ``failed``, ``dead_lettered``,
    ``succeeded``, ``failed_share`` (of deliveries), ``death_share`` (of the stays that are over), ``p50_ms`` and ``p90_ms`` to success
    after failing; and ``verdict`` on the deaths: ``better``, ``worse``, ``same`` (within ERRORS standard errors), ``new``, ``gone``.
    """
    from pyspark.sql import functions as F

    left, right = (_period(each).select("queue", *(F.col(n).alias(f"{n}_{s}") for n in NAMES)) for each, s in ((before, "a"), (after, "b")))
    joined = left.join(right, "queue", "full")
    return joined.withColumn("verdict", _verdict()).orderBy(
        F.array_position(F.lit(["worse", "better", "new", "gone", "same"]), F.col("verdict")),
        F.desc(F.coalesce("dead_lettered_b", "dead_lettered_a", F.lit(0))),
        "queue",
    )


NAMES = ("delivered", "failed", "succeeded", "dead_lettered", "over", "failed_share", "death_share", "p50_ms", "p90_ms")


def _period(export: Export) -> DataFrame:
    from pyspark.sql import functions as F

    from analytics.overview import overview
    from analytics.time_to_success import time_to_success

    counts = overview(export.messages, export.deliveries_by_minute)
    over = F.col("succeeded") + F.col("dead_lettered") + F.col("expired") + F.col("dropped") + F.col("purged")
    times = time_to_success(export.messages).where("queue IS NOT NULL").select("queue", "p50_ms", "p90_ms")
    return (
        counts.withColumn("over", over)
        .withColumn("failed_share", F.when(F.col("delivered") > 0, F.col("failed") / F.col("delivered")))
        .withColumn("death_share", F.when(F.col("over") > 0, F.col("dead_lettered") / F.col("over")))
        .join(times, "queue", "left")
    )


def _verdict() -> Column:
    """Two shares differ where they are further apart than chance would bring them (pooled standard error)."""
    from pyspark.sql import functions as F

    n_a, n_b = F.col("over_a"), F.col("over_b")
    pooled = (F.col("dead_lettered_a") + F.col("dead_lettered_b") + 1) / (n_a + n_b + 2)
    error = F.sqrt(pooled * (1 - pooled) * (F.try_divide(F.lit(1), n_a) + F.try_divide(F.lit(1), n_b)))
    change = F.col("death_share_b") - F.col("death_share_a")
    return (
        F.when(F.col("delivered_a").isNull(), "new")
        .when(F.col("delivered_b").isNull(), "gone")
        .when(change > ERRORS * error, "worse")
        .when(change < -ERRORS * error, "better")
        .otherwise("same")
    )
