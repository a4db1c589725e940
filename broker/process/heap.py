"""Memory that was let go goes back to the system.

CPython gives a MiB of its own back when all in it is free; glibc keeps what it got until it is told to (docs/decisions/0022).

And here is decided when the collector looks at everything, which keeps all clients as long as there are objects to look at, some 100 ms a
million: never by itself (``run.py``), for messages are freed by their counts.
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
#: With no more than this in use the collector is done within some 20 ms, and there is little that a cache would serve.
_DRAINED_BYTES: Final = 16 << 20
#: Growth beyond what is charged, since everything was looked at last, after which cycles may be the reason.
_CYCLES_BYTES: Final = 96 << 20
#: Released again so often while it helps, since what is made between two releases keeps memory, too; else ever more rarely.
_AGAIN_S: Final = 10.0
_HELPS_BYTES: Final = 1 << 20
_MOST_RARELY_S: Final = 640.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Heap:
    """``charged``: what the account says is in use, in bytes. ``release``: lets go of what can be made again, soon."""

    def __init__(self, charged: Callable[[], int], now_s: Callable[[], float], release: Callable[[], object]) -> None:
        self._charged = charged
        self._release = release
        #: What was released is to be trimmed too, by the next look.
        self._releasing = False
        #: While nothing is in use: when to release again, how long after the last time that is, and what there was at that.
        self._again_s, self._pause_s, self._before = 0.0, _AGAIN_S, 0
        self._now_s = now_s
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._looked_s = now_s()
        #: RSS beyond what was charged, at the start; and when it had been trimmed. This rises by steps: what was given back to the account
        #: may be let go later.
        self._start = self._rest = resident_bytes() - charged()
        #: The same after everything was looked at last.
        self._collected = self._start

    def look(self) -> None:
        """Now and then."""
        now_s = self._now_s()
        if self._trim is None or now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        charged = self._charged()
        rest = resident_bytes() - charged
        drained = charged <= _DRAINED_BYTES and rest > self._start + _SLACK_BYTES
        if not drained:
            self._again_s, self._pause_s, self._before = 0.0, _AGAIN_S, 0
        trims = self._releasing or rest > self._rest + _SLACK_BYTES
        self._releasing = drained and not self._releasing and now_s >= self._again_s
        if self._releasing:
            helped = self._before == 0 or rest + _HELPS_BYTES <= self._before
            self._pause_s = _AGAIN_S if helped else min(2 * self._pause_s, _MOST_RARELY_S)
            self._again_s, self._before = now_s + self._pause_s, rest
            self._release()
        cycles = rest > self._collected + _CYCLES_BYTES
        if self._releasing or cycles:
            # Connections that have ended are cycles.
            gc.collect()
        if trims or self._releasing or cycles:
            self._trim(0)
            rest = resident_bytes() - self._charged()
        if self._releasing or cycles or rest < self._collected:
            self._collected = rest
        self._rest = rest if rest < self._rest else self._rest + (rest - self._rest) // 4


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
