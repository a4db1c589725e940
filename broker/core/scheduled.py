"""What waits for its time: due references by due time, and expiry in buckets. One timer for the earliest of all."""

from __future__ import annotations

import heapq
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from .message import ON_HOLD_MS, MessageReference, Where

if TYPE_CHECKING:
    from .queue import Queue

#: When, and what: its sequence in its queue; the third tells entries apart that are alike.
_Entry = tuple[int, int, int, "Queue"]
_SWEEP_ABOVE: Final = 1024
SECOND_MS: Final = 1000
#: A time that does not come.
NEVER: Final = 1 << 62
#: An expired message leaves at most this late.
EXPIRY_STEP_MS: Final = 10


class Schedule:
    """References that may not go out before their due time. Entries whose reference has moved on are skipped, and keep nothing of it."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._numbers = count()
        self._sweep_at = _SWEEP_ABOVE
        #: ``take_due`` is wanted then, and finds nothing before.
        self.look_at_ms = NEVER

    def add(self, reference: MessageReference, due_at_ms: int) -> None:
        reference.due_at_ms = due_at_ms
        reference.where = Where.SCHEDULED
        reference.queue.scheduled += 1
        if due_at_ms == ON_HOLD_MS:
            reference.queue.on_hold += 1
            return
        heapq.heappush(self._heap, (due_at_ms, reference.sequence, next(self._numbers), reference.queue))
        if due_at_ms < self.look_at_ms:
            self.look_at_ms = due_at_ms
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        living = {entry[1]: entry for entry in self._heap if self._waiting(entry) is not None}
        self._heap = list(living.values())
        heapq.heapify(self._heap)
        self._sweep_at = max(_SWEEP_ABOVE, 2 * len(self._heap))

    @staticmethod
    def _waiting(entry: _Entry) -> MessageReference | None:
        due_at_ms, sequence, _, queue = entry
        reference = queue.references.get(sequence)
        return reference if reference is not None and reference.where is Where.SCHEDULED and reference.due_at_ms == due_at_ms else None

    def next_ms(self) -> int | None:
        """When the earliest is due; None when nothing waits."""
        while self._heap and self._waiting(self._heap[0]) is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Up to ``limit`` references that are due, earliest first; they stand in IN_COMMIT until the caller places them."""
        due: list[MessageReference] = []
        while len(due) < limit:
            earliest = self.next_ms()
            if earliest is None or earliest > now_ms:
                break
            reference = self._waiting(heapq.heappop(self._heap))
            if reference is not None:
                reference.queue.withdraw(reference, Where.IN_COMMIT)
                due.append(reference)
        self.look_at_ms = self.next_ms() or NEVER
        return due


class Expiries:
    """References with an expiration, in buckets that settling removes from: nothing long gone is kept.

    What expires in a later second stands in the bucket of that second; when it comes, in those of some milliseconds.
    """

    def __init__(self) -> None:
        self._seconds = _Buckets(SECOND_MS)
        self._soon = _Buckets(EXPIRY_STEP_MS)
        #: What expires before this stands in ``_soon``.
        self._opened_ms = 0
        #: ``take_expired`` is wanted then, and finds nothing before.
        self.look_at_ms = NEVER

    def _buckets(self, expires_at_ms: int) -> _Buckets:
        return self._soon if expires_at_ms < self._opened_ms else self._seconds

    def add(self, reference: MessageReference) -> None:
        at_ms = reference.expires_at_ms
        if at_ms is not None:
            self._buckets(at_ms).add(reference, at_ms)
            if at_ms < self.look_at_ms:
                self.look_at_ms = self.next_ms() or NEVER

    def remove(self, reference: MessageReference) -> None:
        if reference.expires_at_ms is not None:
            self._buckets(reference.expires_at_ms).remove(reference, reference.expires_at_ms)

    def next_ms(self) -> int | None:
        """When to look again: the beginning of the earliest second with something in it, then the end of its earliest step."""
        second, step = self._seconds.first(), self._soon.first()
        if step is None:
            return None if second is None else second * SECOND_MS
        end_ms = (step + 1) * EXPIRY_STEP_MS
        return end_ms if second is None else min(end_ms, second * SECOND_MS)

    def take_expired(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Up to ``limit`` expired references, removed from the index. Those being delivered come too: the caller leaves them."""
        self._open(now_ms)
        expired: list[MessageReference] = []
        while len(expired) < limit:
            step = self._soon.first()
            if step is None or (step + 1) * EXPIRY_STEP_MS > now_ms:
                break
            bucket = self._soon.by_number[step]
            # One walk a call: the way to the first of what is left gets longer with each that was taken before it.
            expired += [bucket.pop(sequence) for sequence in list(islice(bucket, limit - len(expired)))]
        self.look_at_ms = self.next_ms() or NEVER
        return expired

    def _open(self, now_ms: int) -> None:
        """The seconds that have begun are spread over the milliseconds."""
        self._opened_ms = max(self._opened_ms, (now_ms // SECOND_MS + 1) * SECOND_MS)
        while (second := self._seconds.first()) is not None and second * SECOND_MS < self._opened_ms:
            for reference in self._seconds.by_number.pop(second).values():
                self.add(reference)


class _Buckets:
    """References by time, so many milliseconds together."""

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self.by_number: dict[int, dict[int, MessageReference]] = {}
        self._order: list[int] = []

    def add(self, reference: MessageReference, at_ms: int) -> None:
        number = at_ms // self._width_ms
        bucket = self.by_number.get(number)
        if bucket is None:
            bucket = self.by_number[number] = {}
            heapq.heappush(self._order, number)
        bucket[reference.sequence] = reference

    def remove(self, reference: MessageReference, at_ms: int) -> None:
        bucket = self.by_number.get(at_ms // self._width_ms)
        if bucket is not None:
            bucket.pop(reference.sequence, None)

    def first(self) -> int | None:
        """The number of the earliest bucket with something in it."""
        while self._order and not self.by_number.get(self._order[0]):
            self.by_number.pop(heapq.heappop(self._order), None)
        return self._order[0] if self._order else None
