"""Whose input is acted on in this turn of the loop, and whose in a later one.

A confirm passes some seven turns on its way, and each of them reads every socket. So what is much waits in line as soon as a turn has taken
long enough, and is not read meanwhile; those in line go on one after the other. Where somebody's took longer than that all the same, as
many turns pass without another. Little is always acted on at once: who sends one message waits for nobody in this line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

#: How long a turn may have taken when something more is begun in it.
TURN_S: Final = 0.005
#: So many turns pass for each such time that one has taken longer.
_REST: Final = 3
#: And no more than these: a confirm has passed all its turns by then.
_MOST_REST: Final = 20


class Turns:
    """Of all connections. ``call_soon``: calls what it is given in the loop's next turn."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now_s: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._now_s = now_s
        self._line: deque[Callable[[], None]] = deque()
        #: When the first of this turn began; the next turn is heard of.
        self._began_s = 0.0
        self._called = False
        #: Turns that are to pass before anybody goes on.
        self._owed = 0

    def late(self) -> bool:
        """Whether nothing more is to be begun in this turn. Asked first in a turn, it says when that begins."""
        if not self._called:
            self._begin()
            return False
        now_s = self._now_s()
        self._owed = max(self._owed, min(_MOST_REST, _REST * int((now_s - self._began_s) / TURN_S)))
        return self._owed > 0

    def full(self) -> bool:
        """Whether who comes now has to ``wait``."""
        return self.late() or bool(self._line)

    def wait(self, go_on: Callable[[], None]) -> None:
        """``go_on`` is called in a later turn. It may not raise, and may wait again."""
        self._line.append(go_on)
        self._begin()

    def have_next(self, go_on: Callable[[], None]) -> None:
        """Like ``wait``, and only the first in line goes before it."""
        self._line.insert(1, go_on)
        self._begin()

    def _begin(self) -> None:
        """The turn begins, unless it has, and the next is heard of."""
        if not self._called:
            self._began_s = self._now_s()
            self._call()

    def _call(self) -> None:
        self._called = True
        self._call_soon(self._next)

    def _next(self) -> None:
        self._began_s = self._now_s()
        if self._owed:
            self._owed -= 1
        else:
            while self._line:
                self._line.popleft()()
                if self.late():
                    break
        self._called = False
        if self._line or self._owed:
            self._call()
