"""From the queues to the sessions: what one look at a queue decides is handed over, dead-lettered, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..core.consumer import Consumer
from ..core.dead_letter import EXPIRED
from ..core.message import MessageReference
from ..core.queue import Dispatch, Queue
from ..entries.awaited_room import AwaitedRoom
from ..entries.pager import Pager
from ..entries.ready_set import ReadySet
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from .dead_lettering import DeadLetterOffice

#: Messages that all queues together hand out in one turn of the loop, about: what one begins with is not more than this.
DISPATCH_BUDGET: Final = 2000
#: What selectors may cost in one turn, over all queues: see Selector.cost.
SELECTOR_BUDGET: Final = 10_000


class Dispatcher:
    def __init__(
        self,
        journal: JournalPort,
        recorder: Recorder,
        ready: ReadySet,
        awaited: AwaitedRoom,
        pager: Pager,
        office: DeadLetterOffice,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._ready = ready
        self._awaited = awaited
        self._now_ms = now_ms
        self._pager = pager
        self._office = office
        #: Nothing is handed out any more.
        self.stopping = False

    def ready(self, now_ms: int) -> None:
        """Every queue of the ready set, as long as the turn's budget lasts."""
        queues, cost, left = list(self._ready.queues), 0, DISPATCH_BUDGET
        again: list[Queue] = []
        self._ready.queues.clear()
        for queue in queues:
            if cost >= SELECTOR_BUDGET or left <= 0:
                self._ready.mark(queue)
                continue
            result = self._dispatch(queue, now_ms)
            cost += result.cost
            left -= len(result.expired)
            for _, references in result.deliveries:
                left -= len(references)
            if result.more:
                again.append(queue)
        for queue in again:  # behind those that had no turn
            self._ready.mark(queue)

    def serve(self, queue: Queue) -> None:
        """What is here goes to the consumers that wait for it now, so that who looks into the queue next finds what they leave."""
        now_ms, cost = self._now_ms(), 0
        while not self.stopping and queue in self._ready.queues and cost < SELECTOR_BUDGET:
            del self._ready.queues[queue]
            result = self._dispatch(queue, now_ms)
            cost += result.cost
            if result.more:
                self._ready.mark(queue)

    def room_made(self, queue: Queue) -> None:
        """Something has left the queue for a consumer: who waits for its room may go on."""
        if self._awaited.waiting:
            self._awaited.made(queue)

    def _dispatch(self, queue: Queue, now_ms: int) -> Dispatch:
        """Once, within the budget of a turn."""
        result = queue.dispatch(now_ms, DISPATCH_BUDGET)
        for consumer, references in result.deliveries:
            if queue.settings.persist_delivery_count_before_delivery:
                self._deliver_when_counted(consumer, references)
            else:
                consumer.sink.deliver(consumer, references)
        if result.expired:
            self._office.dead_letter_all(queue, result.expired, EXPIRED, now_ms)
        if self._awaited.waiting:
            self._awaited.made(queue)
        if queue.pending.disk_count or queue.pending.overdue:
            self._pager.look(queue)
        return result

    def _deliver_when_counted(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """persist-delivery-count-before-delivery: the count is on disk one batch before the frame leaves."""
        tags = [reference.tag for reference in references]
        for reference in references:
            reference.delivery_count += 1
            reference.counted = True
        self._recorder.changed(references)

        def deliver() -> None:
            held = [r for r, tag in zip(references, tags, strict=True) if r.consumer is consumer and r.tag == tag]
            if held:
                consumer.sink.deliver(consumer, held)

        self._journal.when_safe(deliver)
