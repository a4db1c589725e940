"""What became of every message that failed: one row a message, which several reports read, so it is computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..spark.session import in_one_piece, kept

if TYPE_CHECKING:
    from ..input.export import Export

#: The number first: what sorts by it seldom looks at the rest.
KEY = ("sequence", "broker_id")
#: A message, and of one that went to several queues the copy of each: dead-lettered it is the same, and so it is when it came back.
MESSAGE = ("message_id", "broker_id", "home_queue")
#: Stands where an attempt has lost its record.
UNKNOWN = "not on record"


def in_order(attempts: DataFrame) -> DataFrame:
    """Every attempt's ``queue``, ``attempt``, ``at``, ``error_class``, ``policy``, ``assigned_at`` and ``was_due_at``: when the attempt
    right before it had said that this one was due (null: none, or not on record). Those of an entry lie together, in their order, so that
    what is asked of entries moves and sorts attempts once; an entry's are never in memory as one value.
    """
    entry = Window.partitionBy(*KEY).orderBy("attempt")
    follows = F.col("attempt") - F.lag("attempt").over(entry) == 1
    return attempts.select(
        *(*KEY, "queue", "attempt", "at", "error_class", "policy", "assigned_at"),
        F.when(follows, F.lag("due_at").over(entry)).alias("was_due_at"),
    )


def weighed(attempts: DataFrame, cut: Collection[str] = ()) -> DataFrame:
    """The attempts on record, and how many each ``stands_for``: the last of an entry also for those that have no record
    (``max-redelivery-records``). ``cut``: brokers of which what was before the first on record may have been before the window.
    """
    last, begin = F.max("attempt"), F.when(F.col("broker_id").isin(*cut), F.min("attempt") - 1).otherwise(0)
    trimmed = attempts.groupBy(*KEY).agg(last.alias("attempt"), (last - begin - F.count(F.lit(1))).alias("lost")).where("lost > 0")
    stands_for = (1 + F.coalesce("lost", F.lit(0))).alias("stands_for")
    return attempts.join(F.broadcast(trimmed), [*KEY, "attempt"], "left").select("*", stands_for)


def fates(messages: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row for each message that failed, in whichever queue. A message that was sent back after that is still the same one.

    - ``broker_id``, ``queue``: its own, which is where it was dead-lettered first, if it was; ``address``;
    - ``won``: it succeeded in its own queue; ``died``: it was dead-lettered or dropped, of ``reason``, and has not succeeded since. Else
      it waits there, has expired or was purged;
    - ``tries``: deliveries in its own queue that came to an end, the successful one too; ``failed_attempts``;
    - ``error_class``, ``first_at``: of the first failure on record; ``policy``, ``rule`` (empty: none had a say), ``last_at``: of the last;
    - ``took_ms``: from the first failure to the success or the death, or to the last failure where there was neither;
    - ``success_ms``: from sending to success, null where there was none.
    """
    at_home = F.col("queue") == F.col("home_queue")
    one = F.struct("at", "sequence", "attempt", "error_class", "policy", "rule")
    of_message = attempts.where(at_home).groupBy(*MESSAGE).agg(F.min(one).alias("first"), F.max(one).alias("last"))
    end = F.struct("sequence", "outcome", "reason", "settled_at")
    whole = (
        messages.where(at_home)
        .groupBy(*MESSAGE)
        .agg(
            F.max(end).alias("end"),
            F.max("address").alias("address"),
            F.min("sent_at").alias("sent_at"),
            F.sum("failed_attempts").alias("failed_attempts"),
            F.sum("attempts").alias("tries"),
        )
        .where("failed_attempts > 0")
    )
    won, died = F.col("end.outcome") == "succeeded", F.col("end.outcome").isin("dead-lettered", "dropped")
    ended = F.when(won | died, F.col("end.settled_at"))
    took_us = F.unix_micros(F.coalesce(ended, "last.at")) - F.unix_micros("first.at")
    return whole.join(of_message, list(MESSAGE), "left").select(
        *("broker_id", "message_id", F.col("home_queue").alias("queue"), "address", F.col("end.outcome").alias("outcome")),
        *("failed_attempts", "tries"),
        F.coalesce(won, F.lit(False)).alias("won"),
        F.coalesce(died, F.lit(False)).alias("died"),
        F.when(died, F.col("end.reason")).alias("reason"),
        F.coalesce("first.error_class", F.lit(UNKNOWN)).alias("error_class"),
        F.col("first.at").alias("first_at"),
        F.col("last.at").alias("last_at"),
        F.col("last.policy").alias("policy"),
        F.coalesce("last.rule", F.lit("")).alias("rule"),
        F.greatest(F.floor(took_us / 1000), F.lit(0)).alias("took_ms"),
        F.when(won, F.floor((F.unix_micros("end.settled_at") - F.unix_micros("sent_at")) / 1000)).alias("success_ms"),
    )


class Shared:
    """Frames that several reports of one run read: each made at the first use, kept until ``release``. Used from several threads."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._locks = {name: Lock() for name in ("fates", "outages", "load", "deaths", "faults", "periods")}
        self._kept: dict[str, DataFrame] = {}

    def fates(self) -> DataFrame:
        return self._once("fates", lambda: fates(self._export.messages, self._export.attempts))

    def weighed(self) -> DataFrame:
        return weighed(self._export.attempts, self._export.begins)

    def outages(self) -> DataFrame:
        from .outages import outage_windows

        export = self._export
        tables = self.fates(), export.attempts, export.deliveries_by_minute
        return self._once("outages", lambda: outage_windows(*tables, export.manifest.exported_at_us))

    def retry_load(self) -> DataFrame:
        from .retry_load import retry_load

        export = self._export
        return self._once("load", lambda: retry_load(export.attempts, export.deliveries_by_minute, export.messages))

    def deaths(self) -> DataFrame:
        from .deaths import deaths

        export = self._export
        tables = export.dead_letters, export.messages, export.attempts, export.deliveries_by_minute
        return self._once("deaths", lambda: deaths(*tables, small=export.manifest.is_small))

    def faults(self) -> DataFrame:
        from .clusters import error_kinds, faults

        return self._once("faults", lambda: faults(error_kinds(self._export.attempts)), here=True)

    def periods(self) -> DataFrame:
        from .policy_periods import policy_periods

        export = self._export
        tables = export.attempts, export.policies, export.settings, export.queues
        return self._once("periods", lambda: policy_periods(*tables), here=True)

    def release(self) -> None:
        for frame in self._kept.values():
            frame.unpersist()
        self._kept.clear()

    def _once(self, name: str, make: Callable[[], DataFrame], *, here: bool = False) -> DataFrame:
        """``here``: made of rows that are in memory already."""
        with self._locks[name]:
            if name not in self._kept:
                frame = make()
                self._kept[name] = in_one_piece(frame) if here else kept(frame, small=self._export.manifest.is_small)
            return self._kept[name]
