"""The time that a report speaks of: one for all its figures, so that what is counted for ever is not held against what was forgotten.

A broker forgets attempts and outcomes with age, and keeps its counts. The window of a broker begins where its history does, or later, and
ends where its latest export was taken, or earlier, where so it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from ..errors import AnalyticsError

_MINUTE_US = 60_000_000


def covered_from(exports: Iterable[tuple[str, int, int | None]]) -> dict[str, int]:
    """From (broker_id, exported_at_us, history_from_us) of exports: broker -> from when on, without a gap, all of its history is in one of
    them. A broker of which nothing is gone is not in it.
    """
    begins: dict[str, int | None] = {}
    for broker_id, at_us, from_us in sorted(exports, key=lambda each: -each[1]):
        if broker_id not in begins:
            begins[broker_id] = from_us
        else:
            begin = begins[broker_id]
            if begin is not None and at_us >= begin:
                begins[broker_id] = None if from_us is None else min(begin, from_us)
    # Counts are by the minute.
    return {broker_id: -(-begin // _MINUTE_US) * _MINUTE_US for broker_id, begin in begins.items() if begin is not None}


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
