"""What of a queue goes to disk only: arrivals beyond its window, and what is due later than soon. How it comes back: from_disk.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from homing.journal.contract import MessageRecord, ReferenceRecord

from ..core.message import IN_COMMIT, Message, MessageReference, is_durable
from ..core.queue import Queue
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from .page_reads import PageReads
from .references import References, expires_at, kinds
from .room import Room

#: What is due within this time is in memory; half of it before it runs out, the next of it is read.
AHEAD_MS: Final = 3_000
#: Behind every sequence.
LAST: Final = (1 << 63) - 1


class ToDisk:
    def __init__(
        self, journal: JournalPort, recorder: Recorder, references: References, room: Room, reads: PageReads, now_ms: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._references = references
        self.room = room
        self._reads = reads
        self._now_ms = now_ms
        #: Queues with something on disk that has a time, due or expiring.
        self.timed: dict[Queue, None] = {}
        #: The broker stops: what is on disk stays there, and what is in memory alone stays so (process/keeping.py).
        self.stopped = False

    def arrive(self, messages: list[Message], queue: Queue, durable: bool, now_ms: int) -> None:
        """There is no room in memory for these, which all are durable, or none is."""
        first = self._journal.next_ids(len(messages))
        queue.sends |= kinds(sum([message.durable for message in messages]), len(messages))
        for number, message in enumerate(messages, first):
            message.message_id = number
            message.kept = message.kept or durable
        self.join(queue, messages, first, now_ms)

    def join(
        self, queue: Queue, messages: list[Message], first: int, now_ms: int, shared: Sequence[MessageRecord | None] | None = None
    ) -> None:
        """As ``arrive``, of messages that are numbered: they are in the open batch, and nowhere else. ``shared``: see
        Recorder.arrived_on_disk."""
        settings, durable = queue.settings, is_durable(messages[0], queue)
        expiries: list[int | None] = []
        for sequence, message in enumerate(messages, first):
            expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
            expiries.append(expires_at_ms)
            if durable:
                self._references.count_on_disk(1, message.size)
            else:
                self._references.count_spilled(queue, 1, message.size)
            queue.pending.left_on_disk(queue.priority_of(message.priority), sequence, message.size)
            self.expires(queue, expires_at_ms)
        self._recorder.arrived_on_disk(queue, messages, first, expiries, now_ms, shared)

    def let_go(self, queue: Queue, references: list[MessageReference]) -> None:
        """Pending references that are on disk are only there from here on: those of a page that is about to move, before the cursor."""
        for reference in references:
            queue.withdraw(reference, IN_COMMIT)
            queue.pending.found_on_disk(reference.priority, 1, reference.message.size, reference.sequence)
        self._references.leave_memory(queue, references)

    def moved(self, queue: Queue, left: list[ReferenceRecord], target: Queue, came: list[ReferenceRecord], sizes: list[int]) -> None:
        """Messages of these sizes that were only on disk, without a time, are so in another queue: in the open batch and nowhere else."""
        alike: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for old, new, size in zip(left, came, sizes, strict=True):
            alike.setdefault((old.priority, new.priority), []).append((new.sequence, size))
        for (before, priority), moved in alike.items():
            together = sum([size for _, size in moved])
            queue.pending.come_from_disk(before, len(moved), together)
            target.pending.left_on_disk(priority, moved[0][0], together)
            if len(moved) > 1:
                target.pending.found_on_disk(priority, len(moved) - 1, 0, moved[-1][0])

    def leave(self, reference: MessageReference) -> bool:
        """A fresh reference that is about to be ready, and recorded if it is durable, is forgotten if it has no place in memory; whether it
        was."""
        queue, priority, pending = reference.queue, reference.priority, reference.queue.pending
        if self.room.keeps(queue, priority) or reference.sequence <= pending.cursor[priority]:
            return False
        if reference.durable:
            self._references.leave_memory(queue, (reference,))
        # What is not on disk yet must be read after all that is.
        elif self.room.plenty(queue, priority) or reference.sequence <= pending.newest[priority] or not self._spill(reference):
            return False
        else:
            self._reads.comes_late(queue, priority, reference.sequence)
        queue.pending.left_on_disk(priority, reference.sequence, reference.message.size)
        self.expires(queue, reference.expires_at_ms)
        return True

    def leave_until(self, reference: MessageReference, due_at_ms: int) -> bool:
        """A reference that waits for its time, which is on disk if it is durable, is forgotten if it has no place in memory; whether it
        was."""
        queue = reference.queue
        if reference.suspect or not (reference.durable or self._may_wait_on_disk(reference, due_at_ms)):
            return False
        if not queue.due_on_disk:
            if queue.scheduled < int(self.room.windows.scheduled * self.room.quota.part()):
                return False
            queue.due_horizon = (self._now_ms() + AHEAD_MS, LAST)
        if (due_at_ms, reference.sequence) <= queue.due_horizon:
            return False
        if reference.durable:
            self._references.leave_memory(queue, (reference,))
        elif not self._spill(reference):
            return False
        queue.due_on_disk += 1
        queue.on_hold_on_disk += reference.on_hold
        queue.first_due_ms = min(due_at_ms, queue.first_due_ms or due_at_ms)
        self.timed[queue] = None
        self.expires(queue, reference.expires_at_ms)
        return True

    def _may_wait_on_disk(self, reference: MessageReference, due_at_ms: int) -> bool:
        """Whether one that is not durable waits there: memory is short, and it is on disk long before it is read again (``_look_due``)."""
        return self.room.quota.part() < 1.0 and due_at_ms > self._now_ms() + AHEAD_MS

    def _spill(self, reference: MessageReference) -> bool:
        """Puts one that is not durable on disk; what is in trouble is kept, where it may be. Whether it was put there."""
        queue = reference.queue
        if self.stopped:
            return False
        if reference.hops is None and not (reference.failed or reference.delivery_count or reference.cause or reference.redrive):
            self._references.spill(reference)
        elif queue.durable:
            self._references.keep((reference,))
            self._references.leave_memory(queue, (reference,))
        else:
            return False
        return True

    def when_there(self, queue: Queue, callback: Callable[[], None]) -> None:
        """Calls back once pages show all of the queue that was put on disk so far: at once, where it is there already."""
        if queue in self._references.spilled:
            self._journal.when_safe(callback)
        else:
            callback()

    def expires(self, queue: Queue, at_ms: int | None) -> None:
        if at_ms is not None:
            queue.expiry_on_disk_ms = min(at_ms, queue.expiry_on_disk_ms or at_ms)
            self.timed[queue] = None
