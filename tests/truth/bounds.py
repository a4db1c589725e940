"""Numbers and moments that clients know within bounds, and what follows from them where the bounds decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import product
from math import ceil
from typing import Any, Final

from tests.truth.account import Between

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US


class Within:
    """A number, or a moment, that the clients know within bounds. ``or_none``: there may be none at all."""

    def __init__(self, low: float, high: float, *, or_none: bool = False) -> None:
        self.low, self.high, self.or_none = low, high, or_none

    def __eq__(self, reported: object) -> bool:
        if reported is None:
            return self.or_none
        if isinstance(reported, datetime):
            reported = reported.timestamp() * 1e6
        return isinstance(reported, int | float) and self.low <= reported <= self.high

    def __repr__(self) -> str:
        return f"{self.low} to {self.high}"

    __hash__ = None  # type: ignore[assignment]


class _Open:
    """What their bounds leave open: it depends on a moment that lies close to an edge."""

    def __eq__(self, reported: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "open"

    __hash__ = None  # type: ignore[assignment]


OPEN: Final = _Open()


def near(value: float) -> Within:
    return Within(value - 1e-9 - abs(value) * 1e-9, value + 1e-9 + abs(value) * 1e-9)


def ratio(part: float, whole: float) -> Within | None:
    """None: a part of nothing."""
    return near(part / whole) if whole else None


def first(times: Iterable[Between]) -> Within:
    known = list(times)
    return Within(min(each.low for each in known), min(each.high for each in known))


def last(times: Iterable[Between]) -> Within:
    known = list(times)
    return Within(max(each.low for each in known), max(each.high for each in known))


def ranked(values: list[tuple[float, float]], part: float, slack: float = 1) -> Within | None:
    """The smallest value with ``part`` of all at or below it, of values known within bounds and told in whole ones less ``slack``."""
    if not values:
        return None
    at = ceil(part * len(values) - 1e-9) - 1
    low, high = (sorted(each[end] for each in values)[max(at, 0)] for end in (0, 1))
    return Within(low - slack, high)


def decided(*answers: object) -> Any:
    """What all of them say, each for other ends of the bounds; OPEN where they differ."""
    return answers[0] if len(set(answers)) == 1 else OPEN


def part_of(at: Between, size_us: int) -> int | None:
    """Which second, minute or hour since 1970; None: either of two."""
    low, high = at.low // size_us, at.high // size_us
    return low if low == high else None


def moment(number: int, size_us: int) -> datetime:
    return datetime.fromtimestamp(number * size_us / 1e6, UTC)


class Counts:
    """Of how many events is known in which second (or minute, hour) they were: at least and at most so many."""

    def __init__(self, size_us: int) -> None:
        self.size_us = size_us
        self._sure: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._maybe: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, name: str, at: Between, least: float = 1, most: float | None = None) -> None:
        most = least if most is None else most
        numbers = range(at.low // self.size_us, at.high // self.size_us + 1)
        for number in numbers:
            self._maybe[number][name] += most
            self._sure[number][name] += least if len(numbers) == 1 else 0

    def parts(self) -> list[int]:
        return sorted(self._maybe)

    def least(self, number: int, *names: str) -> float:
        return sum(self._sure[number][name] for name in names or list(self._sure[number]))

    def most(self, number: int, *names: str) -> float:
        return sum(self._maybe[number][name] for name in names or list(self._maybe[number]))

    def of(self, number: int, *names: str) -> Any:
        low, high = self.least(number, *names), self.most(number, *names)
        return low if low == high else Within(low, high)

    def is_sure(self, *names: str) -> bool:
        return all(self.least(number, *names) == self.most(number, *names) for number in self.parts())


def usual(total: float, own: tuple[float, float], others: tuple[int, int]) -> tuple[float, float]:
    """The mean of the others, each of which is 1 at least, and 1 where there is none; least and most."""
    found = [max(total - here, count) / count if count else 1.0 for here, count in product(own, range(others[0], others[1] + 1))]
    return min(found), max(found)
