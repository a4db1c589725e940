"""Where references go: to a queue's end, its front, or a time of their own, in memory or on disk only.

A reference that has been changed stands in IN_COMMIT until the batch with its change is on disk; ``enqueue_when_safe`` is the only way back
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from ..core.consumer import Consumer
from ..core.counts import SENT, Histogram
from ..core.message import IN_COMMIT, Message, MessageReference, is_durable, none_is_durable
from ..core.queue import Queue
from ..core.scheduled import Schedule
from ..recording.journal_port import JournalPort
from .going_round import GoingRound
from .ready_set import ReadySet
from .references import References
from .to_disk import ToDisk

LATENESS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000)


class Enqueuing:
    def __init__(
        self,
        journal: JournalPort,
        references: References,
        to_disk: ToDisk,
        schedule: Schedule,
        ready: ReadySet,
        going_round: GoingRound,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._references = references
        self._to_disk = to_disk
        self._room = to_disk.room
        self._schedule = schedule
        self._ready = ready
        self._going_round = going_round
        self._now_ms = now_ms
        #: Of what had a due time: how long after it that was ready to go.
        self.lateness_ms = Histogram(LATENESS_MS)

    # -- in ----------------------------------------------------------------------------------------------------------

    def arrive(self, messages: list[Message], queue: Queue, now_ms: int) -> None:
        """The plain case of sending, a frame at a time: messages that all go to one queue, and at once."""
        room, size = self._room, sum([message.size for message in messages])
        queue.counts[SENT] += len(messages)
        self._ready.mark(queue)
        if room.fits(queue, len(messages), size) or (room.plenty(queue) and none_is_durable(messages, queue)):
            queue.append_all(self._references.arrive(queue, messages, size, now_ms), size)
            return
        for (kept, durable), part in groupby(messages, lambda each: (room.takes(queue, each), is_durable(each, queue))):
            run = list(part)
            if kept:
                size = sum([message.size for message in run])
                queue.append_all(self._references.arrive(queue, run, size, now_ms), size)
            else:
                self._to_disk.arrive(run, queue, durable, now_ms)

    def enqueue(self, references: Iterable[MessageReference], fresh: bool = False) -> None:
        """IN_COMMIT references become pending, or scheduled when their time is still to come. ``fresh``: first arrivals."""
        now_ms, schedule, expiries = 0, self._schedule, self._references.expiries
        look_at_ms = min(schedule.look_at_ms, expiries.look_at_ms)
        ready: dict[Queue, tuple[list[MessageReference], list[MessageReference]]] = {}
        for reference in references:
            if reference.where is not IN_COMMIT:
                continue
            queue = reference.queue
            if reference.expires_at_ms is not None:
                expiries.add(reference)  # again: the sweep passes over what is being delivered
            due_at_ms = reference.due_at_ms
            if due_at_ms is not None:
                # Most have no time of their own, and need no clock.
                now_ms = now_ms or self._now_ms()
                if due_at_ms > now_ms:
                    if not self._to_disk.leave_until(reference, due_at_ms):
                        schedule.add(reference, due_at_ms)
                    continue
                self.lateness_ms.add(now_ms - due_at_ms)
                reference.due_at_ms = None
            new, back = ready.get(queue) or ready.setdefault(queue, ([], []))
            (new if fresh and due_at_ms is None else back).append(reference)
        if min(schedule.look_at_ms, expiries.look_at_ms) < look_at_ms:
            self._ready.wake()
        for queue, (new, back) in ready.items():
            if back:
                queue.put_back(back)
            room = bool(new) and self._room.fits(queue, len(new), sum([reference.message.size for reference in new]))
            # Where nobody is there is nobody that they could be offered to.
            line = queue if queue.consumers else queue.pending
            for reference in new:
                if room or not self._to_disk.leave(reference):
                    line.append(reference)
            self._ready.mark(queue)

    def enqueue_when_safe(self, references: list[MessageReference]) -> None:
        """``enqueue``, once everything recorded so far is on disk."""
        if references:
            self._journal.when_safe(lambda: self.enqueue(references))

    def take_back(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """``enqueue_when_safe`` for what a consumer gave back. The credit of what goes out again at once is free when that stands in its
        place; of what has a time it is free now.
        """
        soon = sum([reference.due_at_ms is None for reference in references])
        if not soon:
            self.enqueue_when_safe(references)
        elif not consumer.returning and not any(each.durable and each not in self._going_round.unwritten for each in references):
            # None of it is to be on disk first.
            self.enqueue(references)
        else:
            consumer.expect_back(soon)
            self._journal.when_safe(lambda: self._put_back(consumer, references, soon))

    def _put_back(self, consumer: Consumer, references: list[MessageReference], soon: int) -> None:
        """Whatever has become of some of them meanwhile: deleted with their queue, they are passed over."""
        queue, shared = consumer.queue, consumer.shared
        consumer.came_back(soon)
        self.enqueue(references)
        if queue.consumers:
            self._ready.mark(queue)
        if shared is not None and shared.limit:
            self._ready.offer_room(shared)

    def arrive_when_safe(self, references: list[MessageReference]) -> None:
        """``arrived``, once everything recorded so far is on disk."""
        self._journal.when_safe(lambda: self.arrived(references))

    def arrived(self, references: list[MessageReference]) -> None:
        """First arrivals, which length limits count since their queue expects them, are on disk: they take their places."""
        for reference in references:
            reference.queue.expect(-1, -reference.message.size)
        self.enqueue(references, fresh=True)
