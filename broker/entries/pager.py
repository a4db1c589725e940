"""Queues longer than memory: when what of a queue is only on disk comes back (from_disk.py).

A queue keeps a window of messages in memory. What arrives beyond it goes into the journal alone, and so does what is due later than soon;
it is read back a page at a time, ahead of need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from homing.journal.read.pages import Page, Wanted

from ..core.consumer import Consumer
from ..core.message import MessageReference
from ..core.queue import SCAN_BUDGET, Queue
from .enqueuing import Enqueuing
from .from_disk import SCAN_ROWS, FromDisk, as_it_was
from .ready_set import ReadySet
from .references import reference_of
from .to_disk import AHEAD_MS, LAST, ToDisk

log = logging.getLogger("homing")


#: What is due already is read in larger pieces: between two of them is a commit, and its fixed part is for more messages then.
_OVERDUE_PAGES: Final = 4
_LOOK_AGAIN_MS: Final = 1_000
_WARN_EVERY_MS: Final = 60_000


class Pager:
    """``expire``: what is done with a message that expired on disk."""

    def __init__(
        self,
        from_disk: FromDisk,
        to_disk: ToDisk,
        enqueuing: Enqueuing,
        ready: ReadySet,
        now_ms: Callable[[], int],
        expire: Callable[[MessageReference], None],
    ) -> None:
        self._from_disk = from_disk
        self._to_disk = to_disk
        self._room = to_disk.room
        self._reads = from_disk.reads
        self._enqueuing = enqueuing
        self._ready = ready
        self._now_ms = now_ms
        self._expire = expire
        self.held_back = from_disk.held_back
        #: When these are looked at again.
        self._look_again_ms = self._warned_ms = 0

    # -- ahead of need -----------------------------------------------------------------------------------------------

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
            self._from_disk.fetch(queue, priority)
        for consumer in queue.consumers:
            if consumer.selector is not None and not consumer.candidates and self._may_have(consumer, now_ms):
                self._scan_for(consumer)

    def _starves(self, queue: Queue, now_ms: int) -> bool:
        """Whether what is next is not here, and somebody waits for it who may have it, however short memory is."""
        if queue.queue_id in self._from_disk.waiting:
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
                self._room.quota.memory.bytes >> 20,
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

    def when_read(self, queue: Queue, callback: Callable[[], None]) -> bool:
        """Fetches what is next and calls back once a page has come, or the queue is shut no more; False where there is nothing to come."""
        pending, priority = queue.pending, queue.pending.next_on_disk()
        if priority is None and not pending.overdue and not queue.shut:
            return False
        self._from_disk.waiting.setdefault(queue.queue_id, []).append(callback)
        if pending.overdue and queue.first_due_ms is not None:
            self._look_due(queue, self._now_ms())
        elif priority is not None:
            self._from_disk.fetch(queue, priority)
        return True

    # -- by time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """At least once a second: reads what is due soon, and what has expired."""
        self.look_again()
        self._reads.look_again(now_ms)
        for queue in list(self._to_disk.timed):
            if queue.due_on_disk and queue.first_due_ms is not None:
                self._look_due(queue, now_ms)
            if queue.expiry_on_disk_ms is not None and queue.expiry_on_disk_ms <= now_ms:
                self._look_expired(queue, now_ms)
            if not queue.due_on_disk and queue.expiry_on_disk_ms is None:
                del self._to_disk.timed[queue]

    def _look_due(self, queue: Queue, now_ms: int) -> None:
        assert queue.first_due_ms is not None, "asked only where something is due"
        # A page must show all that was put on disk before ``now_ms``; what is put there later has a later time than it shows.
        self._to_disk.when_there(queue, partial(self._read_due, queue, now_ms))

    def _read_due(self, queue: Queue, now_ms: int) -> None:
        if queue.first_due_ms is None:
            return
        queue.pending.overdue = queue.first_due_ms <= now_ms
        if queue.first_due_ms > now_ms + AHEAD_MS // 2:
            return
        if not self._room.has_room_for_due(queue) and not (queue.pending.overdue and self._starves(queue, now_ms)):
            return
        (after_ms, after), until_ms = queue.due_horizon, now_ms + AHEAD_MS
        rows, size = self._room.page_of(queue, _OVERDUE_PAGES if queue.pending.overdue else 1)
        wanted = Wanted(queue.queue_id, "due", after_ms=after_ms, after=after, until_ms=until_ms, rows=rows, size=size)
        was = queue.due_horizon, queue.first_due_ms
        if self._reads.read(queue, "due", wanted, partial(self._take_due, queue, was[0]), lambda: self._due_as_it_was(queue, *was)):
            # What is given a time up to here from now on stays in memory: the page could miss it.
            queue.due_horizon = max(queue.due_horizon, (until_ms, LAST))
            queue.first_due_ms = None

    def _due_as_it_was(self, queue: Queue, horizon: tuple[int, int], first_due_ms: int | None) -> None:
        queue.due_horizon = horizon
        times = [at_ms for at_ms in (first_due_ms, queue.first_due_ms) if at_ms is not None]
        queue.first_due_ms = min(times, default=None)

    def _take_due(self, queue: Queue, after: tuple[int, int], page: Page) -> None:
        if not self._from_disk.ended(queue, "due", page):
            return
        if page.more:
            # A page of which all is leaving says nothing of where it ended: it is read again.
            last = page.records[-1] if page.records else None
            queue.due_horizon = after if last is None else (last.due_at_ms or 0, last.sequence)
        times = [at_ms for at_ms in (page.next_ms, queue.first_due_ms) if at_ms is not None]
        queue.first_due_ms = min(times) if times and queue.due_on_disk else None
        self._enqueuing.enqueue(
            [self._from_disk.adopt(queue, record) for record in page.records if record.sequence not in queue.references]
        )
        now_ms = self._now_ms()
        if queue.due_on_disk and queue.first_due_ms is not None:
            self._look_due(queue, now_ms)
        self._ready.mark(queue)
        self._from_disk.notify(queue)

    def _look_expired(self, queue: Queue, now_ms: int, after: tuple[int, int] | None = None) -> None:
        rows, size = self._room.page_of(queue)
        # Nothing that is only on disk expires earlier; rows that are gone may, and are not to be passed over each time.
        after = after or ((queue.expiry_on_disk_ms or 0) - 1, LAST)
        wanted = Wanted(queue.queue_id, "expired", after_ms=after[0], after=after[1], until_ms=now_ms, rows=rows, size=size)
        failed = partial(self._to_disk.expires, queue, queue.expiry_on_disk_ms)
        if self._reads.read(queue, "expired", wanted, partial(self._take_expired, queue, now_ms), failed):
            queue.expiry_on_disk_ms = None

    def _take_expired(self, queue: Queue, now_ms: int, page: Page) -> None:
        if not self._from_disk.ended(queue, "expired", page):
            return
        self._to_disk.expires(queue, page.next_ms)
        for record in page.records:
            if record.sequence not in queue.references:
                self._expire(self._from_disk.adopt(queue, record))
        if page.more and page.records:
            last = page.records[-1]
            self._look_expired(queue, now_ms, (last.expires_at_ms or 0, last.sequence))

    # -- with a selector ---------------------------------------------------------------------------------------------

    def _scan_for(self, consumer: Consumer) -> None:
        """The next rows beyond the window, for one consumer that takes only some: those come into memory, up to its credit."""
        pending, scanned = consumer.queue.pending, consumer.scanned
        for priority in range(len(scanned) - 1, -1, -1):
            scanned[priority] = max(scanned[priority], pending.cursor[priority])
            if pending.on_disk[priority] and scanned[priority] < pending.newest[priority]:
                rows, size = self._room.page_of(consumer.queue)
                wanted = Wanted(consumer.queue.queue_id, "all", priority, after=scanned[priority], rows=min(rows, SCAN_ROWS), size=size)
                take = partial(self._take_scanned, consumer, priority, pending.newest[priority])
                self._reads.read(consumer.queue, f"all for {consumer.name}", wanted, take, as_it_was)
                return

    def _take_scanned(self, consumer: Consumer, priority: int, newest: int, page: Page) -> None:
        queue = consumer.queue
        if not self._from_disk.ended(queue, f"all for {consumer.name}", page) or not consumer.open:
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
                    queue.put_back([self._from_disk.adopt(queue, record)])
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
