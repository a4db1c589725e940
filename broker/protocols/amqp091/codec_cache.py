"""What is worked out alike for every connection is kept for all together, within so many bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from sys import getsizeof
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T", bound=tuple[object, ...])

#: An entry in its dict, and the tuple of its key, about.
_ENTRY_BYTES: Final = 200


class SharedCache:
    """What several functions have returned, ``bytes`` in all; it begins anew before it passes ``most_bytes``.

    They are charged when they are called: to find what one has returned costs what ``functools.cache`` does.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._clear: list[Callable[[], None]] = []

    def remembers(self, function: Callable[P, T]) -> Callable[P, T]:
        """A decorator. The arguments are flat, hashable and passed by position."""

        @cache
        def found(*key: Any) -> T:
            value = function(*key)  # type: ignore[call-arg]  # positional, as said
            size = _ENTRY_BYTES + sum(map(getsizeof, key)) + sum(map(getsizeof, value))
            if self.bytes + size > self.most_bytes:
                self.clear()
            self.bytes += size
            return value

        self._clear.append(found.cache_clear)
        return cast(Callable[P, T], found)

    def clear(self) -> None:
        for clear in self._clear:
            clear()
        self.bytes = 0


#: Of all AMQP connections of the process.
SHARED: Final = SharedCache(16 << 20)
