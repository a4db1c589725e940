"""What happens often is said at once, and then at most once in a while, with how often it happened meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

#: ``extra`` of a line of the log that has a limit of its own, and is not counted with others of its kind.
APART: Final = {"apart": True}
#: Things of which this is remembered; one more is said whenever it happens.
_MOST: Final = 10_000


class Seldom(Generic[T]):
    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms
        #: When it was said last; how often it happened since, and what there is to say of the latest.
        self._said: dict[T, tuple[int, int, str]] = {}

    def add(self, thing: T, number: int, what: str, now_ms: int) -> bool:
        """It happened so many times. Whether that is to be said now; else ``due`` has it later."""
        if (before := self._said.get(thing)) is not None:
            self._said[thing] = before[0], before[1] + number, what
            return False
        if len(self._said) < _MOST:
            self._said[thing] = now_ms, 0, ""
        return True

    def due(self, now_ms: int) -> list[tuple[T, int, str]]:
        """What is to be said now, and how often it has happened since the last time. What has not is forgotten."""
        found = []
        for thing, (said_ms, number, what) in list(self._said.items()):
            if now_ms - said_ms < self._every_ms:
                continue
            if number:
                found.append((thing, number, what))
                self._said[thing] = now_ms, 0, ""
            else:
                del self._said[thing]
        return found
