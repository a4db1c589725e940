"""Counts and rates: of each queue since it was made or the broker started, and of all together, deleted queues included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

from ..answers.inventory import AllMessages, Counted, Open, States
from ..answers.parts import Waiting
from ..broker import Broker
from ..core.counts import COUNTED, Figures, named, none_yet
from ..core.queue import Queue
from ..steps import Steps

#: Each queue is looked at so often; rates are of what came since the last look but one.
SAMPLE_MS: Final = 5_000
#: Queues looked at in one turn.
_AT_A_TIME: Final = 1_000
_LEAST_MS: Final = 1_000
#: Queues counted in one step.
_A_STEP: Final = 500

#: Limits of the whole broker, which hold everybody back.
WHOLE: Final = ("memory-limit", "store-limit", "temp-limit", "log-limit", "disk-low")

Counts = tuple[int, ...]
_NOTHING: Final[Counts] = tuple(none_yet())


class _Looks(NamedTuple):
    """The last but one, and the last."""

    before_ms: int
    before: Counts
    at_ms: int
    counts: Counts


class Meter:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.since_ms = broker.now_ms()
        self._looks: dict[Queue, _Looks] = {}
        #: Of all queues as they were last looked at, and those that are gone.
        self._total = none_yet()
        #: Of this round.
        self._still_to_look_at: list[Queue] = []
        self._totals = _Looks(self.since_ms, _NOTHING, self.since_ms, _NOTHING)
        broker.resources.queue_gone.append(self._keep)

    def _keep(self, queue: Queue) -> None:
        _add(self._total, queue.counts, self._seen(queue))
        self._looks.pop(queue, None)

    def _seen(self, queue: Queue) -> Counts:
        looks = self._looks.get(queue)
        return looks.counts if looks is not None else _NOTHING

    def sample(self) -> None:
        """Called about every second."""
        now_ms = self._broker.now_ms()
        if not self._still_to_look_at:
            if now_ms - self._totals.at_ms < SAMPLE_MS:
                return
            self._totals = _Looks(self._totals.at_ms, self._totals.counts, now_ms, tuple(self._total_now()))
            self._still_to_look_at = list(self._broker.post_office.queues.values())
        queues, self._still_to_look_at = self._still_to_look_at[:_AT_A_TIME], self._still_to_look_at[_AT_A_TIME:]
        there = self._broker.post_office.queues
        for queue in queues:
            if there.get(queue.name) is queue:
                self._look(queue, now_ms)

    def _look(self, queue: Queue, now_ms: int) -> None:
        looks = self._looks.get(queue) or _Looks(queue.created_at_ms, _NOTHING, max(queue.created_at_ms, self.since_ms), _NOTHING)
        counts = tuple(queue.counts)
        if counts != looks.counts:
            _add(self._total, counts, looks.counts)
        self._looks[queue] = _Looks(looks.at_ms, looks.counts, now_ms, counts)

    def _total_now(self) -> list[int]:
        total = list(self._total)
        for queue in self._broker.post_office.queues.values():
            seen, counts = self._seen(queue), tuple(queue.counts)
            if counts != seen:
                _add(total, counts, seen)
        return total

    def of(self, queue: Queue) -> Counted:
        """What became of messages, and how many a second of late."""
        looks = self._looks.get(queue)
        since_ms, before = (looks.before_ms, looks.before) if looks else (max(queue.created_at_ms, self.since_ms), _NOTHING)
        return cast(Counted, {**named(queue.counts), "rates": self._per_second(queue.counts, before, since_ms)})

    def _per_second(self, counts: Sequence[int], before: Sequence[int], since_ms: int) -> dict[str, float]:
        seconds = max(_LEAST_MS, self._broker.now_ms() - since_ms) / 1000
        return {name: round((now - then) / seconds, 1) for name, now, then in zip(COUNTED, counts, before, strict=True)}

    def messages_in_steps(self) -> Steps[AllMessages]:
        """Of all queues, as they are when their turn comes: what stands in them, and what became of messages ``since_ms``, with rates."""
        total, looks, queues = list(self._total), dict(self._looks), list(self._broker.post_office.queues.values())
        found = Counter({**states(()), "dead": 0})
        for start in range(0, len(queues), _A_STEP):
            part = queues[start : start + _A_STEP]
            found.update(states(part), dead=sum([queue.dead for queue in part]))
            for queue in part:
                seen = looks[queue].counts if queue in looks else _NOTHING
                if tuple(queue.counts) != seen:
                    _add(total, queue.counts, seen)
            yield
        rates = self._per_second(total, self._totals.before, self._totals.before_ms)
        return cast(AllMessages, {**found, "since_ms": self.since_ms, **named(total), "rates": rates})

    def open(self) -> Open:
        """How many queues there are, and who is connected to them."""
        connections = self._broker.connections.all.values()
        return {
            "queues": len(self._broker.post_office.queues),
            "connections": len(connections),
            "producers": sum(len(each.producers) for each in connections),
            "consumers": sum(len(each.consumers) for each in connections),
        }


def states(queues: Iterable[Queue]) -> States:
    """How many messages stand in these now, by state."""
    pending = delivering = scheduled = on_hold = parked = 0
    for queue in queues:
        pending += queue.ready
        delivering += queue.delivering + queue.committing
        scheduled += queue.waiting - queue.held_back
        on_hold += queue.held_back
        parked += len(queue.parked)
    return {"pending": pending, "delivering": delivering, "scheduled": scheduled, "on_hold": on_hold, "parked": parked}


def waiting(figures: Figures) -> list[Waiting]:
    """The limits that hold producers back now, or would: how many wait, and since when there have been any."""
    return [{"limit": each.limit, "why": each.why, "producers": each.producers, "since_ms": each.since_ms} for each in figures.held_back]


def _add(total: list[int], counts: Sequence[int], less: Sequence[int]) -> None:
    for at, (now, then) in enumerate(zip(counts, less, strict=True)):
        total[at] += now - then
