"""Numbers, shares and spans as people read them. A number and its unit are never parted by a line's end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: A space at which no line ends.
NB = "\N{NO-BREAK SPACE}"


def number(value: float) -> str:
    return f"{value:,.0f}"


def share(part: float, whole: float) -> str:
    """A percentage that never rounds something to nothing, or nearly all to all."""
    if whole == 0:
        return "–"
    # What is a product of parts is a little off the whole.
    percent = round(100 * part / whole, 9)
    if 0 < percent < 0.1:
        return f"<{NB}0.1{NB}%"
    if 99.9 < percent < 100:
        return f">{NB}99.9{NB}%"
    return f"{percent:.0f}{NB}%" if percent in (0, 100) else f"{percent:.1f}{NB}%"


def span(ms: float) -> str:
    """Milliseconds as the largest units that matter: 870 ms, 5.1 s, 1 min 15 s, 1 h 2 min, 3 d 4 h."""
    if ms < 1_000:
        return f"{ms:.0f}{NB}ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + f"{NB}s"
    for large, unit_s, small, small_s in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86_400, "h", 3600)):
        parts = round(seconds / small_s)
        per = unit_s // small_s
        if large == "d" or seconds < unit_s * (60 if large == "min" else 24) - small_s / 2:
            whole, rest = divmod(parts, per)
            return f"{whole}{NB}{large} {rest}{NB}{small}" if rest else f"{whole}{NB}{large}"
    raise AssertionError("the last unit takes every span")


def clock(at: datetime, with_day: bool) -> str:
    return f"{at.astimezone(UTC):%d %b %H:%M}" if with_day else f"{at.astimezone(UTC):%H:%M}"


def between(first: datetime, last: datetime) -> str:
    """From when to when, the day once where it is one, with seconds within ten minutes."""
    first, last = first.astimezone(UTC), last.astimezone(UTC)
    time = "%H:%M:%S" if last - first < timedelta(minutes=10) and (first.second or last.second) else "%H:%M"
    begin, end = f"{first:%d %b {time}}", f"{last:%d %b {time}}"
    if begin == end:
        return begin
    return f"{begin} to {last:{time}}" if first.date() == last.date() else f"{begin} to {end}"


def moment(at: datetime | None) -> str:
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def second(at: datetime | None) -> str:
    """For tables: the year is on the page already."""
    return "–" if at is None else f"{at.astimezone(UTC):%d %b %H:%M:%S}"


def plural(count: float, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def width(minutes: int) -> str:
    """Of a bin, in the largest unit that it is a whole number of."""
    one, of_it = next(each for each in (("day", 1_440), ("hour", 60), ("minute", 1)) if minutes % each[1] == 0)
    return plural(minutes // of_it, one)
