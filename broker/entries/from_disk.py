"""What of a queue is only on disk comes back: a page at a time, its place counted out there. How it went there: to_disk.py.

Everything is *in memory or only on disk*, never both: a page leaves out what is in memory, and the journal leaves out what is being
deleted, so a page may be read at any time and nothing is handed out twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from homing.journal.contract import ReferenceRecord
from homing.journal.read.pages import Page, Wanted

from ..core.message import ON_HOLD_MS, MessageReference, Where
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .page_reads import Look, PageReads, Scan
from .ready_set import ReadySet
from .references import References, reference_of
from .to_disk import ToDisk

log = logging.getLogger("homing")

#: Rows that are looked at for one selector, purged or redriven in one step.
SCAN_ROWS: Final = 250


class FromDisk:
    def __init__(
        self,
        journal: JournalPort,
        post_office: PostOffice,
        references: References,
        to_disk: ToDisk,
        reads: PageReads,
        ready: ReadySet,
    ) -> None:
        self._journal = journal
        self._post_office = post_office
        self._references = references
        self._to_disk = to_disk
        self.reads = reads
        self._ready = ready
        #: Who waits for a page of a queue, whichever that is.
        self.waiting: dict[int, list[Callable[[], None]]] = {}
        #: Queues whose consumers hold too much to be given more while memory is short.
        self.held_back: dict[Queue, None] = {}

    # -- at the start, and the end --------------------------------------------------------------------------------------

    def restore(
        self, queue: Queue, ready: dict[int, int], due: int, first_due_ms: int | None, first_expiry_ms: int | None, size: int, on_hold: int
    ) -> None:
        """What the journal counted at the start and did not read."""
        newest = self._journal.next_id()
        for priority, count in ready.items():
            queue.pending.found_on_disk(priority, count, count * size, newest)
        queue.due_on_disk, queue.on_hold_on_disk = due, on_hold
        queue.first_due_ms = first_due_ms
        queue.expiry_on_disk_ms = first_expiry_ms
        count = sum(ready.values()) + due
        self._references.count_on_disk(count, count * size)
        self._to_disk.timed[queue] = None

    def forget(self, queue: Queue) -> None:
        """The queue is gone; what it has on disk is the journal's to remove."""
        self._to_disk.timed.pop(queue, None)
        self.held_back.pop(queue, None)
        self.notify(queue)
        pending, (spilled, size) = queue.pending, self._references.discard_spilled(queue)
        self._references.count_on_disk(spilled - pending.disk_count - queue.due_on_disk, size - pending.disk_bytes)
        for priority, count in enumerate(pending.on_disk):
            pending.come_from_disk(priority, count, 0)
        queue.due_on_disk = queue.on_hold_on_disk = 0

    # -- pages ---------------------------------------------------------------------------------------------------------

    def fetch(self, queue: Queue, priority: int) -> None:
        """The next page of one priority; the queue is marked ready when it is here."""
        rows, size = self._to_disk.room.page_of(queue)
        wanted = Wanted(queue.queue_id, "ready", priority, after=queue.pending.cursor[priority], rows=rows, size=size)
        self.reads.read(queue, "ready", wanted, partial(self._take_ready, queue, priority), as_it_was)

    def _take_ready(self, queue: Queue, priority: int, page: Page) -> None:
        if self.ended(queue, "ready", page):
            self._load(queue, priority, page)
            self.notify(queue)

    def _load(self, queue: Queue, priority: int, page: Page) -> None:
        pending = queue.pending
        records = self.reads.before_late(queue, priority, page.records)
        references = self._adopt_ready(queue, priority, records)
        if records:
            pending.cursor[priority] = max(pending.cursor[priority], records[-1].sequence)
        if references:
            queue.append_page(references)
        elif pending.on_disk[priority] and (not page.more or len(records) < len(page.records)):
            if not self._journal.busy():
                log.error(
                    "messages-missing: queue %s: %d messages were counted on disk and are not there", queue.name, pending.on_disk[priority]
                )
                pending.come_from_disk(priority, pending.on_disk[priority], pending.disk_bytes)
            # What there is stands in batches that are not on disk yet.
            self._journal.when_safe(lambda: self._ready.mark(queue))
            return
        self._ready.mark(queue)

    def notify(self, queue: Queue) -> None:
        """What whoever is in line by ``when_read`` waits for has come."""
        for callback in self.waiting.pop(queue.queue_id, ()):
            callback()

    def ended(self, queue: Queue, kind: str, page: Page) -> bool:
        """A read that was counted has ended; whether the queue is still there."""
        self.reads.ended(queue, kind)
        return self.alive(queue, page)

    def alive(self, queue: Queue, page: Page) -> bool:
        """Whether a page's queue is still there; rows that were set aside are counted out."""
        if self._to_disk.stopped or self._post_office.queues_by_id.get(queue.queue_id) is not queue:
            return False
        for priority, due_at_ms, cause in page.set_aside:
            self._references.count_set_aside(queue, cause)
            self._count_out(queue, priority, due_at_ms, 0)
        return True

    # -- into memory -----------------------------------------------------------------------------------------------------

    def adopt(self, queue: Queue, record: ReferenceRecord) -> MessageReference:
        """A message that was only on disk is in memory from here on; it stands in IN_COMMIT until it is enqueued."""
        reference = reference_of(queue, record)
        message = reference.message
        if record.spilled:
            self._references.unspill(queue, (record,), message.size)
        else:
            message.stored = 1
            message.shared = record.shared
            self._references.count_on_disk(-1, -message.size)
        self._references.restore(reference)
        self._count_out(queue, record.priority, record.due_at_ms, message.size)
        return reference

    def in_place(self, queue: Queue, record: ReferenceRecord) -> MessageReference | None:
        """The message where it stands, brought into memory where it is not; None where somebody holds it. Who does not take it out puts it
        back: ``Enqueuing.enqueue``."""
        reference = queue.references.get(record.sequence)
        if reference is None:
            return self.adopt(queue, record)
        return None if reference.where in (Where.DELIVERING, Where.IN_COMMIT, Where.GONE) else reference

    def _adopt_ready(self, queue: Queue, priority: int, records: list[ReferenceRecord]) -> list[MessageReference]:
        """A page of one priority without due times is in memory from here on; what was there already is left out."""
        references: list[MessageReference] = []
        spilled: list[ReferenceRecord] = []
        size = spilled_size = 0
        for record in records:
            if record.sequence not in queue.references:
                reference = reference_of(queue, record)
                message = reference.message
                size += message.size
                references.append(reference)
                if record.spilled:
                    spilled.append(record)
                    spilled_size += message.size
                else:
                    message.stored, message.shared = 1, record.shared
        if spilled:
            self._references.unspill(queue, spilled, spilled_size)
        self._references.restore_all(queue, references)
        self._references.count_on_disk(len(spilled) - len(references), spilled_size - size)
        if references:
            queue.pending.come_from_disk(priority, len(references), size)
        return references

    def _count_out(self, queue: Queue, priority: int, due_at_ms: int | None, size: int) -> None:
        if due_at_ms is not None:
            queue.due_on_disk -= 1
            queue.on_hold_on_disk -= due_at_ms == ON_HOLD_MS
            if not queue.due_on_disk:
                queue.pending.overdue = False
        else:
            queue.pending.come_from_disk(priority, 1, size)

    # -- looked at, where it is ------------------------------------------------------------------------------------------

    def on_disk(
        self,
        queue: Queue,
        act: Look,
        up_to: int,
        priority: int | None = None,
        after: int = 0,
        rows: int = SCAN_ROWS,
    ) -> Steps[None]:
        """Hands over what of the queue is only on disk, in steps, in delivery order, from a place on and with sequences below ``up_to``.

        ``act`` may adopt a record; what it does not is left where it is. It returns whether it wants more. Raises what ``act`` raised, or
        Refused where a page could not be read.
        """
        highest = len(queue.pending.on_disk) - 1
        for rank in range(highest if priority is None else min(priority, highest), -1, -1):
            more = bool(queue.pending.on_disk[rank] or queue.due_on_disk)
            if not queue.due_on_disk:
                after = max(after, queue.pending.cursor[rank])
            scan = Scan(queue, act, up_to, after, self.alive)
            while more:
                asked = self.reads.ask(Wanted(queue.queue_id, "all", rank, after=scan.after, rows=rows), scan.look)
                more = yield from asked.over()
                if not scan.wants_more:
                    return
            after = 0


def as_it_was() -> None:
    """A page that did not come has changed nothing."""
