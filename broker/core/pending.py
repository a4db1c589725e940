"""The messages of one queue that are ready to go, in delivery order: priority first, then the original place.

New arrivals only ever append; what comes back re-enters at its old place. So each priority has a deque of fresh ones and a
heap of returned ones, and the next is the smaller head. Removal from the middle leaves a stale entry behind (its
reference is no longer PENDING, or comes back as a suspect, which waits elsewhere) that is skipped when met and swept when such
entries outnumber the living.

A long queue is in memory only up to a *cursor* for each priority; what lies beyond is on disk, counted here, and comes a page at a time
(broker/paging.py). Cursors only move on. Nothing overtakes what is on disk: where that is next, nothing is handed out until it is here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from broker.core.message import PENDING, MessageReference, Where

PRIORITIES: Final = 10
_SWEEP_ABOVE: Final = 1024


class Pending:
    """``count`` and ``bytes`` (bodies) are of living entries only. A reference is in here exactly when it is PENDING and no suspect."""

    __slots__ = (
        "_entries",
        "_fresh",
        "_returned",
        "_top",
        "bytes",
        "count",
        "cursor",
        "disk_bytes",
        "disk_count",
        "newest",
        "on_disk",
        "overdue",
        "starved",
    )

    def __init__(self) -> None:
        self._fresh: list[deque[MessageReference]] = [deque() for _ in range(PRIORITIES)]
        #: Heaps of (sequence, reference).
        self._returned: list[list[tuple[int, MessageReference]]] = [[] for _ in range(PRIORITIES)]
        self._entries = 0
        #: No priority above this one has entries.
        self._top = 0
        self.count = 0
        self.bytes = 0
        #: By priority: messages that are ready and only on disk, all of them beyond the cursor (a sequence).
        self.on_disk = [0] * PRIORITIES
        self.cursor = [0] * PRIORITIES
        #: By priority: nothing that is only on disk is beyond this sequence.
        self.newest = [0] * PRIORITIES
        self.disk_count = 0
        self.disk_bytes = 0
        #: Returned messages that are due are still on disk: what never went out waits for them.
        self.overdue = False
        #: Somebody wanted the next, and it was not here.
        self.starved = False

    @property
    def total(self) -> int:
        """Ready, in memory or on disk."""
        return self.count + self.disk_count

    @property
    def returned(self) -> int:
        """At most so many of those in memory came back, or have their time behind them."""
        return min(self.count, sum(map(len, self._returned)))

    def held(self, priority: int) -> int:
        """Entries of one priority in memory, stale ones included."""
        return len(self._fresh[priority]) + len(self._returned[priority])

    def left_on_disk(self, priority: int, sequence: int, size: int) -> None:
        """A new arrival, beyond all in memory, that is kept on disk only. The first one sets the cursor before it."""
        if not self.on_disk[priority]:
            self.cursor[priority] = max(self.cursor[priority], sequence - 1)
        self.found_on_disk(priority, 1, size, sequence)

    def found_on_disk(self, priority: int, count: int, size: int, newest: int) -> None:
        """So many are on disk, beyond the cursor, and none of them beyond ``newest``."""
        self.on_disk[priority] += count
        self.disk_count += count
        self.disk_bytes += size
        self.newest[priority] = max(newest, self.newest[priority])
        if priority > self._top:
            self._top = priority

    def come_from_disk(self, priority: int, count: int, size: int) -> None:
        """So many are in memory now, or gone."""
        self.on_disk[priority] -= count
        self.disk_count -= count
        self.disk_bytes = max(0, self.disk_bytes - size) if self.disk_count else 0

    def next_on_disk(self) -> int | None:
        """The priority of which a page is next: the highest there is, unless some of a higher one are in memory."""
        for priority in range(PRIORITIES - 1, -1, -1):
            if self.on_disk[priority]:
                return priority
        return None

    def append(self, reference: MessageReference) -> None:
        """A new arrival, nearly always above every other; one that had to wait for its commit takes its place among them."""
        fresh = self._fresh[reference.priority]
        if fresh and fresh[-1].sequence > reference.sequence:
            self.put_back((reference,))
            return
        reference.where = PENDING
        fresh.append(reference)
        self._counted(1, reference.message.size, reference.priority)

    def put_back(self, references: Collection[MessageReference]) -> None:
        """Returned messages, at their original places."""
        returned, top, size = self._returned, 0, 0
        for reference in references:
            priority = reference.priority
            reference.where = PENDING
            heapq.heappush(returned[priority], (reference.sequence, reference))
            if priority > top:
                top = priority
            size += reference.message.size
        self._counted(len(references), size, top)

    def append_all(self, references: list[MessageReference]) -> None:
        """New arrivals, each above every other."""
        fresh, top, size = self._fresh, 0, 0
        for reference in references:
            priority = reference.priority
            reference.where = PENDING
            fresh[priority].append(reference)
            if priority > top:
                top = priority
            size += reference.message.size
        self._counted(len(references), size, top)

    def append_page(self, references: list[MessageReference]) -> None:
        """A page of one priority, in order: all beyond what was in memory, but for what is kept in memory only."""
        self.starved = False
        fresh = self._fresh[references[0].priority]
        if fresh and fresh[-1].sequence > references[0].sequence:
            self.put_back(references)
        else:
            self.append_all(references)

    def _counted(self, number: int, size: int, top: int) -> None:
        if top > self._top:
            self._top = top
        self._entries += number
        self.count += number
        self.bytes += size
        if self._entries > _SWEEP_ABOVE and self._entries > 2 * self.count:
            self._sweep()

    def remove(self, reference: MessageReference, to: Where) -> None:
        """Takes a reference out of the middle."""
        reference.where = to
        self.count -= 1
        self.bytes -= reference.message.size

    def pop(self, to: Where) -> MessageReference | None:
        """Takes the next to go; it stands in ``to`` from here on."""
        while self.count:
            top = self._top
            fresh, returned = self._fresh[top], self._returned[top]
            if returned and (not fresh or returned[0][0] <= fresh[0].sequence):
                reference = returned[0][1]
            elif fresh:
                reference = fresh[0]
                if self.overdue and not returned:
                    break
            elif self.on_disk[top]:
                break
            else:
                self._top -= 1
                continue
            waits = reference.where is PENDING and not reference.suspect
            if waits and self.disk_count and self._waits_for_disk(reference):
                break
            if returned and reference is returned[0][1]:
                heapq.heappop(returned)
            else:
                fresh.popleft()
            self._entries -= 1
            if waits:
                reference.where = to
                self.count -= 1
                self.bytes -= reference.message.size
                return reference
        self.starved = True
        return None

    def _waits_for_disk(self, reference: MessageReference) -> bool:
        """Whether something on disk comes before this one, which is the first of its priority in memory."""
        priority = reference.priority
        return self.on_disk[priority] > 0 and reference.sequence > self.cursor[priority]

    def oldest_of_lowest_priority(self) -> MessageReference | None:
        """What drop-head drops; None where that is on disk still."""
        for priority in range(PRIORITIES):
            first = self._first(priority)
            if first is not None or self.on_disk[priority]:
                return None if first is None or self._waits_for_disk(first) else first
        return None

    def _first(self, priority: int) -> MessageReference | None:
        fresh, returned = self._fresh[priority], self._returned[priority]
        while fresh and not _waits_here(fresh[0]):
            fresh.popleft()
            self._entries -= 1
        while returned and not _waits_here(returned[0][1]):
            heapq.heappop(returned)
            self._entries -= 1
        if returned and (not fresh or returned[0][0] <= fresh[0].sequence):
            return returned[0][1]
        return fresh[0] if fresh else None

    def __iter__(self) -> Iterator[MessageReference]:
        """All, in delivery order. A snapshot: costs a sort, for browsing and management only."""
        for priority in range(PRIORITIES - 1, -1, -1):
            living = {r.sequence: r for r in self._fresh[priority] if _waits_here(r)}
            living |= {sequence: r for sequence, r in self._returned[priority] if _waits_here(r)}
            for sequence in sorted(living):
                yield living[sequence]

    def _sweep(self) -> None:
        for priority in range(PRIORITIES):
            fresh = self._fresh[priority]
            self._fresh[priority] = deque(r for r in fresh if _waits_here(r))
            kept = {r.sequence for r in self._fresh[priority]}
            returned = {sequence: r for sequence, r in self._returned[priority] if _waits_here(r) and sequence not in kept}
            self._returned[priority] = sorted(returned.items())
        self._entries = sum(map(len, self._fresh)) + sum(map(len, self._returned))


def _waits_here(reference: MessageReference) -> bool:
    return reference.where is PENDING and not reference.suspect
