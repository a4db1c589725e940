"""Values that nobody expects, and how they get into a frame that is otherwise as it should be."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.fuzz.native_frames import ODD


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


#: msgpack has no whole number beyond 2^64 - 1 and below -2^63; floats go further.
EXTREMES: Final[list[Any]] = [
    *ODD,
    *(2**31 - 1, -(2**31), 2**32, 2**53 - 1, 2**53, 2**53 + 1, -(2**53), 2**60, 2**63 - 2, 315_360_000_000, 315_360_000_001),
    *(1e18, 1e300, -1e300, -0.0, float("-inf"), 5e-324, 0.1),
    *("x" * 70_000, "é" * 40_000, "\x00", "a\x00b", "\x1b[2J\x1b[31m", "=1+1", "'; DROP TABLE queue; --", "%", "_", ".", "#", "a..b", "::"),
    *(
        b"\xff" * 5000,
        _deep(10),
        _deep(17),
        _deep(200),
        {"a": _deep(14)},
        [None] * 2000,
        list(range(5000)),
        {str(n): n for n in range(300)},
    ),
]


def bend(chance: random.Random, value: Any, extremes: list[Any] = EXTREMES) -> Any:
    """A copy of a nested value with one place of it, however deep, replaced."""
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], bend(chance, value[at], extremes), *value[at + 1 :]]
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        return {**value, name: bend(chance, value[name], extremes)}
    return chance.choice(extremes)


def damage(chance: random.Random, data: bytes) -> bytes:
    """Bytes with one of them changed, a piece cut out or a piece put in."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(4)
    if kind == 0:
        return data[:at] + chance.randbytes(1) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[at + chance.randrange(1, 9) :]
    if kind == 2:
        return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
    return data[:at]
