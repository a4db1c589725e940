"""Tasks that wait for a condition: first come, first served, safe to cancel."""

from __future__ import annotations

import asyncio
from collections import deque


class Waiters:
    """Like a condition variable without a lock: whoever is woken looks again for itself.

    A wake-up that reaches a task at the same moment as its cancellation is passed on, so that no wake-up is lost.
    """

    __slots__ = ("_loop", "_queue")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[asyncio.Future[bool]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait to be woken. False when the loop's time reached ``deadline`` (seconds, as loop.time()) first."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._queue.append(future)
        timer = None if deadline is None else self._loop.call_at(deadline, self._expire, future)
        woken = False
        try:
            woken = await future
            return woken
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.wake()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if not woken and future in self._queue:  # whoever was woken has left it: with many waiting, a search is dear
                self._queue.remove(future)

    @staticmethod
    def _expire(future: asyncio.Future[bool]) -> None:
        if not future.done():
            future.set_result(False)

    def wake(self, count: int = 1) -> None:
        while count > 0 and self._queue:
            future = self._queue.popleft()
            if not future.done():
                future.set_result(True)
                count -= 1

    def wake_all(self) -> None:
        self.wake(len(self._queue))
