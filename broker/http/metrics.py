"""The broker's figures for Prometheus, collected when they are asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..broker import Broker
from ..core.counts import COUNTED
from ..core.queue import Queue
from ..management.statistics import Meter, states

#: Queues with figures of their own; those of all others stand together under the name ``""``, which no queue has.
SHOWN_QUEUES: Final = 200
_REST: Final = ""

_COUNTS: Final = {
    "sent": "Messages that came from producers.",
    "moved_in": "Messages that came from other queues: dead-lettered, redriven, moved.",
    "delivered": "Deliveries to consumers.",
    "succeeded": "Messages that were acknowledged.",
    "failed": "Deliveries that failed.",
    "retried": "Failed messages that are to be delivered again.",
    "dead_lettered": "Messages that were dead-lettered.",
    "expired": "Messages whose time to live ended.",
    "dropped": "Messages removed for want of room or of a dead-letter address.",
    "purged": "Messages removed by an operator.",
    "moved_out": "Messages moved or redriven to another queue.",
}
_JOURNAL: Final = {
    "groups": ("commits", "Commits.", 1.0),
    "commit_ms": ("commit_seconds", "Time spent in commits, with the sync.", 0.001),
    "checkpoints": ("checkpoints", "Checkpoints of the write-ahead log.", 1.0),
    "checkpoint_ms": ("checkpoint_seconds", "Time spent in checkpoints.", 0.001),
    "bytes_written": ("written_bytes", "Bytes given to the journal.", 1.0),
    "history_dropped": ("history_dropped", "Attempts and outcomes not written while the disk was full.", 1.0),
}


class BrokerCollector(Collector):
    """``statistics``: the server's, with the journal's figures. ``disk_low``: whether the disk's reserve is all that is left."""

    def __init__(
        self, broker: Broker, meter: Meter, version: str, statistics: Callable[[], dict[str, Any]], disk_low: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._meter = meter
        self._version = version
        self._statistics = statistics
        self._disk_low = disk_low

    def collect(self) -> Iterator[Metric]:
        yield _gauge("homing_build_info", "The version that runs.", 1, version=self._version)
        yield from self._messages()
        yield from self._queues()
        yield from self._open()
        statistics = self._statistics()
        yield from self._memory(statistics)
        for name, (shown, help_text, factor) in _JOURNAL.items():
            family = CounterMetricFamily(f"homing_journal_{shown}", help_text)
            family.add_metric([], statistics["journal"][name] * factor)
            yield family
        yield _gauge("homing_disk_low", "1 while the disk's reserve is all that is left.", int(self._disk_low()))

    def _messages(self) -> Iterator[Metric]:
        messages = self._meter.messages()
        for name, help_text in _COUNTS.items():
            family = CounterMetricFamily(f"homing_messages_{name}", help_text)
            family.add_metric([], messages[name])
            yield family

    def _queues(self) -> Iterator[Metric]:
        queues = list(self._broker.queues().values())
        shown = heapq.nlargest(SHOWN_QUEUES, queues, key=_busyness)
        names = [queue.name for queue in shown]
        rest = set(queues).difference(shown)
        messages = GaugeMetricFamily("homing_queue_messages", "Messages that stand in a queue.", labels=["queue", "state"])
        counts = CounterMetricFamily("homing_queue_events", "What has come of a queue's messages.", labels=["queue", "event"])
        consumers = GaugeMetricFamily("homing_queue_consumers", "Consumers of a queue.", labels=["queue"])
        for name, group in (*zip(names, ([queue] for queue in shown), strict=True), *([(_REST, list(rest))] if rest else [])):
            for state, number in states(group).items():
                messages.add_metric([name, state], number)
            for at, event in enumerate(COUNTED):
                counts.add_metric([name, event], sum(queue.counts[at] for queue in group))
            consumers.add_metric([name], sum(len(queue.consumers) for queue in group))
        yield from (messages, counts, consumers)

    def _open(self) -> Iterator[Metric]:
        for name, number in self._meter.open().items():
            yield _gauge(f"homing_{name}", f"How many {name} there are.", number)

    def _memory(self, statistics: dict[str, Any]) -> Iterator[Metric]:
        family = GaugeMetricFamily("homing_memory_bytes", "What messages take, as the limits count it.", labels=["kind"])
        for kind in ("memory", "durable", "transient"):
            family.add_metric([kind], statistics[f"{kind}_bytes"])
        yield family


def _busyness(queue: Queue) -> tuple[int, int]:
    return queue.count, sum(queue.counts)


def _gauge(name: str, help_text: str, value: float, **labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
