"""One message by its number, wherever it is: found in memory and on disk, and acted on in its entry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from homing.journal.contract import ReferenceRecord

from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..steps import LOOK_STEP, Steps
from .browsing import at_hand
from .enqueuing import Enqueuing
from .from_disk import FromDisk
from .in_memory import parts

#: Where the journal says that it is: queue id, priority, sequence.
QueueEntry = tuple[int, int, int]


class ByNumber:
    def __init__(self, post_office: PostOffice, from_disk: FromDisk, enqueuing: Enqueuing) -> None:
        self._post_office = post_office
        self._from_disk = from_disk
        self._enqueuing = enqueuing

    def find(self, message_id: int, entries: Iterable[QueueEntry]) -> Steps[list[MessageReference]]:
        """The message in all its queues: in memory anywhere, on disk only where ``entries`` say. What is from disk is to be looked at."""
        found: list[MessageReference] = []
        for queue in list(self._post_office.queues.values()):
            references = list(queue.references.values())
            for start in range(0, len(references), LOOK_STEP):
                if start:
                    yield
                found += [each for each in references[start : start + LOOK_STEP] if each.message.message_id == message_id]
        found = [each for each in found if each.where is not Where.GONE]
        for queue_id, priority, sequence in entries:
            there = self._post_office.queues_by_id.get(queue_id)
            if there is not None and sequence not in there.references:
                yield from self._read(there, priority, sequence, lambda queue, record: found.append(at_hand(queue, record)))
        return found

    def in_memory_only(self, message_ids: Collection[int]) -> Steps[list[MessageReference]]:
        """All entries of these messages that stand on no page."""
        found: list[MessageReference] = []
        looked_at = 0
        for queue in list(self._post_office.queues.values()):
            for part in parts(queue):
                looked_at += len(part)
                if looked_at >= LOOK_STEP:
                    looked_at = 0
                    yield
                found += [each for each in part if each.in_memory_only and each.message.message_id in message_ids]
        return [each for each in found if each.where is not Where.GONE]

    def act_on(self, entry: MessageReference, act: Callable[[MessageReference], None]) -> Steps[bool]:
        """Does it to the message in that queue, brought into memory where it is not; False where it has left, or somebody holds it."""
        reference = entry.queue.references.get(entry.sequence)
        if reference is not None:
            if reference.where in (Where.DELIVERING, Where.IN_COMMIT):
                return False
            act(reference)
            return True
        done = False

        def adopt(queue: Queue, record: ReferenceRecord) -> None:
            nonlocal done
            reference = self._from_disk.adopt(queue, record)
            try:
                act(reference)
                done = True
            finally:
                if reference.where is Where.IN_COMMIT:
                    self._enqueuing.enqueue((reference,))

        yield from self._read(entry.queue, entry.priority, entry.sequence, adopt)
        return done

    def _read(self, queue: Queue, priority: int, sequence: int, take: Callable[[Queue, ReferenceRecord], None]) -> Steps[None]:
        """Hands over the one record, if it is only on disk."""

        def look(records: list[ReferenceRecord]) -> bool:
            for record in records:
                if record.sequence == sequence:
                    take(queue, record)
            return False

        yield from self._from_disk.on_disk(queue, look, sequence + 1, priority, sequence - 1, 1)
