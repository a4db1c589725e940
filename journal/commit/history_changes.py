"""What of a batch adds up or has happened: counts of queues, consumers and fault groups, failed attempts and how entries ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..contract import Attempts, Outcomes, QueueStat
from .fault_changes import FaultChanges
from .last_states import LastStates

QUEUE_STATS: Final = len(QueueStat)


class HistoryChanges(LastStates):
    __slots__ = ("attempts", "attempts_deleted", "consumer_stats", "fault_changes", "outcomes", "queue_stats")

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self.attempts: list[Attempts] = []
        #: (message_id, sequence, attempt) -> how many of ``attempts`` came before; of those, and on disk, it goes.
        self.attempts_deleted: dict[tuple[int, int, int], int] = {}
        self.outcomes: list[Outcomes] = []
        self.queue_stats: dict[tuple[int, int], list[int]] = {}
        #: (queue_id, minute, consumer) -> [succeeded, held_ms, failed, failed_ms, first_ms, last_ms]
        self.consumer_stats: dict[tuple[int, int, str], list[int]] = {}
        self.fault_changes = FaultChanges()

    def counts(self, queue_id: int, minute: int) -> list[int]:
        """The row of increments of one queue and minute, indexed by QueueStat; add to it in place."""
        if not self.touched:
            self.touch()
        row = self.queue_stats.get((queue_id, minute))
        if row is None:
            row = self.queue_stats[queue_id, minute] = [0] * QUEUE_STATS
        return row

    def add_consumer_stats(self, queue_id: int, minute: int, consumer: str, increments: list[int]) -> None:
        """``increments``: so many acknowledged, held for so many ms together, so many failed, held for so many ms, first and last time.

        The minute counts them as well (``counts``).
        """
        row = self.consumer_stats.get((queue_id, minute, consumer))
        if row is None:
            self.consumer_stats[queue_id, minute, consumer] = increments
        else:
            row[:4] = map(sum, zip(row[:4], increments[:4], strict=True))
            row[4], row[5] = min(row[4], increments[4]), max(row[5], increments[5])

    def delete_attempt(self, message_id: int, sequence: int, attempt: int) -> None:
        if not self.touched:
            self.touch()
        self.attempts_deleted[message_id, sequence, attempt] = len(self.attempts)

    def outcome(self, outcomes: Outcomes) -> None:
        if not self.touched:
            self.touch()
        self.outcomes.append(outcomes)

    def faults(self) -> FaultChanges:
        """What is to be written of fault groups; add to it."""
        if not self.touched:
            self.touch()
        return self.fault_changes

    def fault_counts(self, fault_id: int, at_ms: int) -> list[int]:
        """See FaultChanges.counts."""
        return self.faults().counts(fault_id, at_ms)

    def absorb_history(self, later: HistoryChanges) -> None:
        """What ``later`` holds happens after what is here."""
        before = len(self.attempts)
        self.attempts_deleted.update({key: before + number for key, number in later.attempts_deleted.items()})
        self.attempts += later.attempts
        self.outcomes += later.outcomes
        for minute, increments in later.queue_stats.items():
            row = self.queue_stats.setdefault(minute, increments)
            if row is not increments:
                row[:] = map(sum, zip(row, increments, strict=True))
        self.fault_changes.absorb(later.fault_changes)
        for key, increments in later.consumer_stats.items():
            self.add_consumer_stats(*key, increments)

    def has_history(self) -> bool:
        return bool(self.attempts or self.attempts_deleted or self.outcomes or self.queue_stats or self.fault_changes)
