"""The time that a report speaks of: one for all its figures, so that what is counted for ever is not held against what was forgotten.

A broker forgets attempts and outcomes with age, and keeps its counts. The window of a broker begins where its history does, or later, and
ends where its latest export was taken, or earlier, where so it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from .waiting import undelayed

if TYPE_CHECKING:
    from .export import Export

_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US


@dataclass(frozen=True, slots=True)
class Window:
    """What of the input is asked for, in microseconds since 1970, by the whole minute; None: no bound."""

    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def parse(cls, since: str | None, until: str | None) -> Self:
        """Of ISO 8601, UTC unless it says otherwise. Raises AnalyticsError bad-time."""
        begin, end = (None if text is None else _minute_us(name, text) for name, text in (("--since", since), ("--until", until)))
        if begin is not None and end is not None and begin >= end:
            raise AnalyticsError("bad-time", f"--since {since} is not before --until {until}.", "Name an earlier and a later time.")
        return cls(begin, end)

    def begins(self, covered: Mapping[str, int], brokers: Iterable[str]) -> dict[str, int]:
        """Where the window of each broker begins, which is whole from ``covered`` on (covered_from)."""
        if self.since_us is None:
            return dict(covered)
        return {broker: max(self.since_us, covered.get(broker, 0)) for broker in brokers}


#: All that there is.
WHOLE = Window()


def _minute_us(name: str, text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise AnalyticsError("bad-time", f"{name} {text} is no time.", "Write it as 2026-11-21T08:30, in UTC, or with +01:00.") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) // 60 * _MINUTE_US


def within(export: Export, window: Window, covered: Mapping[str, int]) -> Export:
    """What of the export is in the window. ``covered``: from when on history is whole, by broker."""
    return _since(_until(undelayed(_edited(export)), window.until_us), window.begins(covered, export.brokers))


def _edited(export: Export) -> Export:
    """The export with each message under the number it was first sent with, whatever it was edited to."""
    if not export.manifest.rows.get("edits"):
        return export
    key = ["broker_id", "message_id"]
    first = F.broadcast(export.edits.where("first_id IS NOT NULL").select(*key, "first_id"))

    def renamed(frame: DataFrame) -> DataFrame:
        return frame.join(first, key, "left").withColumn("message_id", F.coalesce("first_id", "message_id")).drop("first_id")

    messages, attempts, dead_letters = (renamed(table) for table in (export.messages, export.attempts, export.dead_letters))
    return replace(export, messages=messages, attempts=attempts, dead_letters=dead_letters)


def _until(export: Export, until_us: int | None) -> Export:
    """The export as it would have been then: what ended later is still here, and what succeeded at once later is not known by itself."""
    if until_us is None or until_us >= export.manifest.exported_at_us:
        return export
    until = F.timestamp_micros(F.lit(until_us))
    entry = ["broker_id", "sequence"]
    # Of those that failed later, too, at least the last has a record, unless the broker keeps none.
    so_far = export.attempts.where(F.col("at") >= until).groupBy(*entry).agg((F.min("attempt") - 1).alias("so_far"))
    later = F.coalesce(F.col("settled_at") >= until, F.lit(False))
    entered = export.messages.where(F.col("entered_at") < until).join(so_far, entry, "left").withColumn("later", later)
    ended = ("outcome", "reason", "settled_at", "target_queues")
    counted = F.when(F.col("later") | F.col("settled_at").isNull(), F.coalesce("so_far", "failed_attempts"))
    messages = entered.withColumns(
        {name: F.when(~F.col("later"), F.col(name)) for name in ended}
        | {"state": F.when(F.col("later") | F.col("so_far").isNotNull(), F.lit("ready")).otherwise(F.col("state"))}
        | {name: F.coalesce(counted, F.col(name)) for name in ("attempts", "failed_attempts")}
    )
    return replace(
        export,
        manifest=replace(export.manifest, exported_at_us=until_us),
        messages=messages.drop("so_far", "later"),
        attempts=export.attempts.where(F.col("at") < until),
        dead_letters=_lying(export.dead_letters.where(F.col("died_at") < until), messages),
        deliveries_by_minute=export.deliveries_by_minute.where(F.col("minute") < until),
        deliveries_by_consumer=export.deliveries_by_consumer.where(F.col("hour") < F.date_trunc("hour", until)),
        settings=export.settings.where(F.col("from_at") < until),
        edits=export.edits.where(F.col("at") < until),
        faults=export.faults.where(F.col("first_at") < until),
        redrives=export.redrives.where(F.col("started_at") < until),
        until_us=until_us,
    )


def _lying(dead_letters: DataFrame, messages: DataFrame) -> DataFrame:
    """``dead_letters`` with ``lies_in`` as of when ``messages`` are: where the copy is that came by this death."""
    from pyspark.sql import Window

    way = Window.partitionBy("broker_id", "message_id", "home_queue").orderBy("sequence")
    here = (
        messages.withColumn("death", F.lag("sequence").over(way))
        .where("state <> 'settled' AND death IS NOT NULL")
        .groupBy("broker_id", F.col("death").alias("sequence"))
        .agg(F.collect_list("queue").alias("here"))
    )
    joined = dead_letters.join(here, ["broker_id", "sequence"], "left")
    return joined.withColumn("lies_in", F.coalesce("here", F.array().cast("array<string>"))).drop("here")


def _since(export: Export, begins: Mapping[str, int]) -> Export:
    """The export from ``begins`` on (broker -> microseconds; brokers that are not in it: whole). What came before is in ``before``."""
    if not begins:
        return export
    of_broker = F.create_map(*(F.lit(value) for pair in sorted(begins.items()) for value in pair))
    begin = F.coalesce(F.element_at(of_broker, F.col("broker_id")), F.lit(0))

    def since(frame: DataFrame, column: str) -> DataFrame:
        return frame.where(F.unix_micros(column) >= begin)

    whole_hour = F.ceil(begin / _HOUR_US) * _HOUR_US
    minutes = export.deliveries_by_minute
    return replace(
        export,
        messages=export.messages.where(F.col("settled_at").isNull() | (F.unix_micros("settled_at") >= begin)),
        attempts=since(export.attempts, "at"),
        dead_letters=since(export.dead_letters, "died_at"),
        deliveries_by_minute=since(minutes, "minute"),
        deliveries_by_consumer=export.deliveries_by_consumer.where(F.unix_micros("hour") >= whole_hour),
        edits=since(export.edits, "at"),
        faults=export.faults.where((F.unix_micros("last_at") >= begin) | (F.col("dead") + F.col("waiting") > 0)),
        ever_died=export.dead_letters,
        before=minutes.where(F.unix_micros("minute") < begin),
        begins=dict(begins),
    )
