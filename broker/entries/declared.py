"""What is declared takes memory too: it is weighed now and then, and past half of ``memory-limit`` nothing more is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..core.memory import Kind, Memory, Owner
from ..errors import Refused

#: What one of each takes, in bytes (tests/unit/test_memory.py); a selector, and duplicate ids, for each of their characters besides.
WEIGHTS: Final = {
    "queues": 2400,
    "addresses": 400,
    "virtual hosts": 4500,
    "exchanges": 750,
    "bindings": 1350,
    "nodes of topic patterns": 200,
    "consumers": 800,
    "selectors": 100,
    "producers": 450,
    "high watermarks": 25,
    "clients with high watermarks": 320,
    "duplicate ids": 130,
    "characters of duplicate ids": 1,
}


class Declared:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._owner = Owner(memory, Kind.DECLARATIONS)

    def weigh(self, counts: Mapping[str, int]) -> None:
        """How many there are of what ``WEIGHTS`` names; about twice a second."""
        self._owner.hold(sum([WEIGHTS[name] * number for name, number in counts.items()]))

    def check(self, what: str) -> None:
        """Raises Refused where there is no room for one more."""
        limit = self._memory.limit
        if self._owner.bytes > limit // 2:
            raise Refused(
                "memory-limit",
                f"no more {what}: what is declared takes {self._owner.bytes} bytes, more than half of memory-limit ({limit})",
                "remove some, or raise broker.memory-limit",
            )
