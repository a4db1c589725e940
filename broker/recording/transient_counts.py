"""What happens to messages that are not durable, in durable queues: counted in memory, and written once a minute and at an orderly stop.
Where one of a queue becomes durable, what is gathered of this queue goes to disk with it: nothing there is without what came before.

A crash may take the last minute of it. Which messages were there then is reckoned at the next start (journal/upkeep/lost.py).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from homing.journal.contract import OF_TRANSIENT, QueueStat

from ..core.queue import Queue
from .journal_port import JournalPort

_MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class _OfQueue:
    #: minute -> column -> increment
    counts: defaultdict[int, defaultdict[QueueStat, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    #: consumer -> increments as in WriteBatch.add_consumer_stats
    served: dict[str, list[int]] = field(default_factory=dict)


class TransientCounts:
    def __init__(self, journal: JournalPort) -> None:
        self._journal = journal
        self._gathered: defaultdict[int, _OfQueue] = defaultdict(_OfQueue)
        self._minute = 0

    def add(self, queue: Queue, column: QueueStat, number: int, now_ms: int) -> None:
        if queue.durable:
            self._gathered[queue.queue_id].counts[now_ms // _MINUTE_MS][column] += number

    def succeeded(self, queue: Queue, number: int, first_tries: int, consumer: str, held_ms: int, now_ms: int) -> None:
        counted = {QueueStat.DELIVERED: number, QueueStat.SUCCEEDED: number, QueueStat.FIRST_TRY: first_tries}
        self._served(queue, counted, consumer, (number, held_ms, 0, 0), now_ms)

    def failed(self, queue: Queue, number: int, first: int, consumer: str, failed_ms: int, now_ms: int) -> None:
        counted = {QueueStat.FAILED: number, QueueStat.FAILED_FIRST: first, QueueStat.FAILED_MS: failed_ms}
        self._served(queue, counted, consumer, (0, 0, number, failed_ms), now_ms)

    def _served(
        self, queue: Queue, counted: dict[QueueStat, int], consumer: str, increments: tuple[int, int, int, int], now_ms: int
    ) -> None:
        for column, number in counted.items():
            self.add(queue, column, number, now_ms)
        if queue.durable:
            served = self._gathered[queue.queue_id].served
            row = served.setdefault(consumer, [0, 0, 0, 0, now_ms, now_ms])
            row[:4] = map(sum, zip(row[:4], increments, strict=True))
            row[5] = now_ms

    def look(self, now_ms: int) -> None:
        """Once a second: what is of the minutes before is written."""
        if now_ms // _MINUTE_MS != self._minute:
            self._minute = now_ms // _MINUTE_MS
            self.write()

    def write(self) -> None:
        for queue_id in list(self._gathered):
            self.write_queue(queue_id)

    def write_queue(self, queue_id: int) -> None:
        """With what else goes to disk now."""
        of_queue = self._gathered.pop(queue_id, None)
        if of_queue is None:
            return
        batch = self._journal.batch
        for minute, counted in of_queue.counts.items():
            row = batch.counts(queue_id, minute)
            for column, number in counted.items():
                row[column] += number
                if column <= QueueStat.MOVED_OUT:
                    row[column + OF_TRANSIENT] += number
        for consumer, increments in of_queue.served.items():
            batch.add_consumer_stats(queue_id, increments[4] // _MINUTE_MS, consumer, increments)
