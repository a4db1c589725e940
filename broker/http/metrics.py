"""The broker's figures for Prometheus, collected when they are asked for."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final, cast

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from ..answers.inventory import AllMessages, ProcessStatistics
from ..answers.parts import Properties
from ..broker import Broker
from ..core.counts import COUNTED, Figures, Histogram, none_yet
from ..core.queue import Queue
from ..management.process import in_steps
from ..management.statistics import Meter, states
from ..steps import Steps

#: Queues with figures of their own; those of all others stand together under the name ``""``, which no queue has.
SHOWN_QUEUES: Final = 200
_REST: Final = ""
#: Queues looked at in one step, and such as are shown, with all of their figures.
_A_STEP: Final = 500
_SHOWN_A_STEP: Final = 20

_MESSAGES: Final = {
    "sent": ("sent", "Messages that came from producers."),
    "moved_in": ("moved_in", "Messages that came from other queues: dead-lettered, redriven, moved."),
    "delivered": ("delivered", "Deliveries that ended: acknowledged or failed."),
    "succeeded": ("acknowledged", "Messages that were acknowledged."),
    "failed": ("failed", "Deliveries that failed."),
    "retried": ("redelivered", "Failed messages that are delivered again."),
    "expired": ("expired", "Messages whose time to live ended."),
    "dropped": ("dropped", "Messages removed for want of room or of a dead-letter address."),
    "purged": ("purged", "Messages removed by an operator."),
    "moved_out": ("moved_out", "Messages moved, redriven or edited, and so in another queue."),
    "edited": ("edited", "Messages that others took the place of, by an edit."),
}
#: Of the journal's statistics: name, help, factor.
_COUNTERS: Final = {
    "groups": ("commits", "Commits.", 1.0),
    "commit_ms": ("commit_seconds", "Time spent in commits, with the sync.", 0.001),
    "sync_ms": ("sync_seconds", "Of that, the time that their ends took: what waits for the disk.", 0.001),
    "checkpoints": ("checkpoints", "Checkpoints of the write-ahead log.", 1.0),
    "checkpoint_ms": ("checkpoint_seconds", "Time spent in checkpoints.", 0.001),
    "bytes_written": ("written_bytes", "Bytes given to the journal.", 1.0),
    "history_dropped": ("history_dropped", "Attempts and outcomes not written while the disk was full.", 1.0),
}
_ROWS: Final = {
    "added": "references_added",
    "changed": "references_changed",
    "deleted": "references_deleted",
    "elided": "references_elided",
}
_GAUGES: Final = {
    "wal_bytes": ("journal_wal_bytes", "What of the write-ahead log is in use."),
    "history_bytes": ("journal_history_bytes", "What attempts and outcomes take, which history-max-bytes bounds."),
    "database_bytes": ("journal_database_bytes", "The journal's database, without its write-ahead log."),
    "disk_free_bytes": ("disk_free_bytes", "What is free on the journal's file system."),
}


class BrokerFigures:
    """What is collected, in steps, for there may be very many queues: each as it is when its turn comes.

    ``statistics``: the server's, with the journal's figures. ``disk_low``: whether the disk's reserve is all that is left;
    ``disk_waits_s``: how long it has not answered. ``loop_lag``: in seconds. ``refused``: how many logins were refused;
    ``certificate_ends_s``: seconds since 1970, None where there is none.
    """

    def __init__(
        self,
        broker: Broker,
        meter: Meter,
        version: str,
        *,
        statistics: Callable[[], ProcessStatistics],
        disk_low: Callable[[], bool],
        disk_waits_s: Callable[[], float],
        loop_lag: Histogram,
        refused: Callable[[], int],
        certificate_ends_s: Callable[[], float | None],
    ) -> None:
        self._broker = broker
        self._meter = meter
        self._version = version
        self._statistics = statistics
        self._disk_low = disk_low
        self._disk_waits_s = disk_waits_s
        self._loop_lag = loop_lag
        self._refused = refused
        self._certificate_ends_s = certificate_ends_s

    async def collect(self) -> list[Metric]:
        return await in_steps(self._broker, self._broker.step_times.of("scrape", self._collect()))

    def _collect(self) -> Steps[list[Metric]]:
        queues = yield from self._queues()
        messages = yield from self._meter.messages_in_steps()
        next_ms = yield from self._next_on_disk()
        return list(self._all(queues, messages, next_ms))

    def _all(self, queues: list[Metric], messages: AllMessages, next_ms: int | None) -> Iterator[Metric]:
        yield _gauge("homing_build_info", "The version that runs.", 1, version=self._version)
        statistics, figures = self._statistics(), self._broker.statistics.figures()
        yield from self._messages(messages, figures)
        yield from queues
        yield from self._times(messages, figures, next_ms)
        for name, number in cast(dict[str, int], self._meter.open()).items():
            yield _gauge(f"homing_{name}", f"How many {name} there are.", number)
        yield _gauge("homing_queues_staying", "Queues that were to end and stay for what is parked in them.", figures.queues_staying)
        yield _counter("homing_logins_refused", "Logins that were refused.", self._refused())
        yield _events(figures)
        yield from _memory(statistics)
        yield _gauge("homing_memory_limit_bytes", "At which producers wait.", figures.memory_limit)
        yield _waiting(figures)
        yield from _journal(statistics["journal"])
        yield _gauge("homing_disk_low", "1 while the disk's reserve is all that is left.", int(self._disk_low()))
        yield _gauge("homing_disk_waits_seconds", "How long the disk has not answered what it was asked.", self._disk_waits_s())
        if (ends_s := self._certificate_ends_s()) is not None:
            yield _gauge("homing_certificate_end_timestamp_seconds", "When the certificate of TLS ends.", ends_s)

    def _messages(self, messages: AllMessages, figures: Figures) -> Iterator[Metric]:
        for name, (shown, help_text) in _MESSAGES.items():
            yield _counter(f"homing_messages_{shown}", help_text, cast(dict[str, int], messages)[name])
        family = CounterMetricFamily("homing_messages_dead_lettered", "Messages that were dead-lettered.", labels=["reason"])
        for reason, number in figures.dead_lettered.items():
            family.add_metric([reason], number)
        yield family

    def _queues(self) -> Steps[list[Metric]]:
        """``dead``: dead letters, in whatever state; ``ready``: what else is."""
        queues = list(self._broker.post_office.queues.values())
        shown = yield from _busiest(queues)
        rest, held_since = list(set(queues).difference(shown)), self._held_since()
        messages = GaugeMetricFamily("homing_queue_messages", "Messages that stand in a queue.", labels=["queue", "state"])
        counts = CounterMetricFamily("homing_queue_events", "What has come of a queue's messages.", labels=["queue", "event"])
        consumers = GaugeMetricFamily("homing_queue_consumers", "Consumers of a queue.", labels=["queue"])
        ready = GaugeMetricFamily("homing_queue_oldest_ready_seconds", "Since when the first that is ready is there.", labels=["queue"])
        held = GaugeMetricFamily("homing_queue_oldest_held_seconds", "Since when a consumer has what it holds.", labels=["queue"])

        def add(name: str, group: _Group) -> None:
            now_ms = self._broker.now_ms()
            for state, number in group.states.items():
                messages.add_metric([name, state], number)
            for event, number in zip(COUNTED, group.counts, strict=True):
                counts.add_metric([name, event], number)
            consumers.add_metric([name], group.consumers)
            _add_age(ready, name, now_ms, group.ready_ms)
            _add_age(held, name, now_ms, group.held_ms)

        for number, queue in enumerate(shown, 1):
            add(queue.name, _Group().with_all([queue], held_since))
            if number % _SHOWN_A_STEP == 0:
                yield
        together = _Group()
        for start in range(0, len(rest), _A_STEP):
            together.with_all(rest[start : start + _A_STEP], held_since)
            yield
        if rest:
            add(_REST, together)
        info = GaugeMetricFamily("homing_queue_info", "Whose a queue is, where its settings say so.", labels=["queue", "owner", "runbook"])
        for queue in shown:
            if queue.settings.whose:
                info.add_metric([queue.name, queue.settings.owner or "", queue.settings.runbook or ""], 1)
        return [messages, counts, consumers, ready, held, info]

    def _held_since(self) -> dict[Queue, int]:
        """When the oldest delivery that is not settled was made, of queues that have one."""
        since: dict[Queue, int] = {}
        for connection in self._broker.connections.all.values():
            for consumer in (*connection.consumers.values(), *connection.retired.values()):
                for first in consumer.unsettled.values():
                    since[consumer.queue] = min(first.dispatched_at_ms, since.get(consumer.queue, first.dispatched_at_ms))
                    break
        return since

    def _next_on_disk(self) -> Steps[int | None]:
        """When the first message is due of those that are only on disk."""
        queues, times = list(self._broker.post_office.queues.values()), list[int]()
        for start in range(0, len(queues), _A_STEP):
            waiting = [queue for queue in queues[start : start + _A_STEP] if queue.due_on_disk > queue.on_hold_on_disk]
            times += [queue.first_due_ms for queue in waiting if queue.first_due_ms is not None]
            yield
        return min(times, default=None)

    def _times(self, messages: AllMessages, figures: Figures, on_disk_ms: int | None) -> Iterator[Metric]:
        attempts = figures.attempts
        # Those that succeeded at once are counted anyway.
        first_tries = messages["succeeded"] - sum(attempts.numbers)
        yield histogram("homing_attempts_to_success", "Attempts of messages that succeeded.", attempts, at_once=first_tries)
        late = "How long after its due time a message was ready to go."
        yield histogram("homing_due_lateness_seconds", late, figures.lateness_ms, factor=0.001)
        yield histogram("homing_loop_lag_seconds", "How late the loop came to what was to be done at a time.", self._loop_lag)
        yield self._steps()
        if (next_ms := min((at for at in (figures.next_due_ms, on_disk_ms) if at is not None), default=None)) is not None:
            yield _gauge(
                "homing_next_due_seconds", "Until when the next scheduled message waits.", (next_ms - self._broker.now_ms()) / 1000
            )

    def _steps(self) -> Metric:
        family = HistogramMetricFamily(
            "homing_step_seconds", "Processor time of what one turn does of a request, by kind.", labels=["kind"]
        )
        for kind, times in self._broker.step_times.by_kind.items():
            _add_histogram(family, [kind], times)
        return family


def _events(figures: Figures) -> Metric:
    family = CounterMetricFamily("homing_events", "Events, and what became of them.", labels=["event", "outcome"])
    for event, outcomes in figures.events.items():
        for outcome, number in outcomes.items():
            family.add_metric([event, outcome], number)
    return family


def _waiting(figures: Figures) -> Metric:
    """A limit that is reached has a sample; whoever wants an alert wants it while there is one."""
    family = GaugeMetricFamily("homing_producers_wait", "Producers that wait, by the limit that is reached.", labels=["limit"])
    for each in figures.held_back:
        family.add_metric([each.limit], each.producers)
    return family


def _memory(statistics: ProcessStatistics) -> Iterator[Metric]:
    family = GaugeMetricFamily("homing_memory_bytes", "What is in memory, by the kind of its owner.", labels=["owner"])
    for owner, size in statistics["memory"].items():
        family.add_metric([owner], size)
    yield family
    messages = GaugeMetricFamily("homing_messages_bytes", "What messages in memory take.", labels=["kind"])
    for kind, size in (("durable", statistics["durable_bytes"]), ("transient", statistics["transient_bytes"])):
        messages.add_metric([kind], size)
    yield messages


def _journal(statistics: Properties) -> Iterator[Metric]:
    for name, (shown, help_text, factor) in _COUNTERS.items():
        yield _counter(f"homing_journal_{shown}", help_text, statistics[name] * factor)
    rows = CounterMetricFamily("homing_journal_rows", "Messages' rows in commits; elided: consumed before.", labels=["change"])
    for change, name in _ROWS.items():
        rows.add_metric([change], statistics[name])
    yield rows
    for name, (shown, help_text) in _GAUGES.items():
        yield _gauge(f"homing_{shown}", help_text, statistics[name])


class _Group:
    """Queues whose figures stand together."""

    def __init__(self) -> None:
        self.states = Counter[str]()
        self.counts = none_yet()
        self.consumers = 0
        self.ready_ms: list[int] = []
        self.held_ms: list[int] = []

    def with_all(self, queues: list[Queue], held_since: dict[Queue, int]) -> _Group:
        found = {name: number for name, number in states(queues).items() if name != "pending"}
        found["dead"] = sum([queue.dead for queue in queues])
        found["ready"] = sum([max(0, queue.ready - queue.dead) for queue in queues])
        self.states.update(found)
        self.counts = [sum(numbers) for numbers in zip(self.counts, *[queue.counts for queue in queues], strict=True)]
        self.consumers += sum([len(queue.consumers) for queue in queues])
        self.ready_ms += [first.entered_at_ms for queue in queues if (first := queue.pending.oldest()) is not None]
        self.held_ms += [held_since[queue] for queue in queues if queue in held_since]
        return self


def _busiest(queues: list[Queue]) -> Steps[list[Queue]]:
    """As many as are shown. What has happened counts first: it only grows, so that queues seldom take turns in being shown."""
    found: list[tuple[int, int, int, Queue]] = []
    for start in range(0, len(queues), _A_STEP):
        part = [(sum(queue.counts), queue.count, -number, queue) for number, queue in enumerate(queues[start : start + _A_STEP], start)]
        found = heapq.nlargest(SHOWN_QUEUES, found + part)
        yield
    return [queue for *_, queue in found]


def _add_age(family: GaugeMetricFamily, name: str, now_ms: int, since_ms: Iterable[int]) -> None:
    if (first_ms := min(since_ms, default=None)) is not None:
        family.add_metric([name], (now_ms - first_ms) / 1000)


def _gauge(name: str, help_text: str, value: float, **labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, help_text: str, value: float) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text)
    family.add_metric([], value)
    return family


def histogram(name: str, help_text: str, values: Histogram, *, factor: float = 1.0, at_once: int = 0) -> HistogramMetricFamily:
    """``at_once``: values of 1 besides."""
    family = HistogramMetricFamily(name, help_text)
    _add_histogram(family, [], values, factor, at_once)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: list[str], values: Histogram, factor: float = 1.0, at_once: int = 0) -> None:
    bounds = [*(str(bound * factor) for bound in values.bounds), "+Inf"]
    up_to = [at_once + number for number in accumulate(values.numbers)]
    family.add_metric(labels, list(zip(bounds, up_to, strict=True)), values.total * factor + at_once)
