"""The broker's long work and what sockets have brought share the turns of one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ..long_work import LoopTurns
from ..protocols.turns import Turns

#: After so long, work is looked at again that waits for what nobody tells it of, as that numbers are reserved.
_LATER_S: Final = 0.001


class LongWorkTurns(LoopTurns):
    """``wake``: the broker is to have a turn; ``failed``: gets what broke in the middle of its work."""

    def __init__(self, turns: Turns, wake: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._turns = turns
        self._wake = wake
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waits: asyncio.TimerHandle | None = None

    def late(self) -> bool:
        return self._turns.late()

    def have_next(self, act: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                act()
            except Exception as error:
                self._failed(error)

        self._turns.have_next(guarded)

    def wake_later(self) -> None:
        if self._waits is None:
            self._waits = self._loop.call_later(_LATER_S, self._waited)

    def _waited(self) -> None:
        self._waits = None
        self._wake()

    def close(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
