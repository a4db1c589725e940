"""A turn of the broker: what is ready goes out, and what falls due is done. Nothing here waits.

The loop calls ``drain`` once a turn in which something became dispatchable, and ``tick`` when it is time and at least once a second. Nobody
is asked whether there is something to do: who has something says so where it is looked for here.
"""

from __future__ import annotations

from typing import Final

from ..broker import Broker
from ..core.consumer import Consumer
from ..core.dead_letter import EXPIRED
from ..core.message import Where
from ..long_work import WITHOUT_A_LOOP, Long, LongWork, LoopTurns, OnItsWay
from ..steps import STEP
from .housekeeping import Housekeeping

#: Due or expired references looked at in one turn.
SWEEP_BUDGET: Final = 5000


class BrokerTurn:
    def __init__(self, broker: Broker, housekeeping: Housekeeping, turns: LoopTurns = WITHOUT_A_LOOP) -> None:
        self._broker = broker
        self._housekeeping = housekeeping
        self._long = LongWork(turns, broker.ready.wake, self._kinds_of_long_work())
        #: Messages wait for their turn; some have expired and are there still.
        self._in_line = self._expiring = False

    def _kinds_of_long_work(self) -> dict[str, Long]:
        broker, office, settling, work = self._broker, self._broker.office, self._broker.settling, self._broker.work
        redrives, going_round, call = broker.redrives, broker.going_round, broker.step_times.call
        bounded = OnItsWay(broker.journal, broker.ready.wake).bounded
        return {
            # These two see to it by themselves what is on its way to the disk.
            "fan-out": (lambda: self._in_line, lambda: call("fan-out", broker.throttle.go_on)),
            "redrive": (lambda: redrives.active, lambda: call("redrive", broker.redriving.go_on)),
            "work": bounded((lambda: work.under_way, work.go_on)),
            "settle": bounded((lambda: settling.lines, lambda: call("settle", settling.go_on))),
            "parked": bounded((self._parked_may_go, lambda: call("parked", office.go_on_with_parked))),
            "trim": bounded((lambda: office.untrimmed, lambda: call("trim", office.go_on))),
            "by time": bounded((lambda: self._expiring or going_round.due, lambda: call("by time", self._by_time))),
        }

    def _parked_may_go(self) -> bool:
        broker = self._broker
        return bool(broker.awaited.found) or broker.office.parking.bindings_seen != broker.post_office.bindings_version

    def drain(self) -> int:
        """Dispatches every queue of the ready set, each within its budget. Returns when ``tick`` is wanted: 0 where it is now."""
        broker, flow, now_ms = self._broker, self._broker.flow, self._broker.now_ms()
        self._in_line = broker.throttle.turn()
        if (
            self._in_line
            or broker.work.under_way
            or broker.settling.lines
            or self._parked_may_go()
            or broker.office.untrimmed
            or broker.redrives.active
            or self._expiring
            or broker.going_round.due
        ):
            self._long.wait()
        if broker.pager.held_back:
            broker.pager.look_again()
        if broker.events.waiting:
            broker.event_messages.send()
        if broker.ready.queues and not broker.dispatcher.stopping:
            if broker.journal.ids_reserved:
                broker.dispatcher.ready(now_ms)
            else:
                broker.throttle.wait_for_numbers()
        if flow.charged:
            flow.watch_shares()
        if flow.waiting:
            flow.relieve()
        next_ms = self.next_ms()
        return 0 if next_ms <= now_ms else next_ms

    def next_ms(self) -> int:
        """When ``tick`` is wanted next."""
        broker = self._broker
        soon = min(
            broker.schedule.look_at_ms,
            broker.pulls.look_at_ms,
            broker.resources.idle.look_at_ms,
            broker.redriving.look_at_ms,
            broker.going_round.look_at_ms,
            self._housekeeping.next_ms,
        )
        return soon if self._expiring else min(soon, broker.references.expiries.look_at_ms)

    def tick(self) -> None:
        """What falls due: redeliveries, expirations, pulls, and once a second everything that is only looked at then."""
        broker, now_ms = self._broker, self._broker.now_ms()
        if broker.schedule.look_at_ms <= now_ms:
            broker.enqueuing.enqueue(broker.schedule.take_due(now_ms, SWEEP_BUDGET))
        if broker.references.expiries.look_at_ms <= now_ms and not self._expiring:
            self._expiring = True
            self._long.wait()
        if broker.going_round.look_at_ms <= now_ms:
            broker.going_round.look(now_ms)
            self._long.wait()
        broker.pager.tick(now_ms)
        if broker.redrives.active or broker.redriving.look_at_ms <= now_ms:
            broker.redriving.go_on()
        if broker.pulls.look_at_ms <= now_ms:
            broker.pulls.end(now_ms, self._nothing_for)
        if broker.resources.idle.look_at_ms <= now_ms:
            for queue in broker.deletion.expired():
                broker.removal.end(queue, "expired")
        if now_ms >= self._housekeeping.next_ms:
            self._housekeeping.look(now_ms)

    def _by_time(self) -> None:
        going_round = self._broker.going_round
        if self._expiring:
            self._expire()
        if going_round.due:
            going_round.go_on(self._broker.now_ms())
            if going_round.due:
                self._broker.ready.wake()

    def _expire(self) -> None:
        """A step of what has expired."""
        expiries, now_ms = self._broker.references.expiries, self._broker.now_ms()
        for reference in expiries.take_expired(now_ms, STEP):
            if not reference.expired(now_ms) or reference.where in (Where.IN_COMMIT, Where.GONE):
                continue
            if reference.where is not Where.DELIVERING:
                self._broker.office.dead_letter(reference, EXPIRED)
        self._expiring = expiries.look_at_ms <= now_ms
        if self._expiring:
            self._broker.ready.wake()

    def _nothing_for(self, consumer: Consumer) -> bool:
        """Whether a pull may be answered that there is nothing: what is on disk only, or was given back, may still come."""
        broker, queue = self._broker, consumer.queue
        return not (queue in broker.ready.queues or queue.shut or consumer.returning or broker.pager.may_find(consumer))
