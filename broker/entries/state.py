"""Where references go: into memory or to disk only, to a queue's end, its front, or a time of their own.

A reference that has been changed stands in IN_COMMIT until the batch with its change is on disk; ``place_when_safe`` is the only way back
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from random import Random
from typing import Final

from homing.journal.contract import MessageRecord

from ..core.consumer import Consumer
from ..core.counts import SENT, Histogram
from ..core.memory import Memory
from ..core.message import IN_COMMIT, Message, MessageReference, is_durable, none_is_durable
from ..core.queue import Queue
from ..core.settings.address_settings import AddressSettingsRepository
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from .disk_room import DiskRoom
from .pager import Pager
from .references import expires_at, kinds
from .room import Windows
from .shared_state import SharedState

LATENESS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000)


class BrokerState(SharedState):
    def __init__(
        self,
        journal: JournalPort,
        recorder: Recorder,
        settings: AddressSettingsRepository,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        max_hops: int,
        windows: Windows,
        memory: Memory,
        disk: DiskRoom,
        name: str,
    ) -> None:
        """``name``: of the broker."""
        super().__init__(journal, recorder, settings, now_ms, rng, wake, max_hops, memory, disk, name)
        #: Of what had a due time: how long after it that was ready to go.
        self.lateness_ms = Histogram(LATENESS_MS)
        self.pager = Pager(self, journal, windows, self.place)
        self.to_disk = self.pager.to_disk

    # -- in ----------------------------------------------------------------------------------------------------------

    def arrive(self, messages: list[Message], queue: Queue, now_ms: int) -> None:
        """The plain case of sending, a frame at a time: messages that all go to one queue, and at once."""
        pager, size = self.pager, sum([message.size for message in messages])
        queue.counts[SENT] += len(messages)
        self.mark_ready(queue)
        if pager.room(queue, len(messages), size) or (pager.plenty(queue) and none_is_durable(messages, queue)):
            queue.append_all(self.references.arrive(queue, messages, size, now_ms), size)
            return
        for (kept, durable), part in groupby(messages, lambda each: (pager.takes(queue, each), is_durable(each, queue))):
            run = list(part)
            if kept:
                size = sum([message.size for message in run])
                queue.append_all(self.references.arrive(queue, run, size, now_ms), size)
            else:
                self._arrive_on_disk(run, queue, durable, now_ms)

    def _arrive_on_disk(self, messages: list[Message], queue: Queue, durable: bool, now_ms: int) -> None:
        first = self.journal.next_ids(len(messages))
        queue.sends |= kinds(sum([message.durable for message in messages]), len(messages))
        for number, message in enumerate(messages, first):
            message.message_id = number
            message.kept = message.kept or durable
        self.join_on_disk(queue, messages, first, now_ms)

    def join_on_disk(
        self, queue: Queue, messages: list[Message], first: int, now_ms: int, shared: Sequence[MessageRecord | None] | None = None
    ) -> None:
        """There is no room in memory: they are in the open batch, and nowhere else. ``shared``: see Recorder.arrived_on_disk. All of them
        are durable, or none is."""
        settings, arrived, durable = queue.settings, self.to_disk.arrived, is_durable(messages[0], queue)
        expiries: list[int | None] = []
        for sequence, message in enumerate(messages, first):
            expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
            expiries.append(expires_at_ms)
            arrived(queue, queue.priority_of(message.priority), sequence, message.size, expires_at_ms, durable)
        self.recorder.arrived_on_disk(queue, messages, first, expiries, now_ms, shared)

    def place(self, references: Iterable[MessageReference], fresh: bool = False) -> None:
        """IN_COMMIT references become pending, or scheduled when their time is still to come. ``fresh``: first arrivals."""
        now_ms, schedule, expiries = 0, self.schedule, self.references.expiries
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
                now_ms = now_ms or self.now_ms()
                if due_at_ms > now_ms:
                    if not self.to_disk.leave_until(reference, due_at_ms):
                        schedule.add(reference, due_at_ms)
                    continue
                self.lateness_ms.add(now_ms - due_at_ms)
                reference.due_at_ms = None
            new, back = ready.get(queue) or ready.setdefault(queue, ([], []))
            (new if fresh and due_at_ms is None else back).append(reference)
        if min(schedule.look_at_ms, expiries.look_at_ms) < look_at_ms:
            self.wake()
        for queue, (new, back) in ready.items():
            if back:
                queue.put_back(back)
            room = bool(new) and self.pager.room(queue, len(new), sum([reference.message.size for reference in new]))
            # Where nobody is there is nobody that they could be offered to.
            line = queue if queue.consumers else queue.pending
            for reference in new:
                if room or not self.to_disk.leave(reference):
                    line.append(reference)
            self.mark_ready(queue)

    def place_when_safe(self, references: list[MessageReference]) -> None:
        """``place``, once everything recorded so far is on disk."""
        if references:
            self.journal.when_safe(lambda: self.place(references))

    def take_back(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """``place_when_safe`` for what a consumer gave back. The credit of what goes out again at once is free when that stands in its
        place; of what has a time it is free now.
        """
        soon = sum([reference.due_at_ms is None for reference in references])
        if not soon:
            self.place_when_safe(references)
        elif not consumer.returning and not any(each.durable and each not in self.going_round.unwritten for each in references):
            # None of it is to be on disk first.
            self.place(references)
        else:
            consumer.expect_back(soon)
            self.journal.when_safe(lambda: self._put_back(consumer, references, soon))

    def _put_back(self, consumer: Consumer, references: list[MessageReference], soon: int) -> None:
        """Whatever has become of some of them meanwhile: deleted with their queue, they are passed over."""
        queue, shared = consumer.queue, consumer.shared
        consumer.came_back(soon)
        self.place(references)
        if queue.consumers:
            self.mark_ready(queue)
        if shared is not None and shared.limit:
            self.offer_room(shared)

    def arrive_when_safe(self, references: list[MessageReference]) -> None:
        """``arrived``, once everything recorded so far is on disk."""
        self.journal.when_safe(lambda: self.arrived(references))

    def arrived(self, references: list[MessageReference]) -> None:
        """First arrivals, which length limits count since their queue expects them, are on disk: they take their places."""
        for reference in references:
            reference.queue.expect(-1, -reference.message.size)
        self.place(references, fresh=True)
