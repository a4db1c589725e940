"""Memory that was let go goes back to the system.

CPython gives blocks of its own back when all in them is free; glibc keeps what it got until it is told to (docs/decisions/0022).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

#: RSS beyond what is charged, since it was told last, before it is told again.
_SLACK_BYTES: Final = 24 << 20
_EVERY_S: Final = 5.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Heap:
    """``charged``: what the account says is in use, in bytes."""

    def __init__(self, charged: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._charged = charged
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
        rest = resident_bytes() - self._charged()
        if rest > self._rest + _SLACK_BYTES:
            self._trim(0)
            rest = resident_bytes() - self._charged()
        self._rest = rest if rest < self._rest else self._rest + (rest - self._rest) // 4


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
