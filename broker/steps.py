"""Work on very many messages in steps, one a turn of the loop, so that nobody else waits for all of it.

A generator that yields after each step and returns its value. Between two steps anything may happen to what is left. Where it waits for
something it yields that (``Awaited``), and is asked again when it has come; or True, where nobody can say when, and is asked again soon:
asked turn after turn, it would only keep the writer's thread from the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
Steps = Generator[Any, None, T]


class Awaited(Protocol):
    """What a step waits for, as a page from disk. When it has come, it wakes the loop."""

    came: bool


#: Messages acted on in one step: some 10 ms.
STEP: Final = 200
#: Messages only looked at in one step.
LOOK_STEP: Final = 10_000
#: Deliveries that end in one step where there are more of them than may end at once; and acknowledgements that count as one of these.
SETTLE_STEP: Final = 200
LIGHTER: Final = 3
#: No more than this end at once, as they come: of what fails, and of what is acknowledged.
MOST_AT_ONCE: Final = 1000
MOST_ACKNOWLEDGED_AT_ONCE: Final = 2000


def at_once(work: Steps[T]) -> T:
    """All steps one after the other."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            value: T = done.value
            return value
