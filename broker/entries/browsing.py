"""A look into a queue in delivery order, whatever state its messages are in, in memory or on disk. Nothing is changed by it."""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import Final

from homing.journal.contract import ReferenceRecord

from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..recording.journal_port import JournalPort
from ..steps import LOOK_STEP, Steps
from .from_disk import FromDisk
from .references import reference_of

#: Where a message stands: (minus its priority, sequence); and the message.
Ordered = tuple[tuple[int, int], MessageReference]
#: Rows of one page from disk.
_MOST_ROWS: Final = 1000


class Browsing:
    def __init__(self, journal: JournalPort, from_disk: FromDisk) -> None:
        self._journal = journal
        self._from_disk = from_disk

    def browse(self, queue: Queue, after: tuple[int, int], count: int) -> Steps[list[Ordered]]:
        """The first so many behind a cursor, once nobody can be shown a number that may come again after a kill."""
        first = yield from _in_memory(list(queue.references.values()), after, count)

        def look(records: list[ReferenceRecord]) -> bool:
            nonlocal first
            rows = [at_hand(queue, record) for record in records]
            first = nsmallest(count, chain(first, (((-each.priority, each.sequence), each) for each in rows)), key=itemgetter(0))
            # Further ones would stand behind all of these.
            return len(first) < count or not rows or first[-1][0] > (-rows[-1].priority, rows[-1].sequence)

        if not _comes_before_disk(queue, first, after, count):
            yield from self._from_disk.on_disk(queue, look, self._journal.next_id(), -after[0], after[1], min(count, _MOST_ROWS))
        while not self._journal.ids_reserved:
            yield True
        return first


def at_hand(queue: Queue, record: ReferenceRecord) -> MessageReference:
    """What is only on disk, to be looked at."""
    reference = reference_of(queue, record)
    reference.where = Where.PENDING if reference.due_at_ms is None else Where.SCHEDULED
    return reference


def as_it_is(queue: Queue, record: ReferenceRecord) -> MessageReference:
    """The message in memory; else what is only on disk, to be looked at."""
    return queue.references.get(record.sequence) or at_hand(queue, record)


def _in_memory(references: list[MessageReference], after: tuple[int, int], count: int) -> Steps[list[Ordered]]:
    first: list[Ordered] = []
    for start in range(0, len(references), LOOK_STEP):
        if start:
            yield
        part = references[start : start + LOOK_STEP]
        behind = ((cursor, each) for each in part if (cursor := (-each.priority, each.sequence)) > after)
        first = nsmallest(count, chain(first, behind), key=itemgetter(0))
    return first


def _comes_before_disk(queue: Queue, first: list[Ordered], after: tuple[int, int], count: int) -> bool:
    """Whether what is in memory is enough: nothing on disk stands before the last of it."""
    pending = queue.pending
    if len(first) < count or queue.due_on_disk:
        return False
    rank, sequence = first[-1][0]
    higher = any(pending.on_disk[priority] for priority in range(1 - rank, min(len(pending.on_disk), 1 - after[0])))
    return not higher and (not pending.on_disk[-rank] or sequence <= pending.cursor[-rank])
