"""``--fail-if 'dead_letter_rate(pay) > 1%'``: what a run is to be failed for."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import AnalyticsError
from ..words import NB, span

_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
_FORM = re.compile(
    r"\s*([a-z0-9_]+)\s*(?:\((.+)\))?\s*(>=|<=|==|!=|>|<)\s*(?:(usual)(?:\s*\*\s*(\d+(?:\.\d+)?))?|(\d+(?:\.\d+)?)\s*(%|[a-z]*))\s*"
)
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
#: Export.lying, which is no table of the report's.
LYING = "lying"
#: What a figure is of: messages or other things, which are more of a longer time; a part of them; a time in seconds.
COUNT, SHARE, TIME = "count", "share", "time"


def _sum(table: Any, *names: str) -> int:
    from ..page.tables import total

    return sum(total(table, names).values())


def _share(part: str, *whole: str) -> Callable[[Any], float | None]:
    def read(overview: Any) -> float | None:
        every = _sum(overview, *whole)
        return _sum(overview, part) / every if every else None

    return read


def _count(name: str) -> Callable[[Any], float]:
    return lambda table: _sum(table, name)


def _suspect(kind: str) -> Callable[[Any], float]:
    return lambda table: sum(row["suspect"] and row["kind"] == kind for row in table.to_pylist())


def _p99_s(table: Any) -> float | None:
    """Of all, or, where the rows are of one queue, of it."""
    rows = [row for row in table.to_pylist() if row["error_class"] is None]
    whole = [row for row in rows if row["queue"] is None] or rows
    return max((row["p99_ms"] / 1000 for row in whole), default=None)


def _oldest(table: Any) -> datetime | None:
    return min(table["oldest_died_at"].to_pylist(), default=None)


_OVER = ("came_home", "given_up")
#: figure -> (the table it is of, how it is read from it (None: there is nothing to judge by;
#: a moment: the time since then), what kind of figure, what it is)
FIGURES: dict[str, tuple[str, Callable[[Any], float | datetime | None], str, str]] = {
    "dead_letter_rate": ("overview", _share("died", *_OVER), SHARE, "messages that were dead-lettered among those that came to an end"),
    "success_rate": ("overview", _share("came_home", *_OVER), SHARE, "messages that succeeded among those that came to an end"),
    "failure_rate": ("overview", _share("failed", "delivered"), SHARE, "failed deliveries among all"),
    "dead_letters": ("overview", _count("died"), COUNT, "messages that were dead-lettered, and have not succeeded since"),
    "expired": ("overview", _count("ran_out"), COUNT, "messages that expired"),
    "dropped": ("overview", _count("dropped"), COUNT, "messages that were dropped"),
    "oldest_dead_letter": (LYING, _oldest, TIME, "how long ago that died which lies longest in a dead-letter queue"),
    "p99_to_success": ("time_to_success", _p99_s, TIME, "within which 99 of 100 messages that failed at first had succeeded"),
    "retries": ("retry_load", _count("retries"), COUNT, "deliveries after the first"),
    "wasted_retries": ("retry_load", _count("wasted"), COUNT, "retries of messages that were dead-lettered"),
    "poison_faults": ("poison_clusters", _count("poison"), COUNT, "faults that kill most of what meets them"),
    "new_faults": (
        "poison_clusters",
        lambda t: t["seen"].to_pylist().count("new"),
        COUNT,
        "faults that are met since lately only, by queue",
    ),
    "suspect_releases": ("releases", _suspect("version"), COUNT, "versions that fail far more often than others at the same time"),
    "outages": ("outages", lambda t: t.num_rows, COUNT, "times in which hardly a delivery of a queue succeeded"),
    "retry_storms": ("retry_storms", lambda t: t.num_rows, COUNT, "stretches of time in which most of a queue's work was retries"),
    "growing_queues": ("dead_letter_trend", lambda t: t["verdict"].to_pylist().count("growing"), COUNT, "queues in which deaths grow"),
}


@dataclass(frozen=True, slots=True)
class Period:
    """What was written of a time, which ended then, in microseconds since 1970, and how long it was."""

    tables: Mapping[str, Any]
    ended_us: int
    length_us: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    limit: Limit
    #: None: there is nothing to judge by; a time is in seconds.
    value: float | None
    #: Where it is held against that.
    usual: float | None = None

    @property
    def bound(self) -> float | None:
        """What it is held against."""
        if not self.limit.usual:
            return self.limit.value
        return None if self.usual is None else self.usual * self.limit.value

    @property
    def known(self) -> bool:
        return self.value is not None and self.bound is not None

    @property
    def broken(self) -> bool:
        value, bound = self.value, self.bound
        return value is not None and bound is not None and bool(_OPERATORS[self.limit.sign](value, bound))

    def __str__(self) -> str:
        """Such as ``dead_letters > 1 (dead_letters is 5)``."""
        figure, usual = self.limit.figure, f", usual is {self._shown(self.usual)}" if self.limit.usual else ""
        return f"{self.limit.text} ({figure} is {self._shown(self.value)}{usual})"

    def _shown(self, value: float | None) -> str:
        if value is None:
            return "not known"
        return span(value * 1000).replace(NB, " ") if self.limit.kind == TIME else f"{value:g}"

    def as_json(self) -> dict[str, Any]:
        """``holds`` is null where there is nothing to judge by."""
        return {
            "limit": self.limit.text,
            "figure": self.limit.figure,
            "queue": self.limit.queue,
            "value": self.value,
            "bound": self.bound,
            "holds": not self.broken if self.known else None,
        }


@dataclass(frozen=True, slots=True)
class Limit:
    text: str
    figure: str
    #: None: all of them.
    queue: str | None
    sign: str
    #: A number, a share or seconds; of the ``usual``: how many times that.
    value: float
    usual: bool = False

    @property
    def table(self) -> str:
        return FIGURES[self.figure][0]

    @property
    def kind(self) -> str:
        return FIGURES[self.figure][2]

    def judge(self, period: Period, before: Period | None = None) -> Judged:
        """``before``: for those that are held against the usual."""
        usual = None
        if self.usual and before is not None and before.length_us > 0:
            usual = self._read(before)
            if usual is not None and self.kind == COUNT:
                usual *= period.length_us / before.length_us
        return Judged(self, self._read(period), usual)

    def _read(self, period: Period) -> float | None:
        import pyarrow.compute as pc

        table = period.tables[self.table]
        if self.queue is not None:
            table = table.filter(pc.equal(table["queue"], self.queue))
        found = FIGURES[self.figure][1](table)
        return period.ended_us / 1e6 - found.timestamp() if isinstance(found, datetime) else found


def parse_limit(text: str) -> Limit:
    """Raises AnalyticsError bad-limit."""
    match = _FORM.fullmatch(text)
    if match is None:
        fix = "Write a figure, a sign and a number, such as 'dead_letter_rate > 1%' or 'dead_letters(orders) > usual * 3'."
        raise AnalyticsError("bad-limit", f"{text!r} is no limit.", fix)
    figure, queue, sign, usual, factor, number, unit = match.groups()
    if figure not in FIGURES:
        raise AnalyticsError("bad-limit", f"{text!r} names no figure.", did_you_mean(figure, FIGURES))
    if usual:
        return Limit(text.strip(), figure, queue, sign, float(factor or 1), usual=True)
    kind = FIGURES[figure][2]
    if kind == TIME and unit not in _UNITS:
        raise AnalyticsError("bad-limit", f"{text!r}: {figure} is a time.", f"Give it a unit: {', '.join(_UNITS)}; such as {number}h.")
    if kind != TIME and unit not in ("", "%"):
        raise AnalyticsError("bad-limit", f"{text!r}: {figure} is no time.", f"Leave out {unit!r}.")
    return Limit(text.strip(), figure, queue, sign, float(number) * (0.01 if unit == "%" else _UNITS.get(unit, 1.0)))


def did_you_mean(word: str, words: Iterable[str]) -> str:
    known = list(words)
    near = difflib.get_close_matches(word, known, 1)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
