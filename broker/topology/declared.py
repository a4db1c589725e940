"""What is declared takes memory too: it is weighed now and then, and past half of ``memory-limit`` nothing more is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..core.memory import Kind, Memory, Owner
from ..errors import Refused

#: What one of each takes, in bytes (tests/unit/test_memory.py); a selector for each of its characters.
WEIGHTS: Final = {"queues": 3000, "consumers": 900, "selectors": 160, "producers": 400, "marks": 350, "bindings": 1000}


class Declared:
    """``count``: how many there are of what ``WEIGHTS`` names, of selectors the characters."""

    def __init__(self, memory: Memory, count: Callable[[], dict[str, int]]) -> None:
        self._memory = memory
        self._count = count
        self._owner = Owner(memory, Kind.DECLARATIONS)

    def weigh(self) -> None:
        """About once a second."""
        self._owner.hold(sum([WEIGHTS[name] * number for name, number in self._count().items()]))

    def check(self, what: str) -> None:
        """Raises Refused where there is no room for one more."""
        limit = self._memory.limit
        if self._owner.bytes > limit // 2:
            raise Refused(
                "memory-limit",
                f"no more {what}: queues, bindings, consumers and producers take {self._owner.bytes} bytes, half of memory-limit ({limit})",
                "remove some, or raise broker.memory-limit",
            )
