"""Messages as their clients saw them from sending to their end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.truth.account import Account, Between, Failure, QueueEntry

Row = dict[str, Any]
#: key of a row -> what is to stand in it
Rows = dict[tuple[Any, ...], Row]

FAILING = ("delivery_limit", "not-retryable", "rejected", "gone")
DEAD = ("dead-lettered", "dropped")
BY_HAND = ("redriven", "edited")
#: Moves that were meant: by somebody, or to wait.
MEANT = (*BY_HAND, "delayed")


class Life:
    """One message from its sending on: what it came to in its own queue, and what became of it when it died there."""

    def __init__(self, entries: list[QueueEntry], queue: str) -> None:
        self.entries = entries
        self.queue = queue
        self.home = [entry for entry in entries if entry.queue == self.queue]
        self.failures = [failure for entry in self.home for failure in entry.failures]
        #: the latest where it was not at home at all
        self.end = (self.home or entries)[-1]
        self.won = self.end.outcome == "succeeded"
        self.died = self.end.outcome in DEAD
        self.tries = len(self.failures) + sum(entry.outcome == "succeeded" for entry in self.home)

    def lasted(self, since: Between) -> tuple[float, float]:
        """Milliseconds to its end, or to its last failure."""
        until = self.end.ended if self.end.ended and (self.won or self.died) else self.failures[-1].at
        return max((until.low - since.high) / 1000, 0), (until.high - since.low) / 1000

    @property
    def seen(self) -> list[Failure]:
        """The failures at home of which the broker kept a record: of each entry the first tenth of so many, and the last."""
        return [failure for entry in self.home for failure in on_record(entry)]

    @property
    def error(self) -> str:
        seen = self.seen
        return seen[0].error if seen else "not on record"

    @property
    def took(self) -> tuple[float, float]:
        """Milliseconds from the first failure on record."""
        return self.lasted(self.seen[0].at)


def on_record(entry: QueueEntry) -> list[Failure]:
    if not entry.failures:
        return []
    most = entry.failures[0].records
    kept = most - most // 10
    first = most // 10
    return [each for n, each in enumerate(entry.failures) if n >= entry.before and (n < first or n >= len(entry.failures) - kept)]


def numbered(entry: QueueEntry) -> list[tuple[int, Failure]]:
    """Those on record with their attempt, from 1."""
    kept = {id(failure) for failure in on_record(entry)}
    return [(number, failure) for number, failure in enumerate(entry.failures, 1) if id(failure) in kept]


def by_queue(account: Account) -> dict[str, list[QueueEntry]]:
    found: dict[str, list[QueueEntry]] = defaultdict(list)
    for entry in account.entries:
        found[entry.queue].append(entry)
    return found


def lives(account: Account) -> list[Life]:
    return [Life(account.of(message), account.homes[message]) for message in dict.fromkeys(entry.message for entry in account.entries)]


def failed_lives(account: Account) -> list[Life]:
    return [life for life in lives(account) if life.failures]


def lies(account: Account, death: QueueEntry) -> bool:
    """Whether the copy that died this death is still where it was put."""
    entries = account.of(death.message)
    after = entries[entries.index(death) + 1 :]
    return bool(after) and after[0].outcome is None
