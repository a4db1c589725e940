"""Numbers of things, times, durations and sizes as people say them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from ..core.settings.units import counted as counted


def clock(at_ms: int | None, *, date: bool = False, beside_ms: int | None = None) -> str:
    """A point in time in the reader's own time zone, to the millisecond; with date and zone where it is another day than ``beside_ms``,
    by default today, or with ``date``."""
    if at_ms is None:
        return "–"
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    beside = (datetime.now(UTC) if beside_ms is None else datetime.fromtimestamp(beside_ms / 1000, UTC)).astimezone()
    time_of_day = f"{at:%H:%M:%S}.{at_ms % 1000:03d}"
    return f"{at:%Y-%m-%d} {time_of_day} {at:%Z}" if date or at.date() != beside.date() else time_of_day


def span(duration_ms: float) -> str:
    """A duration as people say it: ``0 s``, ``340 ms``, ``1.2 s``, ``2 min 5 s``, ``3 h 10 min``, ``7 d``."""
    if duration_ms < 1:
        return "0 s"
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(duration_ms / 1000)
    for unit, small, size, part in (("d", "h", 86_400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole:,} {unit} {rest // part} {small}" if rest // part else f"{whole:,} {unit}"
    return f"{seconds} s"


def span_since(at_ms: int) -> str:
    """How long ago that was."""
    return span(max(0, time.time_ns() // 1_000_000 - at_ms))


def size(number: int) -> str:
    """Bytes as people say them: ``0 B``, ``4.0 KiB``, ``1.2 GiB``."""
    shown = float(number)
    for unit in ("B", "KiB", "MiB"):
        if shown < 1024:
            return f"{shown:,.0f} B" if unit == "B" else f"{shown:,.1f} {unit}"
        shown /= 1024
    return f"{shown:,.1f} GiB"
