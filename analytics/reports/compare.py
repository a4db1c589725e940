"""Two periods side by side: what got better, what got worse, queue by queue and error class by error class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .fates import UNKNOWN

if TYPE_CHECKING:
    from ..input.export import Export
    from .fates import Shared

#: Changes of shares smaller than this many standard errors are noise.
ERRORS = 3.0
NAMES = (
    *("sent", "delivered", "failed", "succeeded", "dead_lettered", "over", "failed_share", "death_share", "p50_ms", "p90_ms"),
    *("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier"),
)


def compare(before: tuple[Export, Shared], after: tuple[Export, Shared]) -> DataFrame:
    """A row for each broker and queue in either, what changed first. For each period ``_a`` and ``_b``: ``sent``, ``delivered``,
    ``failed``, ``succeeded``, ``dead_lettered``, ``over`` (entries that ended), ``failed_share`` (of deliveries), ``death_share`` (of those
    over), ``p50_ms`` and ``p90_ms`` to success after failing, and the settings that decided last; and ``verdict`` on the deaths:
    ``better``, ``worse``, ``same`` (within ERRORS standard errors), ``new``, ``gone``.
    """
    left, right = (
        _period(*each).select("broker_id", "queue", *(F.col(n).alias(f"{n}_{s}") for n in NAMES))
        for each, s in ((before, "a"), (after, "b"))
    )
    verdict = _verdict("dead_lettered", "over")
    return (
        left.join(right, ["broker_id", "queue"], "full")
        .withColumn("verdict", verdict)
        .orderBy(*_changed_first("dead_lettered"), "queue", "broker_id")
    )


def compare_errors(before: tuple[Export, Shared], after: tuple[Export, Shared]) -> DataFrame:
    """A row for each broker, queue and class of first error in either, what changed first. For each period ``_a`` and ``_b``: ``messages``
    that failed first with it, ``came`` (messages sent or moved into the queue), and how many of those that failed ``succeeded`` and
    ``died``; and ``verdict`` on how often it is met: ``better``, ``worse``, ``same``, ``new``, ``gone`` (from or to none).
    """
    left, right = (_errors(*each, side) for each, side in ((before, "a"), (after, "b")))
    counts = [f"{name}_{side}" for name in ("messages", "succeeded", "died") for side in "ab"]
    joined = left.join(right, ["broker_id", "queue", "error_class"], "full").fillna(0, counts)
    came = [_came(export, side) for (export, _), side in ((before, "a"), (after, "b"))]
    whole = (
        joined.join(came[0], ["broker_id", "queue"], "left").join(came[1], ["broker_id", "queue"], "left").fillna(0, ["came_a", "came_b"])
    )
    sure = _verdict("messages", "came")
    verdict = F.when(sure.isin("better", "worse") & (F.col("messages_a") == 0), "new").when(
        sure.isin("better", "worse") & (F.col("messages_b") == 0), "gone"
    )
    return whole.withColumn("verdict", F.coalesce(verdict, sure)).select(
        "broker_id", "queue", "error_class", "messages_a", "messages_b", "came_a", "came_b", *counts[2:], "verdict"
    ).orderBy(*_changed_first("messages"), "queue", "error_class", "broker_id")  # fmt: skip


def _changed_first(count: str) -> list[Column]:
    order = F.array_position(F.lit(["worse", "new", "better", "gone", "same"]), F.col("verdict"))
    return [order, F.desc(F.greatest(F.coalesce(f"{count}_a", F.lit(0)), F.coalesce(f"{count}_b", F.lit(0))))]


def _period(export: Export, shared: Shared) -> DataFrame:
    from .overview import overview
    from .settings_in_force import settings_in_force
    from .time_to_success import time_to_success

    counts = overview(export.messages, export.deliveries_by_minute, export.before)
    over = F.col("succeeded") + F.col("dead_lettered") + F.col("expired") + F.col("dropped") + F.col("purged")
    times = (
        time_to_success(shared.fates()).where("queue IS NOT NULL AND error_class IS NULL").select("broker_id", "queue", "p50_ms", "p90_ms")
    )
    decided = settings_in_force(shared.fates(), shared.periods())
    decided = decided.where("current AND rule IS NULL")
    last = decided.groupBy("broker_id", "queue").agg(*(F.max_by(name, "until").alias(name) for name in NAMES[-3:]))
    return (
        counts.withColumn("over", over)
        .withColumn("failed_share", F.when(F.col("delivered") > 0, F.col("failed") / F.col("delivered")))
        .withColumn("death_share", F.when(F.col("over") > 0, F.col("dead_lettered") / F.col("over")))
        .join(times, ["broker_id", "queue"], "left")
        .join(last, ["broker_id", "queue"], "left")
    )


def _errors(export: Export, shared: Shared, side: str) -> DataFrame:
    counts = {"messages": F.count(F.lit(1)), "succeeded": F.count_if("won"), "died": F.count_if("died")}
    known = shared.fates().where(F.col("error_class") != UNKNOWN)
    return known.groupBy("broker_id", "queue", "error_class").agg(*(count.alias(f"{name}_{side}") for name, count in counts.items()))


def _came(export: Export, side: str) -> DataFrame:
    return export.deliveries_by_minute.groupBy("broker_id", "queue").agg(F.sum(F.col("sent") + F.col("moved_in")).alias(f"came_{side}"))


def _verdict(part: str, whole: str) -> Column:
    """Two shares differ where they are further apart than chance would bring them (pooled standard error)."""
    n_a, n_b = F.col(f"{whole}_a"), F.col(f"{whole}_b")
    pooled = (F.col(f"{part}_a") + F.col(f"{part}_b") + 1) / (n_a + n_b + 2)
    # At most 1, also where a message failed in more stays than it was counted in.
    spread = F.greatest(pooled * (1 - pooled), F.lit(0.0))
    error = F.sqrt(spread * (F.try_divide(F.lit(1), n_a) + F.try_divide(F.lit(1), n_b)))
    change = F.try_divide(F.col(f"{part}_b"), n_b) - F.try_divide(F.col(f"{part}_a"), n_a)
    return (
        F.when(n_a.isNull() | (F.lit(whole == "came") & (n_a == 0)), "new")
        .when(n_b.isNull() | (F.lit(whole == "came") & (n_b == 0)), "gone")
        .when(change > ERRORS * error, "worse")
        .when(change < -ERRORS * error, "better")
        .otherwise("same")
    )
