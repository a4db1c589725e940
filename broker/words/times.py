"""Durations and times as they are typed: ``2h``, ``01:30``, ``2026-11-23T09:00``; in the reader's zone where they name none."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from ..core.settings.units import parse_duration_ms

_DURATION: Final = re.compile(r"\d+(\.\d+)?\s*[a-z]+")
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d)?")


def duration_ms(text: str | int) -> int:
    """Raises ValueError, as all here do."""
    return parse_duration_ms(int(text) if isinstance(text, int) or text.isdecimal() else text)


def time_before(text: str) -> int:
    """``2h`` ago, the last ``01:30``, or a date and time; in ms since 1970."""
    return _time(text, -1)


def time_after(text: str) -> int:
    """In ``2h``, the next ``01:30``, or a date and time; in ms since 1970."""
    return _time(text, 1)


def in_utc(text: str) -> str:
    """The last ``01:30`` of the reader's zone, or ``24h`` ago, as a date and time of UTC; whatever else as it is."""
    is_near = _CLOCK.fullmatch(text) or _DURATION.fullmatch(text)
    at = datetime.fromtimestamp(time_before(text) / 1000, UTC) if is_near else None
    return text if at is None else f"{at:%Y-%m-%dT%H:%M:%S}"


def _time(text: str, way: int) -> int:
    """``way``: 1 for times to come, -1 for those that were."""
    if _DURATION.fullmatch(text):
        return time.time_ns() // 1_000_000 + way * duration_ms(text)
    try:
        if _CLOCK.fullmatch(text):
            return _ms(_of_the_clock(text, way))
        return _ms(datetime.fromisoformat(text))
    except ValueError:
        what = "neither a duration, such as 2h, nor a time, such as 01:30 or 2026-11-23T09:00"
        raise ValueError(f"{text!r} is {what}") from None


def _of_the_clock(text: str, way: int) -> datetime:
    now, said = datetime.now(), datetime.strptime(text, "%H:%M:%S" if text.count(":") > 1 else "%H:%M").time()
    at = datetime.combine(now.date(), said)
    return at + timedelta(days=way) if (at - now).total_seconds() * way < 0 else at


def _ms(at: datetime) -> int:
    return int(at.astimezone().timestamp() * 1000)
