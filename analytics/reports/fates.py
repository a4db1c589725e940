"""What became of every message that failed: one row a stay, which several reports read, so it is computed once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from ..spark.kept import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..input.inputs import Export

KEY = ("broker_id", "sequence")
#: Stands where an attempt has lost its record.
UNKNOWN = "not on record"
#: Outcomes of messages that died of failing: dropped for want of a place to die in.
DIED = ("dead-lettered", "dropped")


def in_order(attempts: DataFrame) -> DataFrame:
    """Every attempt's ``queue``, ``attempt``, ``at``, ``error_class``, ``policy``, ``assigned_at`` and ``was_due_at``: when the attempt
    right before it had said that this one was due (null: none, or not on record). Those of a stay lie together, in their order, so that
    what is asked of stays moves and sorts attempts once; a stay's are never in memory as one value.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    stay = Window.partitionBy(*KEY).orderBy("attempt")
    follows = F.col("attempt") - F.lag("attempt").over(stay) == 1
    return attempts.select(
        *(*KEY, "queue", "attempt", "at", "error_class", "policy", "assigned_at"),
        F.when(follows, F.lag("due_at").over(stay)).alias("was_due_at"),
    )


def fates(messages: DataFrame, ordered: DataFrame) -> DataFrame:
    """One row for each stay with a failed attempt; ``ordered``: in_order.

    - ``queue``, ``address``, ``outcome`` (null: still here), ``won``, ``died`` (dead-lettered, or dropped for want of a place);
    - ``tries``: deliveries that came to an end, the successful one too; ``failed_attempts``;
    - ``error_class``, ``first_at``: of the first failure on record; ``policy``, ``last_at``: of the last;
    - ``took_ms``: from the first failure to success, or to the last failure where there was none: so long it has been watched;
    - ``success_ms``: from sending to success, null where there was none.
    """
    from pyspark.sql import functions as F

    one = F.struct("attempt", "at", "error_class", "policy")
    told = ordered.groupBy(*KEY).agg(F.min(one).alias("first"), F.max(one).alias("last"))
    won, end = F.col("outcome") == "succeeded", F.when(F.col("outcome") == "succeeded", F.col("settled_at"))
    took_us = F.unix_micros(F.coalesce(end, "last.at")) - F.unix_micros("first.at")
    return (
        messages.where("failed_attempts > 0")
        .select(*KEY, "queue", "address", "outcome", "failed_attempts", "attempts", "sent_at", "settled_at")
        .join(told, list(KEY), "left")
        .select(
            *("queue", "address", "outcome", "failed_attempts"),
            F.col("attempts").alias("tries"),
            F.coalesce(won, F.lit(False)).alias("won"),
            F.coalesce(F.col("outcome").isin(*DIED), F.lit(False)).alias("died"),
            F.coalesce("first.error_class", F.lit(UNKNOWN)).alias("error_class"),
            F.col("first.at").alias("first_at"),
            F.col("last.at").alias("last_at"),
            F.col("last.policy").alias("policy"),
            F.greatest(F.floor(took_us / 1000), F.lit(0)).alias("took_ms"),
            F.when(won, F.floor((F.unix_micros("settled_at") - F.unix_micros("sent_at")) / 1000)).alias("success_ms"),
        )
    )


class Shared:
    """Frames that several reports of one run read: each made at the first use, kept until ``release``. Used from several threads."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._locks = {name: Lock() for name in ("ordered", "fates", "load", "kinds", "faults")}
        self._kept: dict[str, DataFrame] = {}

    def in_order(self) -> DataFrame:
        return self._once("ordered", lambda: in_order(self._export.attempts))

    def fates(self) -> DataFrame:
        ordered = self.in_order()
        return self._once("fates", lambda: fates(self._export.messages, ordered))

    def retry_load(self) -> DataFrame:
        from .retry_load import retry_load

        export, ordered = self._export, self.in_order()
        return self._once("load", lambda: retry_load(export.attempts, export.deliveries_by_minute, export.messages, ordered))

    def faults(self) -> DataFrame:
        from .clusters import error_kinds, faults

        kinds = self._once("kinds", lambda: error_kinds(self._export.attempts))
        return self._once("faults", lambda: faults(kinds))

    def release(self) -> None:
        for frame in self._kept.values():
            frame.unpersist()
        self._kept.clear()

    def _once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        with self._locks[name]:
            if name not in self._kept:
                self._kept[name] = kept(make(), small=self._export.manifest.is_small)
            return self._kept[name]
