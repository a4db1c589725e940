"""What consumers may hold while memory is short: bodies that are out with a consumer are in memory until it settles them."""

from __future__ import annotations

from typing import Final

from broker.core.queue import Queue
from broker.state import BrokerState, log

_LOOK_MS: Final = 1000
_LOG_EVERY_MS: Final = 60_000


class Rations:
    """From three quarters of ``memory_limit`` on, who holds as much as an equal share of the last quarter gets nothing more until it has
    settled some. Producers of durable messages, which need no memory, and consumers that hold little go on.
    """

    def __init__(self, state: BrokerState, memory_limit: int) -> None:
        self._state = state
        self._short_from = memory_limit * 3 // 4
        self._to_share = memory_limit // 4
        self._consumers = 1
        self._counted_ms = self._logged_ms = -_LOG_EVERY_MS
        self._held_back: dict[Queue, None] = {}

    def share(self) -> int | None:
        """Bytes that one consumer may hold; None: as many as its prefetch allows. Asked once a turn."""
        state = self._state
        if state.memory_bytes < self._short_from:
            if self._held_back:
                for queue in self._held_back:
                    state.mark_ready(queue)
                self._held_back.clear()
            return None
        now_ms = state.now_ms()
        if now_ms - self._counted_ms >= _LOOK_MS:
            self._counted_ms = now_ms
            self._consumers = max(1, sum(len(queue.consumers) for queue in state.post_office.queues.values()))
        return self._to_share // self._consumers

    def look_again_at(self, queue: Queue) -> None:
        """It was served while memory was short, and may have more to give when it is not."""
        self._held_back[queue] = None
        now_ms = self._state.now_ms()
        if queue.ready and now_ms - self._logged_ms >= _LOG_EVERY_MS:
            self._logged_ms = now_ms
            log.warning(
                "messages take %d MiB, near memory-limit: consumers that hold much, of queue %s and others, get no more until they"
                " acknowledge; a smaller prefetch or a larger memory-limit helps",
                self._state.memory_bytes >> 20,
                queue.name,
            )
