"""Counts and rates: of each queue since it was made or the broker started, and of all together, deleted queues included."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from ..broker import Broker
from ..core.counts import COUNTED, named, none_yet
from ..core.queue import Queue

#: Rates are of the last one to two of these.
SAMPLE_MS: Final = 5_000
_LEAST_MS: Final = 1_000

_Sample = tuple[int, dict[Queue, tuple[int, ...]], tuple[int, ...]]


class Meter:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.since_ms = broker.now_ms()
        self._gone = none_yet()
        nothing = tuple(none_yet())
        #: The last but one, and the last: when, each queue's counts, and all together.
        self._samples: deque[_Sample] = deque([(self.since_ms, {}, nothing)], maxlen=2)
        broker.when_queue_goes(self._keep)

    def _keep(self, queue: Queue) -> None:
        self._gone = _sum([self._gone, queue.counts])

    def sample(self) -> None:
        """Called at least every few seconds."""
        now_ms = self._broker.now_ms()
        if now_ms - self._samples[-1][0] >= SAMPLE_MS:
            counts = {queue: tuple(queue.counts) for queue in self._broker.queues().values()}
            self._samples.append((now_ms, counts, tuple(self._total())))

    def _total(self) -> list[int]:
        return _sum([self._gone, *(queue.counts for queue in self._broker.queues().values())])

    def of(self, queue: Queue) -> dict[str, Any]:
        """What became of messages, and how many a second of late."""
        at_ms, counts, _ = self._samples[0]
        before = counts.get(queue, none_yet())
        return {**named(queue.counts), "rates": self._per_second(queue.counts, before, max(at_ms, queue.created_at_ms))}

    def _per_second(self, counts: Sequence[int], before: Sequence[int], since_ms: int) -> dict[str, float]:
        seconds = max(_LEAST_MS, self._broker.now_ms() - since_ms) / 1000
        return {name: round((now - then) / seconds, 1) for name, now, then in zip(COUNTED, counts, before, strict=True)}

    def messages(self) -> dict[str, Any]:
        """Of all queues: what stands in them now, and what became of messages ``since_ms``, with rates."""
        queues, total = self._broker.queues().values(), self._total()
        return {
            "pending": sum(queue.ready for queue in queues),
            "delivering": sum(queue.delivering + queue.committing for queue in queues),
            "scheduled": sum(queue.waiting for queue in queues),
            "parked": sum(len(queue.parked) for queue in queues),
            "since_ms": self.since_ms,
            **named(total),
            "rates": self._per_second(total, self._samples[0][2], self._samples[0][0]),
        }

    def open(self) -> dict[str, int]:
        """How many queues there are, and who is connected to them."""
        connections = self._broker.open_connections().values()
        return {
            "queues": len(self._broker.queues()),
            "connections": len(connections),
            "producers": sum(len(each.producers) for each in connections),
            "consumers": sum(len(each.consumers) for each in connections),
        }


def _sum(counts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*counts, strict=True)]
