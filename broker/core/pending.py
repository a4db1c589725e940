"""The messages of one queue that are ready to go, in delivery order: priority first, then the original place.

New arrivals only ever append; what comes back re-enters at its old place. So each priority has a deque of fresh ones and a
heap of runs, each of messages that came back together, and the next is the smallest head. Removal from the middle leaves a stale
entry behind (its reference is no longer PENDING, or comes back as a suspect, which waits elsewhere) that is skipped when met and
swept when such entries outnumber the living, or keep a quarter of what those take from being let go.

A long queue is in memory only up to a *cursor* for each priority; what lies beyond is on disk, counted here, and comes a page at a time
(broker/entries/pager.py). Cursors only move on. Nothing overtakes what is on disk: where that is next, nothing is handed out until it is
here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from operator import attrgetter
from typing import Final

from .message import PENDING, REFERENCE_BYTES, MessageReference, Where

#: How many priorities a queue tells apart, unless it was declared with more.
PRIORITIES: Final = 10
_SWEEP_ABOVE: Final = 1024
#: What stale entries may keep beside a part of what the living take.
_STALE_BYTES: Final = 4096
_STALE_PART: Final = 4
_SEQUENCE: Final = attrgetter("sequence")
#: Beyond every sequence.
_NEVER: Final = 1 << 64
#: In the places of priorities that nothing came with: most queues need one of ten, some have 256. Nobody adds to them.
_NO_FRESH: Final = deque[MessageReference]()
#: (sequence of its head, a number of its own, the run). A stale entry may make two heads the same; the lists are not to be compared then.
_Run = tuple[int, int, list[MessageReference]]
_NO_RUNS: Final[list[_Run]] = []


class Pending:
    """``count`` and ``bytes`` (bodies) are of living entries only. A reference is in here exactly when it is PENDING and no suspect."""

    __slots__ = (
        "_came_back",
        "_entries",
        "_fresh",
        "_returned",
        "_stale_bytes",
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

    def __init__(self, priorities: int = PRIORITIES) -> None:
        self._fresh: list[deque[MessageReference]] = [_NO_FRESH] * priorities
        #: Heaps of runs; a run is descending, its head is at the end, and none is empty.
        self._returned: list[list[_Run]] = [_NO_RUNS] * priorities
        #: By priority: entries of all runs; and entries of everything.
        self._came_back = [0] * priorities
        self._entries = 0
        #: What stale entries keep from being let go, at most.
        self._stale_bytes = 0
        #: No priority above this one has entries.
        self._top = 0
        self.count = 0
        self.bytes = 0
        #: By priority: messages that are ready and only on disk, all of them beyond the cursor (a sequence).
        self.on_disk = [0] * priorities
        self.cursor = [0] * priorities
        #: By priority: nothing that is only on disk is beyond this sequence.
        self.newest = [0] * priorities
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
        return min(self.count, sum(self._came_back))

    def held(self, priority: int) -> int:
        """Entries of one priority in memory, stale ones included."""
        return len(self._fresh[priority]) + self._came_back[priority]

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
        for priority in range(len(self.on_disk) - 1, -1, -1):
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
        if fresh is _NO_FRESH:
            fresh = self._fresh[reference.priority] = deque()
        fresh.append(reference)
        self._counted(1, reference.message.size, reference.priority)

    def put_back(self, references: Collection[MessageReference]) -> None:
        """Returned messages, at their original places."""
        runs: dict[int, list[MessageReference]] = {}
        size = 0
        for reference in references:
            run = runs.get(reference.priority)
            if run is None:
                run = runs[reference.priority] = []
            reference.where = PENDING
            run.append(reference)
            size += reference.message.size
        for priority, run in runs.items():
            run.sort(key=_SEQUENCE, reverse=True)
            if self._returned[priority] is _NO_RUNS:
                self._returned[priority] = []
            heapq.heappush(self._returned[priority], _entry(run))
            self._came_back[priority] += len(run)
        self._counted(len(references), size, max(runs, default=0))

    def append_all(self, references: list[MessageReference], size: int) -> None:
        """New arrivals, each above every other, of messages of ``size`` bytes."""
        fresh, nobody, top = self._fresh, _NO_FRESH, 0
        for reference in references:
            priority = reference.priority
            reference.where = PENDING
            line = fresh[priority]
            if line is nobody:
                line = fresh[priority] = deque()
            line.append(reference)
            if priority > top:
                top = priority
        self._counted(len(references), size, top)

    def append_page(self, references: list[MessageReference]) -> None:
        """A page of one priority, in order: all beyond what was in memory, but for what is kept in memory only."""
        self.starved = False
        fresh = self._fresh[references[0].priority]
        if fresh and fresh[-1].sequence > references[0].sequence:
            self.put_back(references)
        else:
            self.append_all(references, sum([reference.message.size for reference in references]))

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
        size = reference.message.size
        reference.where = to
        self.count -= 1
        self.bytes -= size
        if self._was_head(reference):
            return
        self._stale_bytes += size + REFERENCE_BYTES
        if self._stale_bytes > (self.bytes + REFERENCE_BYTES * self.count) // _STALE_PART + _STALE_BYTES:
            self._sweep()

    def _was_head(self, reference: MessageReference) -> bool:
        """Whether it stood first in its place, and no more: what goes in order leaves no stale entries."""
        priority = reference.priority
        fresh, runs = self._fresh[priority], self._returned[priority]
        if fresh and fresh[0] is reference:
            fresh.popleft()
        elif runs and runs[0][2][-1] is reference:
            runs[0][2].pop()
            self._came_back[priority] -= 1
            self._head_has_changed(runs)
        else:
            return False
        self._entries -= 1
        return True

    def pop(self, to: Where) -> MessageReference | None:
        """Takes the next to go; it stands in ``to`` from here on."""
        taken = self.take(to, 1, 1)
        return taken[0] if taken else None

    def take(self, to: Where, limit: int, size: int) -> list[MessageReference]:
        """Takes the next to go, at most ``limit``, and no more once their bodies come to ``size`` bytes."""
        taken: list[MessageReference] = []
        before = self.bytes
        while len(taken) < limit and before - self.bytes < size:
            if not self._take_stretch(taken, to, limit, size - before + self.bytes):
                self.starved = True
                break
        return taken

    def _take_stretch(self, taken: list[MessageReference], to: Where, limit: int, size: int) -> bool:
        """Adds what comes next from one place, the fresh ones or a run, until another goes on; False when what comes next is not here."""
        if not self._find_top():
            return False
        top = self._top
        fresh, runs = self._fresh[top], self._returned[top]
        run = runs[0][2] if runs and (not fresh or runs[0][0] <= fresh[0].sequence) else None
        if run is None and self.overdue and not runs:
            return False
        end = self._end_of_stretch(top, of_run=run is not None)
        number = len(taken)
        if run is None:
            passed, size = _take_up_to(end, fresh, 0, fresh.popleft, taken, to, limit, size)
        else:
            passed, size = _take_up_to(end, run, -1, run.pop, taken, to, limit, size)
            self._came_back[top] -= passed
            self._head_has_changed(runs)
        self._entries -= passed
        self.count -= len(taken) - number
        self.bytes -= size
        return passed > 0

    def _find_top(self) -> bool:
        """``_top`` becomes the highest priority with something in it; False where nothing is, or only on disk."""
        while self.count and not (self._fresh[self._top] or self._returned[self._top]):
            if self.on_disk[self._top]:
                return False
            self._top -= 1
        return self.count > 0

    def _end_of_stretch(self, top: int, of_run: bool) -> int:
        """The sequence up to which the first run, or what is fresh, goes on before another place has the next."""
        fresh, runs = self._fresh[top], self._returned[top]
        end = self.cursor[top] if self.on_disk[top] else _NEVER
        if of_run:
            return min(end, fresh[0].sequence if fresh else _NEVER, *(each[0] for each in runs[1:3]))
        return min(end, runs[0][0] if runs else _NEVER)

    @staticmethod
    def _head_has_changed(runs: list[_Run]) -> None:
        """Of the first run some are gone."""
        run = runs[0][2]
        if run:
            heapq.heapreplace(runs, _entry(run))
        else:
            heapq.heappop(runs)

    def _waits_for_disk(self, reference: MessageReference) -> bool:
        """Whether something on disk comes before this one, which is the first of its priority in memory."""
        priority = reference.priority
        return self.on_disk[priority] > 0 and reference.sequence > self.cursor[priority]

    def oldest_of_lowest_priority(self) -> MessageReference | None:
        """What drop-head drops; None where that is on disk still."""
        for priority in range(len(self._fresh)):
            first = self._first(priority)
            if first is not None or self.on_disk[priority]:
                return None if first is None or self._waits_for_disk(first) else first
        return None

    def oldest(self) -> MessageReference | None:
        """The one that came first, of those in memory."""
        firsts = [self._first(priority) for priority in range(self._top + 1)] if self.count else []
        return min((first for first in firsts if first is not None), key=_SEQUENCE, default=None)

    def _first(self, priority: int) -> MessageReference | None:
        fresh, runs = self._fresh[priority], self._returned[priority]
        while fresh and not _waits_here(fresh[0]):
            fresh.popleft()
            self._entries -= 1
        while runs and not _waits_here(runs[0][2][-1]):
            runs[0][2].pop()
            self._came_back[priority] -= 1
            self._entries -= 1
            self._head_has_changed(runs)
        if runs and (not fresh or runs[0][0] <= fresh[0].sequence):
            return runs[0][2][-1]
        return fresh[0] if fresh else None

    def __iter__(self) -> Iterator[MessageReference]:
        """All, in delivery order. A snapshot: costs a sort, for browsing and management only."""
        for priority in range(len(self._fresh) - 1, -1, -1):
            living = {r.sequence: r for r in self._fresh[priority] if _waits_here(r)}
            living |= {r.sequence: r for r in self._came_back_to(priority)}
            for sequence in sorted(living):
                yield living[sequence]

    def _sweep(self) -> None:
        for priority, fresh in enumerate(self._fresh):
            if not fresh and not self._returned[priority]:
                continue
            living = [r for r in fresh if _waits_here(r)]
            self._fresh[priority] = deque(living) if living else _NO_FRESH
            kept = {r.sequence for r in living}
            returned = {r.sequence: r for r in self._came_back_to(priority) if r.sequence not in kept}
            run = [returned[sequence] for sequence in sorted(returned, reverse=True)]
            self._returned[priority] = [_entry(run)] if run else _NO_RUNS
            self._came_back[priority] = len(run)
        self._entries = sum(map(len, self._fresh)) + sum(self._came_back)
        self._stale_bytes = 0

    def _came_back_to(self, priority: int) -> Iterator[MessageReference]:
        """The living entries of the runs, in no order."""
        return filter(_waits_here, chain.from_iterable(run for _, _, run in self._returned[priority]))


def _entry(run: list[MessageReference]) -> _Run:
    return run[-1].sequence, id(run), run


def _take_up_to(
    end: int,
    entries: deque[MessageReference] | list[MessageReference],
    head: int,
    drop: Callable[[], MessageReference],
    taken: list[MessageReference],
    to: Where,
    limit: int,
    size: int,
) -> tuple[int, int]:
    """Moves the entries of one place up to sequence ``end`` into ``taken``, within ``limit`` and ``size``. ``head``: the index of the
    next, which ``drop`` removes. Returns how many entries went, stale ones included, and the bytes of the living."""
    entered, left = len(entries), size
    while entries and len(taken) < limit and left > 0:
        reference = entries[head]
        if reference.sequence > end:
            break
        drop()
        if reference.where is PENDING and not reference.suspect:
            reference.where = to
            left -= reference.message.size
            taken.append(reference)
    return entered - len(entries), size - left


def _waits_here(reference: MessageReference) -> bool:
    return reference.where is PENDING and not reference.suspect
