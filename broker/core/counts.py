"""What has come of messages in a queue, counted since the broker started, of durable ones and others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from homing.journal.contract import Outcome

#: In the order in which they stand in ``Queue.counts``; shown under these names. ``retried``: of those that failed, tried again;
#: ``edited``: of those that were moved out, replaced by another.
COUNTED: Final = (
    *("sent", "moved_in", "delivered", "succeeded", "failed", "retried"),
    *("dead_lettered", "expired", "dropped", "purged", "moved_out", "edited"),
)
SENT: Final = 0
MOVED_IN: Final = 1
DELIVERED: Final = 2
SUCCEEDED: Final = 3
FAILED: Final = 4
RETRIED: Final = 5
EDITED: Final = COUNTED.index("edited")
#: Bits of what was sent: meant to be durable by its sender, or not.
PERSISTENT: Final = 1
PASSING: Final = 2
#: The count that each end of an entry belongs to.
COUNT_OF_OUTCOME: Final[Mapping[Outcome, int]] = {
    "dead-lettered": COUNTED.index("dead_lettered"),
    "expired": COUNTED.index("expired"),
    "dropped": COUNTED.index("dropped"),
    "purged": COUNTED.index("purged"),
    "redriven": COUNTED.index("moved_out"),
    "moved": COUNTED.index("moved_out"),
    "edited": COUNTED.index("moved_out"),
}


class Histogram:
    """How many values there were up to each of ``bounds``, and beyond the last; and what they come to together."""

    __slots__ = ("bounds", "numbers", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.numbers = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.numbers[bisect_left(self.bounds, value)] += 1
        self.total += value


class HeldBack(NamedTuple):
    """A limit that is reached, how many producers wait for it, and since when there have been any."""

    limit: str
    why: str
    producers: int
    since_ms: int | None


class Level(NamedTuple):
    """How much of a limit is in use, in bytes; ``limit`` None: there is none."""

    used: int
    limit: int | None


class Figures(NamedTuple):
    """Of the whole broker. ``attempts``: of messages that succeeded, but not at once; ``events``: event -> outcome -> number;
    ``next_due_ms``: of the scheduled messages in memory."""

    memory_limit: int
    dead_lettered: Mapping[str, int]
    attempts: Histogram
    lateness_ms: Histogram
    events: Mapping[str, Mapping[str, int]]
    next_due_ms: int | None
    #: Queues whose end has come, and that stay for what is parked in them.
    queues_staying: int
    held_back: Sequence[HeldBack]
    levels: Mapping[str, Level]


def none_yet() -> list[int]:
    return [0] * len(COUNTED)


def named(counts: list[int]) -> dict[str, int]:
    return dict(zip(COUNTED, counts, strict=True))
