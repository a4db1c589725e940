"""What the clients of a workload know by themselves: of each message where it stood, how each delivery ended, and between which moments.

The broker is never asked. Where a message goes that failed follows from the settings that the workload wrote and from how it was failed;
that it really went there shows when a client finds it there, or looks at the queue in the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple


class Between(NamedTuple):
    """A moment that a client knows within bounds, in microseconds since 1970; the broker's clock ticks in milliseconds."""

    low: int
    high: int

    @classmethod
    def since(cls, low_us: int) -> Between:
        return cls(low_us // 1000 * 1000 - 1000, now_us() + 1000)


def now_us() -> int:
    return time.time_ns() // 1000


class Failure(NamedTuple):
    at: Between
    given: Between
    error: str
    text: str
    #: what the consumer's program calls itself
    client: str
    #: the limit in force, and how many attempts of each message are kept
    limit: int
    records: int


@dataclass
class QueueEntry:
    """One message in one queue."""

    message: int
    queue: str
    entered: Between
    #: why it came: sent, moved
    came: str = "sent"
    failures: list[Failure] = field(default_factory=list)
    #: None while it is there
    outcome: str | None = None
    reason: str | None = None
    target: str | None = None
    ended: Between | None = None
    client: str | None = None
    #: it stays, and nobody gets it any more
    parked: bool = False


@dataclass
class Account:
    stays: list[QueueEntry] = field(default_factory=list)
    #: number in the body -> the broker's number, as the clients were told
    ids: dict[int, int] = field(default_factory=dict)
    #: queue -> its limits one after the other, and from when on
    limits: dict[str, list[tuple[int, Between]]] = field(default_factory=dict)

    def enter(self, message: int, queue: str, at: Between, came: str = "sent") -> QueueEntry:
        stay = QueueEntry(message, queue, at, came)
        self.stays.append(stay)
        return stay

    def here(self, queue: str) -> list[QueueEntry]:
        return [stay for stay in self.stays if stay.queue == queue and stay.outcome is None]

    def ready(self, queue: str) -> list[QueueEntry]:
        return [stay for stay in self.here(queue) if not stay.parked]

    def of(self, message: int) -> list[QueueEntry]:
        return [stay for stay in self.stays if stay.message == message]

    def at(self, message: int, queue: str) -> QueueEntry:
        """Where a client has just got it. Raises where it cannot be."""
        (stay,) = (each for each in self.here(queue) if each.message == message)
        return stay

    def end(
        self, stay: QueueEntry, outcome: str, at: Between, reason: str | None = None, target: str | None = None, client: str | None = None
    ) -> None:
        stay.outcome, stay.ended, stay.reason, stay.target, stay.client = outcome, at, reason, target, client
        if target is not None:
            self.enter(stay.message, target, at, "moved")
