"""Queues longer than memory: what of a queue is only on disk, when it goes there, and when it comes back.

A queue keeps a window of messages in memory. What arrives beyond it goes into the journal alone, and so does what is due later than soon;
it is read back a page at a time, ahead of need. Everything is *in memory or only on disk*, never both: a page leaves out what is in memory,
and the journal leaves out what is being deleted, so a page may be read at any time and nothing is handed out twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from homing.journal.contract import ReferenceRecord
from homing.journal.read.pages import Page, Wanted

from ..core.consumer import Consumer
from ..core.memory import Memory
from ..core.message import ON_HOLD_MS, MessageReference
from ..core.queue import SCAN_BUDGET, Queue
from ..core.routing import PostOffice
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .enqueuing import Enqueuing
from .page_reads import Look, PageReads, Scan
from .ready_set import ReadySet
from .references import References, reference_of
from .to_disk import AHEAD_MS, LAST, ToDisk

log = logging.getLogger("homing")


#: What is due already is read in larger pieces: between two of them is a commit, and its fixed part is for more messages then.
_OVERDUE_PAGES: Final = 4
#: Rows that are looked at for one selector, purged or redriven in one step.
_SCAN_ROWS: Final = 250
_LOOK_AGAIN_MS: Final = 1_000
_WARN_EVERY_MS: Final = 60_000


class Pager:
    def __init__(
        self,
        journal: JournalPort,
        references: References,
        to_disk: ToDisk,
        reads: PageReads,
        enqueuing: Enqueuing,
        post_office: PostOffice,
        ready: ReadySet,
        memory: Memory,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._references = references
        self._to_disk = to_disk
        self._room = to_disk.room
        self.reads = reads
        self._enqueuing = enqueuing
        self._post_office = post_office
        self._ready = ready
        self._memory = memory
        self._now_ms = now_ms
        #: Queues whose consumers hold too much to be given more while memory is short, and when they are looked at again.
        self.held_back: dict[Queue, None] = {}
        self._look_again_ms = self._warned_ms = 0
        #: Who waits for a page of a queue, whichever that is.
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        #: What is done with a message that expired on disk (set by the broker).
        self.expire: Callable[[MessageReference], None] = lambda reference: None

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

    # -- from disk ---------------------------------------------------------------------------------------------------

    def look(self, queue: Queue) -> None:
        """After a dispatch: the next page, when what is in memory may soon be used up."""
        pending, now_ms = queue.pending, self._now_ms()
        if pending.overdue and queue.first_due_ms is not None:
            self._look_due(queue, now_ms)
        priority = pending.next_on_disk()
        if priority is None or not queue.consumers:
            return
        messages, size = self._room.in_force(queue.settings)
        if (2 * pending.held(priority) < messages and 2 * pending.bytes < size) or self._starves(queue, now_ms):
            self.fetch(queue, priority)
        for consumer in queue.consumers:
            if consumer.selector is not None and not consumer.candidates and self._may_have(consumer, now_ms):
                self._scan_for(consumer)

    def _starves(self, queue: Queue, now_ms: int) -> bool:
        """Whether what is next is not here, and somebody waits for it who may have it, however short memory is."""
        if queue.queue_id in self._waiting:
            return True
        return (queue.pending.starved or not queue.pending.count) and any(self._may_have(each, now_ms) for each in queue.consumers)

    def _may_have(self, consumer: Consumer, now_ms: int) -> bool:
        """Whether this consumer wants messages, and something may be read for it."""
        if not consumer.wants or consumer.queue.is_apart(consumer.connection, now_ms):
            return False
        if self._room.quota.allow(consumer.held_bytes + consumer.kept.bytes):
            return True
        self.held_back[consumer.queue] = None
        if now_ms >= self._warned_ms + _WARN_EVERY_MS:
            self._warned_ms = now_ms
            log.warning(
                "consumers-held-back: %d MiB are in use, near memory-limit: consumers that hold much, of queue %s and others, get"
                " nothing from disk until they acknowledge; a smaller prefetch or a larger memory-limit helps",
                self._memory.bytes >> 20,
                consumer.queue.name,
            )
        return False

    def look_again(self) -> None:
        """At whoever is held back: when memory is no longer short, and once a second."""
        now_ms = self._now_ms()
        if self.held_back and (now_ms >= self._look_again_ms or self._room.quota.part() > 0.0):
            self._look_again_ms = now_ms + _LOOK_AGAIN_MS
            for queue in self.held_back:
                self._ready.mark(queue)
            self.held_back.clear()

    def fetch(self, queue: Queue, priority: int) -> None:
        """The next page of one priority; the queue is marked ready when it is here."""
        rows, size = self._room.page_of(queue)
        wanted = Wanted(queue.queue_id, "ready", priority, after=queue.pending.cursor[priority], rows=rows, size=size)
        self.reads.read(queue, "ready", wanted, partial(self._take_ready, queue, priority), _as_it_was)

    def when_read(self, queue: Queue, callback: Callable[[], None]) -> bool:
        """Fetches what is next and calls back once a page has come, or the queue is shut no more; False where there is nothing to come."""
        pending, priority = queue.pending, queue.pending.next_on_disk()
        if priority is None and not pending.overdue and not queue.shut:
            return False
        self._waiting.setdefault(queue.queue_id, []).append(callback)
        if pending.overdue and queue.first_due_ms is not None:
            self._look_due(queue, self._now_ms())
        elif priority is not None:
            self.fetch(queue, priority)
        return True

    def _ended(self, queue: Queue, kind: str, page: Page) -> bool:
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

    def notify(self, queue: Queue) -> None:
        """What whoever is in line by ``when_read`` waits for has come."""
        for callback in self._waiting.pop(queue.queue_id, ()):
            callback()

    def _take_ready(self, queue: Queue, priority: int, page: Page) -> None:
        if self._ended(queue, "ready", page):
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

    # -- by time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """At least once a second: reads what is due soon, and what has expired."""
        self.look_again()
        self.reads.look_again(now_ms)
        for queue in list(self._to_disk.timed):
            if queue.due_on_disk and queue.first_due_ms is not None:
                self._look_due(queue, now_ms)
            if queue.expiry_on_disk_ms is not None and queue.expiry_on_disk_ms <= now_ms:
                self._look_expired(queue, now_ms)
            if not queue.due_on_disk and queue.expiry_on_disk_ms is None:
                del self._to_disk.timed[queue]

    def _look_due(self, queue: Queue, now_ms: int) -> None:
        assert queue.first_due_ms is not None, "asked only where something is due"
        if queue in self._references.spilled:
            # A page must show all that was put on disk before ``now_ms``; what is put there later has a later time than it shows.
            self._journal.when_safe(partial(self._read_due, queue, now_ms))
        else:
            self._read_due(queue, now_ms)

    def _read_due(self, queue: Queue, now_ms: int) -> None:
        if queue.first_due_ms is None:
            return
        queue.pending.overdue = queue.first_due_ms <= now_ms
        if queue.first_due_ms > now_ms + AHEAD_MS // 2:
            return
        if not self._has_room_for_due(queue) and not (queue.pending.overdue and self._starves(queue, now_ms)):
            return
        (after_ms, after), until_ms = queue.due_horizon, now_ms + AHEAD_MS
        rows, size = self._room.page_of(queue, _OVERDUE_PAGES if queue.pending.overdue else 1)
        wanted = Wanted(queue.queue_id, "due", after_ms=after_ms, after=after, until_ms=until_ms, rows=rows, size=size)
        was = queue.due_horizon, queue.first_due_ms
        if self.reads.read(queue, "due", wanted, partial(self._take_due, queue, was[0]), lambda: self._due_as_it_was(queue, *was)):
            # What is given a time up to here from now on stays in memory: the page could miss it.
            queue.due_horizon = max(queue.due_horizon, (until_ms, LAST))
            queue.first_due_ms = None

    def _has_room_for_due(self, queue: Queue) -> bool:
        part, waiting = self._room.quota.part(), queue.scheduled - queue.on_hold + queue.pending.returned
        return part > 0.0 and waiting <= 4 * self._room.windows.scheduled * part

    def earliest_ms(self, queue: Queue) -> int:
        """When one more that waits may go out: now, or, where there is no room for it, when what is only on disk is read next."""
        now_ms = self._now_ms()
        return now_ms if self._has_room_for_due(queue) else max(now_ms, queue.due_horizon[0]) + 1

    def _due_as_it_was(self, queue: Queue, horizon: tuple[int, int], first_due_ms: int | None) -> None:
        queue.due_horizon = horizon
        times = [at_ms for at_ms in (first_due_ms, queue.first_due_ms) if at_ms is not None]
        queue.first_due_ms = min(times, default=None)

    def _take_due(self, queue: Queue, after: tuple[int, int], page: Page) -> None:
        if not self._ended(queue, "due", page):
            return
        if page.more:
            # A page of which all is leaving says nothing of where it ended: it is read again.
            last = page.records[-1] if page.records else None
            queue.due_horizon = after if last is None else (last.due_at_ms or 0, last.sequence)
        times = [at_ms for at_ms in (page.next_ms, queue.first_due_ms) if at_ms is not None]
        queue.first_due_ms = min(times) if times and queue.due_on_disk else None
        self._enqueuing.enqueue([self.adopt(queue, record) for record in page.records if record.sequence not in queue.references])
        now_ms = self._now_ms()
        if queue.due_on_disk and queue.first_due_ms is not None:
            self._look_due(queue, now_ms)
        self._ready.mark(queue)
        self.notify(queue)

    def _look_expired(self, queue: Queue, now_ms: int, after: tuple[int, int] | None = None) -> None:
        rows, size = self._room.page_of(queue)
        # Nothing that is only on disk expires earlier; rows that are gone may, and are not to be passed over each time.
        after = after or ((queue.expiry_on_disk_ms or 0) - 1, LAST)
        wanted = Wanted(queue.queue_id, "expired", after_ms=after[0], after=after[1], until_ms=now_ms, rows=rows, size=size)
        failed = partial(self._to_disk.expires, queue, queue.expiry_on_disk_ms)
        if self.reads.read(queue, "expired", wanted, partial(self._take_expired, queue, now_ms), failed):
            queue.expiry_on_disk_ms = None

    def _take_expired(self, queue: Queue, now_ms: int, page: Page) -> None:
        if not self._ended(queue, "expired", page):
            return
        self._to_disk.expires(queue, page.next_ms)
        for record in page.records:
            if record.sequence not in queue.references:
                self.expire(self.adopt(queue, record))
        if page.more and page.records:
            last = page.records[-1]
            self._look_expired(queue, now_ms, (last.expires_at_ms or 0, last.sequence))

    # -- with a selector, or all of it -------------------------------------------------------------------------------

    def _scan_for(self, consumer: Consumer) -> None:
        """The next rows beyond the window, for one consumer that takes only some: those come into memory, up to its credit."""
        pending, scanned = consumer.queue.pending, consumer.scanned
        for priority in range(len(scanned) - 1, -1, -1):
            scanned[priority] = max(scanned[priority], pending.cursor[priority])
            if pending.on_disk[priority] and scanned[priority] < pending.newest[priority]:
                rows, size = self._room.page_of(consumer.queue)
                wanted = Wanted(consumer.queue.queue_id, "all", priority, after=scanned[priority], rows=min(rows, _SCAN_ROWS), size=size)
                take = partial(self._take_scanned, consumer, priority, pending.newest[priority])
                self.reads.read(consumer.queue, f"all for {consumer.name}", wanted, take, _as_it_was)
                return

    def _take_scanned(self, consumer: Consumer, priority: int, newest: int, page: Page) -> None:
        queue = consumer.queue
        if not self._ended(queue, f"all for {consumer.name}", page) or not consumer.open:
            return
        room, cost = consumer.credit, 0
        for record in page.records:
            if room <= 0 or cost >= SCAN_BUDGET:
                break
            consumer.scanned[priority] = record.sequence
            if record.due_at_ms is None and record.sequence not in queue.references:
                reference = reference_of(queue, record)
                cost += consumer.look_cost(reference)
                if consumer.takes(reference):
                    queue.put_back([self.adopt(queue, record)])
                    room -= 1
        else:
            if not page.more:
                consumer.scanned[priority] = max(newest, consumer.scanned[priority])
        self._ready.mark(queue)

    def may_find(self, consumer: Consumer) -> bool:
        """Whether there may be something on disk for this consumer that has not come yet."""
        pending = consumer.queue.pending
        if consumer.selector is None:
            return pending.disk_count > 0
        return any(count and consumer.scanned[p] < pending.newest[p] for p, count in enumerate(pending.on_disk))

    def on_disk(
        self,
        queue: Queue,
        act: Look,
        up_to: int,
        priority: int | None = None,
        after: int = 0,
        rows: int = _SCAN_ROWS,
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


def _as_it_was() -> None:
    """A page that did not come has changed nothing."""
