"""What waits for its time: due references by due time, and expiry in buckets. One timer for the earliest of all."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final

from broker.core.message import MessageReference, Where

_SWEEP_ABOVE: Final = 1024
#: Width of an expiry bucket.
BUCKET_MS: Final = 1000


class Schedule:
    """References that may not go out before their due time. Entries whose reference has moved on are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, MessageReference]] = []
        self._sweep_at = _SWEEP_ABOVE

    def add(self, reference: MessageReference, due_at_ms: int) -> None:
        reference.due_at_ms = due_at_ms
        reference.where = Where.SCHEDULED
        reference.queue.scheduled += 1
        heapq.heappush(self._heap, (due_at_ms, reference.sequence, reference))
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        living = {entry[1]: entry for entry in self._heap if self._waits(entry)}
        self._heap = list(living.values())
        heapq.heapify(self._heap)
        self._sweep_at = max(_SWEEP_ABOVE, 2 * len(self._heap))

    @staticmethod
    def _waits(entry: tuple[int, int, MessageReference]) -> bool:
        return entry[2].where is Where.SCHEDULED and entry[2].due_at_ms == entry[0]

    def next_ms(self) -> int | None:
        """When the earliest is due; None when nothing waits."""
        while self._heap and not self._waits(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Up to ``limit`` references that are due, earliest first; they stand in SETTLING until the caller places them."""
        due: list[MessageReference] = []
        while len(due) < limit:
            earliest = self.next_ms()
            if earliest is None or earliest > now_ms:
                break
            reference = heapq.heappop(self._heap)[2]
            reference.queue.withdraw(reference, Where.SETTLING)
            reference.due_at_ms = None
            due.append(reference)
        return due


class Expiries:
    """References with an expiration, in buckets of a second that settling removes from: nothing long gone is kept."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, MessageReference]] = {}
        self._order: list[int] = []

    def add(self, reference: MessageReference) -> None:
        if reference.expires_at_ms is None:
            return
        number = reference.expires_at_ms // BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._order, number)
        bucket[reference.sequence] = reference

    def remove(self, reference: MessageReference) -> None:
        if reference.expires_at_ms is None:
            return
        bucket = self._buckets.get(reference.expires_at_ms // BUCKET_MS)
        if bucket is not None:
            bucket.pop(reference.sequence, None)

    def next_ms(self) -> int | None:
        """When to look again: the end of the earliest bucket with something in it."""
        while self._order and not self._buckets.get(self._order[0]):
            self._buckets.pop(heapq.heappop(self._order), None)
        return (self._order[0] + 1) * BUCKET_MS if self._order else None

    def take_expired(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Up to ``limit`` expired references, removed from the index. Those being delivered come too: the caller leaves them."""
        expired: list[MessageReference] = []
        while len(expired) < limit:
            look_at = self.next_ms()
            if look_at is None or look_at > now_ms:
                break
            bucket = self._buckets[self._order[0]]
            # One walk a call: the way to the first of what is left gets longer with each that was taken before it.
            expired += [bucket.pop(sequence) for sequence in list(islice(bucket, limit - len(expired)))]
        return expired
