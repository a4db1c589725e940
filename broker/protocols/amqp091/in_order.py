"""What leaves in the order in which it was asked for, though some of it waits for the disk: a client matches answers to methods by that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

Act = Callable[[], None]


class InOrder:
    """``when_safe``: calls back once everything so far is on disk."""

    __slots__ = ("_line", "_when_safe")

    def __init__(self, when_safe: Callable[[Act], None]) -> None:
        self._when_safe: Final = when_safe
        #: Those that wait, and behind them those whose turn it is not yet; with each, whether it is ready.
        self._line: deque[_Place] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._line)

    def now(self, act: Act) -> None:
        """Does it at once, or behind what waits."""
        if self._line:
            self._line.append(_Place(act, True))
        else:
            act()

    def when_safe(self, act: Act) -> None:
        place = _Place(act, False)
        self._line.append(place)
        self._when_safe(lambda: self._safe(place))

    def _safe(self, place: _Place) -> None:
        place.ready = True
        line = self._line
        while line and line[0].ready:
            line.popleft().act()


class _Place:
    __slots__ = ("act", "ready")

    def __init__(self, act: Act, ready: bool) -> None:
        self.act = act
        self.ready = ready
