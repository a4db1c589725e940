"""One account of memory: what clients cause to be held is charged to its owner when it comes, and given back when it goes.

``memory-limit`` acts on the sum. Queues may take all of it; whatever else there is shares half (``room``), so that half is always
for messages. What an object is charged is about what it takes (tests/unit/test_memory.py measures that).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
#: One of very many caches takes no more than this part of memory-limit.
_SHARE_OF_CACHE: Final = 64


class Kind(IntEnum):
    """What kind of thing an owner is."""

    #: Messages: bodies, properties, references.
    QUEUES = 0
    #: Frames that are not whole yet, and answers that nobody has read.
    CONNECTIONS = 1
    #: Transactions: of sessions, and of AMQP's channels.
    SESSIONS = 2
    CACHES = 3
    #: What is declared: addresses, queues, bindings, subscriptions, producers and their marks.
    DECLARATIONS = 4
    #: Fault groups.
    FAULTS = 5


class Memory:
    """The sum. ``limit`` in bytes; ``unwritten``: what the journal holds until it is on disk."""

    __slots__ = ("_kinds", "_unwritten", "charged", "limit")

    def __init__(self, limit: int, unwritten: Callable[[], int] = lambda: 0) -> None:
        self.limit = limit
        self._unwritten = unwritten
        #: All but what the journal holds. Queues, which every message passes, add to it themselves: what is of no other kind is theirs.
        self.charged = 0
        self._kinds = [0] * len(Kind)

    def charge(self, kind: int, size: int) -> None:
        """So many bytes more, or less, of owners of a kind, but queues, that count their own."""
        self._kinds[kind] += size
        self.charged += size

    @property
    def by_kind(self) -> list[int]:
        kinds = self._kinds.copy()
        kinds[Kind.QUEUES] = self.charged - sum(kinds)
        return kinds

    @property
    def bytes(self) -> int:
        return self.charged + self._unwritten()

    @property
    def full(self) -> bool:
        """Whether producers wait."""
        return self.bytes >= self.limit

    def room(self) -> int:
        """What may still be taken by anything but messages, and fault groups, which have a share of their own; below 0 where it is too much
        already."""
        return self.limit // 2 - (sum(self._kinds) - self._kinds[Kind.FAULTS])

    def describe(self) -> dict[str, int]:
        """Bytes by kind of owner, the journal among them."""
        return {**{kind.name.lower(): size for kind, size in zip(Kind, self.by_kind, strict=True)}, "journal": self._unwritten()}


class Owner:
    """Whoever something is charged to. What it holds is given back at its end (``close``)."""

    __slots__ = ("_kind", "_memory", "bytes")

    def __init__(self, memory: Memory, kind: Kind) -> None:
        self._memory = memory
        self._kind = int(kind)
        self.bytes = 0

    def charge(self, size: int) -> None:
        """So many bytes more; less, where it is below 0."""
        self.bytes += size
        self._memory.charge(self._kind, size)

    def hold(self, size: int) -> None:
        """So many bytes in all from now on."""
        if size != self.bytes:
            self.charge(size - self.bytes)

    def close(self) -> None:
        self.hold(0)


class Cache(Generic[Key, Value]):
    """What was worked out and may come again, in so many bytes at most: ``found`` is to be asked. When it is full it begins anew."""

    __slots__ = ("_memory", "_most_bytes", "_owner", "found")

    def __init__(self, memory: Memory, most_bytes: int) -> None:
        self._memory = memory
        self._most_bytes = min(most_bytes, memory.limit // _SHARE_OF_CACHE)
        self._owner = Owner(memory, Kind.CACHES)
        self.found: dict[Key, Value] = {}

    def keep(self, key: Key, value: Value, size: int) -> None:
        """``size``: what key and value take. Nothing is kept where there is no room for anything but messages."""
        if key in self.found:
            self.found[key] = value
            return
        if self._owner.bytes + size > self._most_bytes or self._memory.room() < size:
            self.clear()
        if size <= self._most_bytes and self._memory.room() >= size:
            self.found[key] = value
            self._owner.charge(size)

    def clear(self) -> None:
        self.found.clear()
        self._owner.close()
