"""The messages of a queue that wait to be tried again, in the order of their times, a page at a time. What is on hold comes last.

Those that are not durable stand on no page: all of them are in memory, and come before the first page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.journal.contract import ReferenceRecord
from homing.journal.read.choosing import Choice, Takes
from homing.journal.read.pages import Page, Wanted

from ..core.message import ON_HOLD_MS, MessageReference, Where
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..recording.mapping import message_key
from ..steps import Steps
from . import in_memory
from .fault_groups import FaultGroups
from .from_disk import FromDisk
from .in_memory import meant

#: Behind which the next page begins: (due_at_ms, sequence).
Cursor = tuple[int, int]
#: Before the first, and before what is on hold.
FIRST: Final[Cursor] = (0, 0)
FIRST_ON_HOLD: Final[Cursor] = (ON_HOLD_MS - 1, (1 << 63) - 1)
#: Messages of one page: acting on them takes some 5 ms.
_ROWS: Final = 250
#: Takes a page as it stands on disk; None, or where it ends because it wants no more.
Take = Callable[[list[ReferenceRecord]], Cursor | None]


def in_memory_only(queue: Queue) -> Steps[list[MessageReference]]:
    """Those that wait and stand on no page, in order."""
    if not queue.scheduled:
        return []
    found = yield from in_memory.in_memory_only(queue, lambda each: each.where is Where.SCHEDULED)
    return sorted(found, key=lambda each: (each.due_at_ms or 0, each.sequence))


class Waiting:
    def __init__(self, faults: FaultGroups, from_disk: FromDisk) -> None:
        self._faults = faults
        self._from_disk = from_disk

    def wants(self, wanted: Filter, reference: MessageReference) -> bool:
        """Whether it is to be tried again, or is on hold, as what took the place of such a one is; and the filter takes it."""
        if not (reference.failed or reference.delivery_count or reference.on_hold) or not meant(wanted, message_key)(reference):
            return False
        if wanted.is_of_deaths and not wanted.takes_group(self._faults.group_of(reference.cause), lambda: reference.queue.name):
            return False
        return not wanted.scans or wanted.takes(reference)

    def on_disk(
        self, queue: Queue, wanted: Filter, after: Cursor, until_ms: int, take: Take, pages: int
    ) -> Steps[tuple[int, Cursor | None]]:
        """Gives what may be meant of those due behind ``after`` and not after ``until_ms`` to ``take``, before anything else is written;
        returns how many were looked at, and where to go on, None at the end. Raises what ``take`` raised, or Refused where a page could not
        be read.
        """
        which = Choice(self._takes(wanted, queue), message_ids=wanted.message_ids)
        looked_at = 0
        end: Cursor | None = None
        for _ in range(pages):

            def look(page: Page) -> bool:
                nonlocal after, looked_at, end
                looked_at += page.looked_at
                if not self._from_disk.alive(queue, page):
                    return False
                end = take(page.records)
                after = end or page.cursor
                return end is not None or page.more

            page = Wanted(queue.queue_id, "waiting", after_ms=after[0], after=after[1], until_ms=until_ms, rows=_ROWS, choice=which)
            if not (yield from self._from_disk.reads.ask(page, look).over()):
                return looked_at, None
            if end is not None:
                break
            yield
        return looked_at, after

    def _takes(self, wanted: Filter, queue: Queue) -> Takes | None:
        """What the filter says of a message's cause; None: nothing."""
        group_of = self._faults.group_of
        return (lambda cause, source: wanted.takes_group(group_of(cause), lambda: queue.name)) if wanted.is_of_deaths else None
