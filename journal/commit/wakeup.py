"""When the writer looks again: because something came, because a time has come, or because it has rested for a second."""

from __future__ import annotations

import asyncio
from typing import Final

from .scheduler import TICK_S

_IDLE_S: Final = 1.0


class Wakeup(asyncio.Event):
    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        #: For how long the writer has rested.
        self.idle_seconds = 0
        self._second()

    def at(self, at_s: float) -> None:
        """Then, if nothing comes before; as the loop counts."""
        if self._alarm is not None and self._alarm.when() > at_s + TICK_S:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = self._loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.set()

    async def dispatched(self) -> None:
        """Waits, and then for what this turn of the loop delivers, which leaves before a commit begins. What others send meanwhile joins
        that."""
        await self.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _second(self) -> None:
        """Wakes the writer for upkeep when it has rested since the last time. A timer for each rest would cost more than most rests."""
        self._timer = self._loop.call_later(_IDLE_S, self._second)
        self.idle_seconds += 1
        if self.idle_seconds > 1:
            self.set()

    def close(self) -> None:
        self._timer.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
