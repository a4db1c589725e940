"""What became of every message that failed: one row a stay, which several reports read, so it is computed once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from analytics.inputs import Export

KEY = ("broker_id", "sequence")
#: Stands where an attempt has lost its record.
UNKNOWN = "not on record"


def fates(messages: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row for each stay with a failed attempt.

    - ``queue``, ``address``, ``outcome`` (null: still here), ``won``, ``died`` (dead-lettered, or dropped for want of a place);
    - ``tries``: deliveries that came to an end, the successful one too; ``failed_attempts``;
    - ``error_class``, ``first_at``: of the first failure on record; ``policy``, ``last_at``: of the last;
    - ``took_ms``: from the first failure to success, or to the last failure where there was none: so long it has been watched;
    - ``success_ms``: from sending to success, null where there was none;
    - ``retry_minutes``: the minutes (since 1970) in which its retries failed, one entry a retry.
    """
    from pyspark.sql import functions as F

    one = F.struct("attempt", "at", "error_class", "policy")
    minute = F.floor(F.unix_seconds("at") / 60).cast("int")
    told = attempts.groupBy(*KEY).agg(
        F.min(one).alias("first"),
        F.max(one).alias("last"),
        # At most 100 records a message: max-redelivery-records.
        F.collect_list(F.when(F.col("attempt") > 1, minute)).alias("retry_minutes"),
    )
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
            F.coalesce(F.col("outcome").isin("dead-lettered", "dropped"), F.lit(False)).alias("died"),
            F.coalesce("first.error_class", F.lit(UNKNOWN)).alias("error_class"),
            F.col("first.at").alias("first_at"),
            F.col("last.at").alias("last_at"),
            F.col("last.policy").alias("policy"),
            F.greatest(F.floor(took_us / 1000), F.lit(0)).alias("took_ms"),
            F.when(won, F.floor((F.unix_micros("settled_at") - F.unix_micros("sent_at")) / 1000)).alias("success_ms"),
            "retry_minutes",
        )
    )


class Shared:
    """Frames that several reports of one run read: each made at the first use, kept until ``release``. Used from several threads."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._locks = {name: Lock() for name in ("fates", "load", "kinds", "faults")}
        self._kept: dict[str, DataFrame] = {}

    def fates(self) -> DataFrame:
        return self._once("fates", lambda: fates(self._export.messages, self._export.attempts))

    def retry_load(self) -> DataFrame:
        from analytics.retry_load import retry_load

        stays = self.fates()
        return self._once("load", lambda: retry_load(self._export.attempts, self._export.deliveries_by_minute, stays))

    def faults(self) -> DataFrame:
        from analytics.clusters import error_kinds, faults

        kinds = self._once("kinds", lambda: error_kinds(self._export.attempts))
        return self._once("faults", lambda: faults(kinds))

    def release(self) -> None:
        for frame in self._kept.values():
            frame.unpersist()
        self._kept.clear()

    def _once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        with self._locks[name]:
            if name not in self._kept:
                self._kept[name] = make().persist()
            return self._kept[name]
