"""From one queue to another by hand: dead letters that are sent back, messages that are moved, copies that take the place of others.

All of them ask one question of the queue that they go to, how much room it has (``RoomLeft``): nothing is pushed out for them, and a queue
that would drop its oldest takes no more than fits. And here stands what a message keeps on its way (``Kept``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from homing.journal.contract import Outcome, QueueStat, ReferenceRecord

from ..core.amqp.x_death import without_way
from ..core.counts import EDITED
from ..core.message import IN_COMMIT, ON_HOLD_MS, PARKED, PENDING, Message, MessageReference
from ..core.queue import Queue
from ..entries.disk_moves import DiskMoves, deliveries_at
from ..entries.enqueuing import Enqueuing
from ..entries.fault_groups import FaultGroups, goes_back
from ..entries.from_disk import FromDisk
from ..entries.redrive_tally import RedriveTally
from ..entries.references import Moved, References, sooner
from ..errors import Refused
from ..recording.mapping import message_key
from ..recording.recorder import Recorder
from ..topology.resources import makes_room

_UNBOUNDED: Final = 1 << 62
#: What to do where there is no room.
MAKE_ROOM: Final = "make room in it, or raise its max-length or max-length-bytes"


class RoomLeft:
    """How much more a queue takes from a hand, whatever says so: its declaration, policy or settings; what is taken in counts at once.

    A queue that refuses takes messages until it is at its length or beyond its bytes, as it takes a send; one that drops only what fits.
    """

    __slots__ = ("_drops", "_most_bytes", "_most_messages", "bytes", "limited", "messages", "queue")

    def __init__(self, queue: Queue) -> None:
        settings = queue.settings
        self.queue, self.limited, self._drops = queue, settings.limited, False
        self.messages = self.bytes = self._most_messages = self._most_bytes = _UNBOUNDED
        if self.limited:
            self._drops = makes_room(queue)
            self._most_messages = _UNBOUNDED if settings.max_length is None else settings.max_length
            self._most_bytes = _UNBOUNDED if settings.max_length_bytes is None else settings.max_length_bytes
            self.messages = self._most_messages - queue.ready - queue.arriving
            self.bytes = self._most_bytes - queue.ready_bytes - queue.arriving_bytes

    def fits(self, size: int) -> bool:
        """Whether one of this size is taken."""
        return self.messages >= 1 and self.bytes >= (size if self._drops else 1)

    def most(self, number: int, size: int) -> int:
        """How many are taken of so many that are of about this size."""
        size = max(1, size)
        return max(0, min(number, self.messages, (self.bytes if self._drops else self.bytes + size - 1) // size))

    def take(self, size: int) -> bool:
        """Takes one of this size in, if it fits."""
        if not self.fits(size):
            return False
        self.messages -= 1
        self.bytes -= size
        return True

    def leave(self, reference: MessageReference) -> None:
        """One goes out of it, if it counts there."""
        if reference.queue is self.queue and reference.where is PENDING:
            self.messages += 1
            self.bytes += reference.message.size

    def may_come(self, size: int) -> bool:
        """Whether one of this size fits in time: somebody consumes, and it fits into the empty queue."""
        queue = self.queue
        ever = self._most_messages >= 1 and self._most_bytes >= (size if self._drops else 1)
        return ever and bool(queue.consumers) and not queue.paused

    def full(self, sent: int = 0) -> Refused:
        """What who finds no room is told, after so many others."""
        what = "has no room left: it would drop its oldest" if self._drops else "is full"
        return Refused("queue-full", f"{f'after {sent} messages: ' if sent else ''}queue {self.queue.name} {what}", MAKE_ROOM)


class Kept(NamedTuple):
    """What a message takes along on its way by hand beside its body, properties, priority and key: its due time or that it is on hold, and
    when it expires. Counts of failures begin at 0, and the delay of the last failure goes with them. A death has cleared the expiration, as
    in AMQP; what never died keeps its own, and where the queue has a time to live of its own, that begins anew: the shorter one holds.
    """

    due_at_ms: int | None
    expires_at_ms: int | None

    @classmethod
    def of(cls, reference: MessageReference, target: Queue) -> Kept:
        cleared = target.settings.no_expiry or would_go_back(reference)
        return cls(due_by_hand(reference.failed, reference.due_at_ms), None if cleared else reference.expires_at_ms)


def would_go_back(reference: MessageReference) -> bool:
    """Whether a redrive without a target takes it."""
    return goes_back(reference.cause, reference.hops, reference.where is PARKED)


def due_by_hand(failed: int, due_at_ms: int | None) -> int | None:
    """The due time that one keeps: none that its last failure gave it."""
    return None if failed and due_at_ms != ON_HOLD_MS else due_at_ms


class Transfer:
    def __init__(
        self,
        recorder: Recorder,
        references: References,
        from_disk: FromDisk,
        disk_moves: DiskMoves,
        enqueuing: Enqueuing,
        faults: FaultGroups,
        redrives: RedriveTally,
        now_ms: Callable[[], int],
    ) -> None:
        self._recorder = recorder
        self._references = references
        self._from_disk = from_disk
        self._disk_moves = disk_moves
        self._enqueuing = enqueuing
        self._faults = faults
        self._redrives = redrives
        self._now_ms = now_ms

    def send_back(self, queue: Queue, records: list[ReferenceRecord], target: Queue, job_id: int, now_ms: int) -> tuple[int, bool]:
        """Sends many of one queue back to one that has room for them, for a redrive job; returns how many went, all but those that somebody
        holds, and whether from disk to disk. What nobody needs in memory does not come there."""
        if self._disk_moves.may_take(queue, records, target):
            self._disk_moves.move_back(queue, records, target, job_id, now_ms)
            return len(records), True
        found = [self._from_disk.in_place(queue, record) for record in records]
        going = [reference for reference in found if reference is not None]
        if going:
            self._go(queue, going, target, "redriven", job_id)
        return len(going), False

    def put(self, reference: MessageReference, target: Queue, sent: int = 0) -> None:
        """One, after so many others, whatever it is and why. Raises Refused where the queue has no room for it."""
        self._check(RoomLeft(target), reference, reference.message.size, target, sent)
        self._go(reference.queue, (reference,), target, "moved")

    def replace(self, reference: MessageReference, copy: Message, target: Queue, keep: bool) -> None:
        """The copy, which has its number, goes to the queue in the place of the message, or beside it (``keep``). Raises Refused where
        there is no room for it."""
        room = RoomLeft(target)
        now_ms = self._now_ms()
        if not keep:
            room.leave(reference)
        kept = self._check(room, reference, copy.size, target)
        cause = partial(self._faults.goes_on, reference, back=True)
        arrived = self._references.enter(copy, [target], now_ms, QueueStat.MOVED_IN, cause=cause, **kept._asdict())
        if not keep:
            self._references.leave(reference, "edited", now_ms, targets=(target,))
            reference.queue.counts[EDITED] += 1
        self._arrive(target, arrived)

    def _check(self, room: RoomLeft, reference: MessageReference, size: int, target: Queue, sent: int = 0) -> Kept:
        """What one keeps that goes in. What waits for its time does not count where length is limited."""
        kept = Kept.of(reference, target)
        if kept.due_at_ms is None and not room.fits(size):
            raise room.full(sent)
        return kept

    def _go(self, queue: Queue, going: Sequence[MessageReference], target: Queue, outcome: Outcome, job_id: int = 0) -> None:
        """References of one queue, which nobody holds, become those of another that has room for them, in one commit."""
        sent_back = outcome == "redriven"
        now_ms = self._now_ms()
        faults = self._faults
        # Even if there are none: by them the journal finds one that has another number than its message.
        moved: list[Moved] = [(each, each.hops or []) for each in going]
        kept = iter([Kept.of(each, target) for each in going])

        def as_it_was(old: MessageReference, new: MessageReference) -> None:
            back = sent_back or any(hop.detail["queue"] == target.name for hop in old.hops or ())
            new.due_at_ms, expires_at_ms = next(kept)
            new.expires_at_ms = sooner(new.expires_at_ms, expires_at_ms)
            new.cause = faults.goes_on(old, new, back)
            new.redrive = job_id
            if new.in_memory_only:
                self._redrives.sent_in_memory(job_id)
            new.delivery_count = deliveries_at(old.hops, target) if back and old.hops else old.delivery_count
            if old.hops and (back or old.redrive) and not job_id:
                new.hops = without_way(old.hops)
            if old.cause and not back and new.durable:
                keys[new.sequence] = message_key(old)

        keys: dict[int, str | None] = {}
        for reference in going:
            queue.withdraw(reference, IN_COMMIT)
        arrived = self._references.move(queue, [target], moved, outcome, now_ms, back=as_it_was)
        if keys:
            self._recorder.keyed(keys)
        self._arrive(target, arrived)

    def _arrive(self, target: Queue, arrived: list[MessageReference]) -> None:
        for reference in arrived:
            target.expect(1, reference.message.size)
        self._enqueuing.arrive_when_safe(arrived)
