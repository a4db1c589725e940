"""Pages that are wanted: of one queue, and by those who look at everything; one of each in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .pages import Page, Wanted


class Read(NamedTuple):
    """A page that is wanted, who takes it, and who is notified that it cannot be had."""

    wanted: Wanted
    take: Callable[[Page], None]
    failed: Callable[[Exception], None]


class Turns:
    def __init__(self) -> None:
        self._reads: deque[Read] = deque()
        self._scans: deque[Read] = deque()
        self._scan_is_next = False

    def __bool__(self) -> bool:
        return bool(self._reads or self._scans)

    def add(self, read: Read) -> None:
        (self._scans if read.wanted.kind == "all" else self._reads).append(read)

    @property
    def _in_turn(self) -> deque[Read]:
        return (self._scans or self._reads) if self._scan_is_next else (self._reads or self._scans)

    @property
    def next_wanted(self) -> Wanted:
        return self._in_turn[0].wanted

    def pop(self) -> Read:
        read = self._in_turn.popleft()
        self._scan_is_next = not self._scan_is_next
        return read
