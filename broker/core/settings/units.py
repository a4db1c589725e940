"""Durations, sizes and counts as people write them, in and out. Pure; every name carries its unit."""

from __future__ import annotations

import math
import re
from typing import Final

_DURATION_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES: Final = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)[ ]?([A-Za-z]*)", re.ASCII)
#: What every size must fit into.
_INT64_MAX: Final = 2**63 - 1
#: The longest time that anybody may ask for, wherever it comes from: ten years. Any time from now must still be one that the journal keeps.
MAX_DURATION_MS: Final = 10 * 365 * 86_400_000

DURATION_EXAMPLES: Final = "a duration such as 250ms, 5s, 10m, 2h or 7d (a bare number is milliseconds), at most 10 years"
SIZE_EXAMPLES: Final = "a size such as 4096, 64KiB, 512MiB or 1GiB (a bare number is bytes)"


def parse_duration_ms(value: object) -> int:
    """``"5s"``, ``"250ms"``, ``"1.5h"``, or a bare number of milliseconds, as whole milliseconds from 0 to MAX_DURATION_MS.

    Raises ValueError whose text says what was expected.
    """
    duration_ms = _parse(value, _DURATION_MS, "ms", DURATION_EXAMPLES)
    if duration_ms > MAX_DURATION_MS:
        raise ValueError(f"is more than 10 years; expected {DURATION_EXAMPLES}")
    return duration_ms


def known_duration_ms(duration_ms: object) -> object:
    """What an earlier version took and stored: no more than ten years."""
    return min(duration_ms, MAX_DURATION_MS) if type(duration_ms) is int else duration_ms


def parse_size_bytes(value: object) -> int:
    """``"64MiB"``, ``"1GB"``, or a bare number of bytes, as whole bytes ≥ 0. Raises ValueError whose text says what was expected."""
    return _parse(value, _SIZE_BYTES, "", SIZE_EXAMPLES)


def _parse(value: object, units: dict[str, int], bare: str, expected: str) -> int:
    if type(value) is int:
        number, unit = float(value) if abs(value) <= _INT64_MAX else math.inf, bare
        exact: int | None = value
    elif isinstance(value, str) and (found := _QUANTITY.fullmatch(value.strip())):
        number, unit = float(found[1]), found[2].lower() or bare
        exact = int(found[1]) if "." not in found[1] else None
    else:
        raise ValueError(f"expected {expected}")
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r}; expected {expected}")
    if number < 0:
        raise ValueError(f"must not be negative; expected {expected}")
    result = exact * units[unit] if exact is not None else round(number * units[unit])
    if number == math.inf or result > _INT64_MAX:
        raise ValueError(f"is larger than the broker can count; expected {expected}")
    return result


def format_duration_ms(duration_ms: int) -> str:
    """Milliseconds as the shortest exact text that ``parse_duration_ms`` reads back: ``5000`` → ``5s``, ``1500`` → ``1500ms``."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _DURATION_MS[unit] == 0:
            return f"{duration_ms // _DURATION_MS[unit]}{unit}"
    return f"{duration_ms}ms" if duration_ms else "0"


def format_size_bytes(size_bytes: int) -> str:
    """Bytes as the shortest exact text that ``parse_size_bytes`` reads back: ``67108864`` → ``64MiB``."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZE_BYTES[unit.lower()] == 0:
            return f"{size_bytes // _SIZE_BYTES[unit.lower()]}{unit}"
    return str(size_bytes)


def counted(number: int, noun: str) -> str:
    """``1 message``, ``2,000 messages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
