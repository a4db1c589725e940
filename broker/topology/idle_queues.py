"""Queues that ``expires`` deletes: each has its due time from its last use on.

Use is a consumer, a producer or transaction that names it, a declaration, passive ones too, and a single get; with a start of the broker
or a new ``expires`` the time begins anew. Every use only moves a due time on, so that nothing has to be done at most uses: what is looked
at too early is looked at again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from ..core.queue import Queue
from ..core.scheduled import NEVER

#: A queue that is named by something open is looked at again after this, at the earliest.
_NAMED_MS: Final = 1000
#: Entries of the heap that no longer count are taken out when they are more than this, and more than those that do.
_STALE: Final = 1000


class IdleQueues:
    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: When each is looked at, and as a heap, with entries that no longer count.
        self._look_at: dict[Queue, int] = {}
        self._heap: list[tuple[int, int, Queue]] = []
        #: ``take_due`` is wanted then, and finds nothing before.
        self.look_at_ms = NEVER

    def watch(self, queue: Queue) -> None:
        """It is not used now, as far as is known; to be called whenever its last consumer may have gone."""
        if queue.settings.expires_ms is not None and not queue.consumers:
            self._look(queue, queue.used_at_ms + queue.settings.expires_ms)

    def begin(self, queue: Queue, now_ms: int) -> None:
        """Its ``expires`` holds from now on."""
        if queue.settings.expires_ms is not None:
            queue.used_at_ms = now_ms
            self.watch(queue)

    def _look(self, queue: Queue, at_ms: int) -> None:
        if at_ms < self._look_at.get(queue, at_ms + 1):
            self._look_at[queue] = at_ms
            heapq.heappush(self._heap, (at_ms, queue.queue_id, queue))
            self.look_at_ms = min(self.look_at_ms, at_ms)
            self._wake()

    def forget(self, queue: Queue) -> None:
        """It is deleted."""
        self._look_at.pop(queue, None)
        if len(self._heap) > 2 * len(self._look_at) + _STALE:
            self._heap = [(at_ms, queue.queue_id, queue) for queue, at_ms in self._look_at.items()]
            heapq.heapify(self._heap)

    def _next_ms(self) -> int | None:
        while self._heap and self._look_at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @staticmethod
    def in_use(queue: Queue, now_ms: int) -> bool:
        """Whether its time is not over, having begun anew, or it has none any more."""
        expires_ms = queue.settings.expires_ms
        return expires_ms is None or queue.used_at_ms + expires_ms > now_ms

    def take_due(self, now_ms: int, named: Callable[[Queue], bool]) -> list[Queue]:
        """Those whose time is over. ``named``: whether something open names it."""
        due: list[Queue] = []
        while (at_ms := self._next_ms()) is not None and at_ms <= now_ms:
            queue = heapq.heappop(self._heap)[2]
            del self._look_at[queue]
            expires_ms = queue.settings.expires_ms
            if expires_ms is None or queue.consumers:
                continue
            if named(queue):
                queue.used_at_ms = now_ms
                self._look(queue, now_ms + max(expires_ms, _NAMED_MS))
            elif queue.used_at_ms + expires_ms > now_ms:
                self.watch(queue)
            else:
                due.append(queue)
        self.look_at_ms = self._next_ms() or NEVER
        return due
