"""The time of an event loop, which can be made to jump.

It passes as usual, until ``advance``: then, whenever nothing is left to do but to wait, it jumps to the next timer. All that goes by the
loop's time, and by this clock, sees the same.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: How long the loop waits, in real time, for work of a thread before it looks again whether that has ended.
_LOOK_S: Final = 0.01
_Events = list[tuple[selectors.SelectorKey, int]]


class Clock:
    """Of one event loop, for all that share it."""

    def __init__(self, loop: Any) -> None:
        """Raises TypeError for a loop that is not asyncio's own."""
        self._real_selector: selectors.BaseSelector | None = getattr(loop, "_selector", None)
        if self._real_selector is None:
            raise TypeError(f"time can be advanced in asyncio's own event loop only, and this is {type(loop).__module__}'s")
        self._loop = loop
        self._real_executor = loop.run_in_executor
        self._ahead_s = 0.0
        self._until_s = 0.0
        self._reached: asyncio.Future[None] | None = None
        self._jobs = 0
        self._advancing = False
        self._busy: list[Callable[[], bool]] = []
        self._last: list[Callable[[], Awaitable[None]]] = []
        loop.time = self.monotonic
        loop.run_in_executor = self._run_in_executor
        loop._selector = _Selector(self._real_selector, self._select)

    @classmethod
    @contextmanager
    def shared(cls, busy: Callable[[], bool], last: Callable[[], Awaitable[None]]) -> Iterator[Clock]:
        """That of the running loop. ``busy`` tells whether a thread works whose answer the loop waits for; ``last`` is what has no timer of
        its own, and is done whenever time was advanced."""
        loop = asyncio.get_running_loop()
        there = getattr(loop.time, "__self__", None)
        clock = there if isinstance(there, cls) else cls(loop)
        clock._busy.append(busy)
        clock._last.append(last)
        try:
            yield clock
        finally:
            clock._busy.remove(busy)
            clock._last.remove(last)
            if not clock._busy:
                loop._selector = clock._real_selector  # type: ignore[attr-defined]
                del loop.time, loop.run_in_executor

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    async def advance(self, seconds: float) -> None:
        """So much later, with everything done that falls due until then, each at its time, and at the end what has no timer of its own."""
        with self._alone():
            await self._pass(seconds)
            for last in list(self._last):
                await last()
            await self._pass(0)

    async def settle(self) -> None:
        """With everything done that is due now."""
        with self._alone():
            await self._pass(0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._advancing:
            raise RuntimeError("time is being advanced already: wait for the one before")
        self._advancing = True
        try:
            yield
        finally:
            self._advancing = False

    async def _pass(self, seconds: float) -> None:
        self._until_s = self.monotonic() + seconds
        self._reached = self._loop.create_future()
        await self._reached

    def _select(self, timeout: float | None) -> _Events:
        reached, real = self._reached, self._real_selector
        assert real is not None
        if reached is None or reached.done() or (timeout is not None and timeout <= 0):
            return real.select(timeout)
        if found := real.select(0):
            return found
        if self._jobs or any(busy() for busy in self._busy):
            return real.select(_LOOK_S if timeout is None else min(timeout, _LOOK_S))
        left_s = self._until_s - self.monotonic()
        if left_s > 0:
            self._ahead_s += left_s if timeout is None else min(left_s, timeout)
        else:
            reached.set_result(None)
        return []

    def _run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        job = self._real_executor(executor, function, *arguments)
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, _: object) -> None:
        self._jobs -= 1


class _Selector:
    """The loop's own, but for how long it waits."""

    def __init__(self, real: Any, select: Callable[[float | None], _Events]) -> None:
        self._real = real
        self.select = select

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
