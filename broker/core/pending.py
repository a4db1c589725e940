"""The messages of one queue that are ready to go, in delivery order: priority first, then the original place.

New arrivals only ever append; what comes back re-enters at its old place. So each priority has a deque of fresh ones and a
heap of returned ones, and the next is the smaller head. Removal from the middle leaves a stale entry behind (its
reference is no longer PENDING, or comes back as a suspect, which waits elsewhere) that is skipped when met and swept when such
entries outnumber the living.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from broker.core.message import MessageReference, Where

PRIORITIES: Final = 10
_SWEEP_ABOVE: Final = 1024


class Pending:
    """``count`` and ``bytes`` (bodies) are of living entries only. A reference is in here exactly when it is PENDING and no suspect."""

    __slots__ = ("_entries", "_fresh", "_returned", "_top", "bytes", "count")

    def __init__(self) -> None:
        self._fresh: list[deque[MessageReference]] = [deque() for _ in range(PRIORITIES)]
        self._returned: list[list[MessageReference]] = [[] for _ in range(PRIORITIES)]
        self._entries = 0
        #: No priority above this one has entries.
        self._top = 0
        self.count = 0
        self.bytes = 0

    def append(self, reference: MessageReference) -> None:
        """A new arrival, nearly always above every other; one that had to wait for its commit takes its place among them."""
        fresh = self._fresh[reference.priority]
        if fresh and fresh[-1].sequence > reference.sequence:
            self.put_back(reference)
            return
        reference.where = Where.PENDING
        fresh.append(reference)
        self._counted(reference)

    def put_back(self, reference: MessageReference) -> None:
        """A returned message, at its original place."""
        reference.where = Where.PENDING
        heapq.heappush(self._returned[reference.priority], reference)
        self._counted(reference)

    def append_all(self, references: list[MessageReference]) -> None:
        """New arrivals, each above every other."""
        fresh, top, size = self._fresh, self._top, 0
        for reference in references:
            priority = reference.priority
            reference.where = Where.PENDING
            fresh[priority].append(reference)
            if priority > top:
                top = priority
            size += reference.message.size
        self._top = top
        self._entries += len(references)
        self.count += len(references)
        self.bytes += size

    def _counted(self, reference: MessageReference) -> None:
        if reference.priority > self._top:
            self._top = reference.priority
        self._entries += 1
        self.count += 1
        self.bytes += reference.message.size
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
            fresh = self._fresh[self._top]
            if fresh and not self._returned[self._top]:
                reference = fresh.popleft()
                self._entries -= 1
                if _waits_here(reference):
                    reference.where = to
                    self.count -= 1
                    self.bytes -= reference.message.size
                    return reference
                continue
            first = self._first((self._top,))
            if first is not None:
                self.remove(first, to)
                return first
            self._top -= 1
        return None

    def oldest_of_lowest_priority(self) -> MessageReference | None:
        """What drop-head drops."""
        return self._first(range(PRIORITIES))

    def _first(self, priorities: Iterable[int]) -> MessageReference | None:
        if not self.count:
            return None
        for priority in priorities:
            fresh, returned = self._fresh[priority], self._returned[priority]
            while fresh and not _waits_here(fresh[0]):
                fresh.popleft()
                self._entries -= 1
            while returned and not _waits_here(returned[0]):
                heapq.heappop(returned)
                self._entries -= 1
            if returned and (not fresh or returned[0].sequence <= fresh[0].sequence):
                return returned[0]
            if fresh:
                return fresh[0]
        return None

    def __iter__(self) -> Iterator[MessageReference]:
        """All, in delivery order. A snapshot: costs a sort, for browsing and management only."""
        for priority in range(PRIORITIES - 1, -1, -1):
            living = {r.sequence: r for r in (*self._fresh[priority], *self._returned[priority]) if _waits_here(r)}
            for sequence in sorted(living):
                yield living[sequence]

    def _sweep(self) -> None:
        for priority in range(PRIORITIES):
            fresh = self._fresh[priority]
            self._fresh[priority] = deque(r for r in fresh if _waits_here(r))
            kept = {r.sequence for r in self._fresh[priority]}
            returned = {r.sequence: r for r in self._returned[priority] if _waits_here(r) and r.sequence not in kept}
            self._returned[priority] = [returned[sequence] for sequence in sorted(returned)]
        self._entries = sum(map(len, self._fresh)) + sum(map(len, self._returned))


def _waits_here(reference: MessageReference) -> bool:
    return reference.where is Where.PENDING and not reference.suspect
