"""Numbers, shares and spans as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def number(value: float) -> str:
    return f"{value:,.0f}"


def share(part: float, whole: float) -> str:
    """A percentage that never rounds something to nothing, or nearly all to all."""
    if whole == 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def span(ms: float) -> str:
    """Milliseconds as the largest units that matter: 870 ms, 5.1 s, 1 min 15 s, 1 h 2 min, 3 d 4 h."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    for large, unit_s, small, small_s in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86_400, "h", 3600)):
        parts = round(seconds / small_s)
        per = unit_s // small_s
        if large == "d" or seconds < unit_s * (60 if large == "min" else 24) - small_s / 2:
            whole, rest = divmod(parts, per)
            return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
    raise AssertionError("the last unit takes every span")


def clock(at: datetime, with_day: bool) -> str:
    return f"{at.astimezone(UTC):%d %b %H:%M}" if with_day else f"{at.astimezone(UTC):%H:%M}"


def moment(at: datetime | None) -> str:
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def plural(count: float, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
