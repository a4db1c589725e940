"""``--fail-if 'dead_letter_rate > 0.01'``: what a run is to be failed for."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import AnalyticsError

_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
_FORM = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)?)\s*(%?)\s*")


def _sum(table: Any, *names: str) -> int:
    from ..page.tables import total

    return sum(total(table, names).values())


def _share(part: str) -> Callable[[Any], float]:
    """Among the messages that came to an end."""
    return lambda overview: _sum(overview, part) / max(_sum(overview, "came_home", "given_up"), 1)


def _count(name: str) -> Callable[[Any], float]:
    return lambda table: _sum(table, name)


def _suspect(kind: str) -> Callable[[Any], float]:
    return lambda table: sum(row["suspect"] and row["kind"] == kind for row in table.to_pylist())


#: figure -> (the table it is of, how it is read from it, what it is)
FIGURES: dict[str, tuple[str, Callable[[Any], float], str]] = {
    "dead_letter_rate": ("overview", _share("died"), "messages that were dead-lettered among those that came to an end, 0 to 1"),
    "success_rate": ("overview", _share("came_home"), "messages that succeeded among those that came to an end, 0 to 1"),
    "failure_rate": ("overview", lambda t: _sum(t, "failed") / max(_sum(t, "delivered"), 1), "failed deliveries among all, 0 to 1"),
    "dead_letters": ("overview", _count("died"), "messages that were dead-lettered, and have not succeeded since"),
    "expired": ("overview", _count("ran_out"), "messages that expired"),
    "dropped": ("overview", _count("dropped"), "messages that were dropped"),
    "retries": ("retry_load", _count("retries"), "deliveries after the first"),
    "wasted_retries": ("retry_load", _count("wasted"), "retries of messages that were dead-lettered"),
    "poison_faults": ("poison_clusters", _count("poison"), "faults that kill most of what meets them"),
    "new_faults": ("poison_clusters", lambda t: t["seen"].to_pylist().count("new"), "faults that are met since lately only, by queue"),
    "suspect_releases": ("releases", _suspect("version"), "versions that fail far more often than others at the same time"),
    "outages": ("outages", lambda t: t.num_rows, "times in which hardly a delivery of a queue succeeded"),
    "retry_storms": ("retry_storms", lambda t: t.num_rows, "stretches of time in which most of a queue's work was retries"),
    "growing_queues": ("dead_letter_trend", lambda t: t["verdict"].to_pylist().count("growing"), "queues in which deaths grow"),
}


@dataclass(frozen=True, slots=True)
class Limit:
    text: str
    figure: str
    sign: str
    value: float

    @property
    def table(self) -> str:
        return FIGURES[self.figure][0]

    def broken(self, tables: Mapping[str, Any]) -> str | None:
        """What it came to, where the limit says that it must not."""
        came_to = FIGURES[self.figure][1](tables[self.table])
        return f"{self.text} ({self.figure} is {came_to:g})" if _OPERATORS[self.sign](came_to, self.value) else None


def parse_limit(text: str) -> Limit:
    """Raises AnalyticsError bad-limit."""
    match = _FORM.fullmatch(text)
    if match is None:
        fix = "Write a figure, a sign and a number, such as 'dead_letter_rate > 0.01'."
        raise AnalyticsError("bad-limit", f"{text!r} is no limit.", fix)
    figure, sign, value, percent = match.groups()
    if figure not in FIGURES:
        raise AnalyticsError("bad-limit", f"{text!r} names no figure.", did_you_mean(figure, FIGURES))
    return Limit(text.strip(), figure, sign, float(value) / (100 if percent else 1))


def did_you_mean(word: str, words: Iterable[str]) -> str:
    known = list(words)
    near = difflib.get_close_matches(word, known, 1)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
