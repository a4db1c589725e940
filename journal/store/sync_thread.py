"""The thread that waits for the disk, and does nothing else: the store's own may be at something longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

#: What is said when it is over, on the loop: nothing, or why it failed.
Answer = Callable[[Exception | None], None]


class SyncThread:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._asked: Final[SimpleQueue[tuple[Callable[[], None], Answer] | None]] = SimpleQueue()
        self._began_s = 0.0
        # A process whose loop has ended must still be able to end.
        Thread(target=self._serve, name="sync", daemon=True).start()

    def begin(self, sync: Callable[[], None], answer: Answer) -> None:
        """Runs ``sync``, one after the other."""
        self._began_s = time.monotonic()
        self._asked.put((sync, answer))

    @property
    def waits_s(self) -> float:
        """How long the disk has not answered the last one."""
        return time.monotonic() - self._began_s if self._began_s else 0.0

    def close(self) -> None:
        """What it is at is not waited for."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            sync, answer = asked
            error: Exception | None = None
            try:
                sync()
            except Exception as failed:
                error = failed
            self._began_s = 0.0
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(answer, error)
