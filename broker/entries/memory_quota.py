"""Who gets how much of ``memory_limit``: half of it is for whatever comes, the next quarter for ever smaller windows of queues, and the
last one for what consumers hold.

A body that is in memory takes no more of it when it is handed out; only what is read from disk does. So nobody is denied what is here,
and while memory is short pages are read for those alone that hold little.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from ..core.consumer import HeldBytes
from ..core.memory import Memory
from ..core.message import REFERENCE_BYTES
from ..core.routing import PostOffice

#: Whoever holds less than this, and less than a 64th of the limit, gets more, however short memory is. A page is then at most as large.
_LEAST_BYTES: Final = 64 << 10
_LEAST_PART: Final = 64
_COUNT_EVERY_MS: Final = 250


class MemoryQuota:
    def __init__(self, memory: Memory, post_office: PostOffice, now_ms: Callable[[], int]) -> None:
        self.memory = memory
        self._post_office = post_office
        self._now_ms = now_ms
        self._limit = memory.limit
        self._least_bytes = min(_LEAST_BYTES, self._limit // _LEAST_PART)
        #: Pages that are on their way, at what they may take.
        self.coming_bytes = 0
        #: What closed consumers hold, by connection: as it may have any number of those, they are one holder.
        self.kept: set[HeldBytes] = set()
        #: What each holder has that has anything, in order; counted now and then.
        self._held = array("q")
        self._held_bytes = 0
        self._count_at_ms = 0

    def part(self) -> float:
        """How much of each window is in force: 1 up to half of the limit, 0 from three quarters on."""
        used = (self.memory.charged + self.coming_bytes) / self._limit
        return 1.0 if used <= 0.5 else max(0.0, 3.0 - 4.0 * used)

    def allow(self, held: int) -> bool:
        """Whether a page may be read for whoever holds so many bytes.

        While memory is short: if it holds less than it would have of what is free, were that divided among those that hold as much.
        However many hold little or nothing, they take nothing from it; and what is free is never used up.
        """
        if held < max(1, self._least_bytes) or self.part() > 0.0:
            return True
        free = self._free()
        return held < free // max(1, len(self._held) - bisect_left(self._held, held))

    def least_page(self) -> tuple[int, int]:
        """Rows and bytes of a page when memory is short."""
        size = min(self._least_bytes, self._free() // _LEAST_PART)
        return max(1, size // REFERENCE_BYTES), size

    def _free(self) -> int:
        """Of the limit; and a backlog that nobody reads, whatever it takes, leaves the last quarter to those that do read."""
        self._count()
        return max(self._limit - self.memory.charged - self.coming_bytes, self._limit // 4 - self._held_bytes, 0)

    def _count(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._count_at_ms:
            self._count_at_ms = now_ms + _COUNT_EVERY_MS
            queues = self._post_office.queues.values()
            held = [consumer.held_bytes for queue in queues for consumer in queue.consumers if consumer.unsettled]
            self._held = array("q", sorted(held + [kept.bytes for kept in self.kept if kept.bytes]))
            self._held_bytes = sum(self._held)
