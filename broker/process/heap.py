"""Memory that was let go goes back to the system.

CPython gives a MiB of its own back when all in it is free; glibc keeps what it got until it is told to (docs/decisions/0022).
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from typing import Final

#: RSS beyond what is charged, since it was logged last, before it is logged again.
_SLACK_BYTES: Final = 24 << 20
_EVERY_S: Final = 5.0
#: With no more than this in use the collector is done within some milliseconds, and there is nothing that a cache would serve.
_DRAINED_BYTES: Final = 4 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Heap:
    """``charged``: what the account says is in use, in bytes. ``release``: lets go of what can be made again, soon."""

    def __init__(self, charged: Callable[[], int], now_s: Callable[[], float], release: Callable[[], object]) -> None:
        self._charged = charged
        self._release = release
        #: What was released is to be trimmed too, by the next look.
        self._releasing = False
        self._now_s = now_s
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._looked_s = now_s()
        #: RSS beyond what was charged, when it had been trimmed. It rises by steps: what was given back to the account may be let go later.
        self._rest = resident_bytes() - charged()

    def look(self) -> None:
        """Now and then."""
        now_s = self._now_s()
        if self._trim is None or now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        charged = self._charged()
        rest = resident_bytes() - charged
        if self._releasing or rest > self._rest + _SLACK_BYTES:
            self._releasing = not self._releasing and charged <= _DRAINED_BYTES
            if self._releasing:
                # Connections that have ended are cycles.
                gc.collect()
                self._release()
            self._trim(0)
            rest = resident_bytes() - self._charged()
        self._rest = rest if rest < self._rest else self._rest + (rest - self._rest) // 4


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
