"""The two charts that need drawing: columns over time, and a histogram. SVG whose colours come from the page's style sheet.

What they are given is escaped by Markup's own formatting; everything else here is a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..words import number, span

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 28


class Bar(NamedTuple):
    """One column: its label below (empty: none), what a pointer resting on it is shown, and its values from the bottom up."""

    label: str
    hint: str
    values: tuple[float, ...]


def columns(bars: Sequence[Bar], classes: Sequence[str], title: str, *, gap: float = 0.15) -> Markup:
    """Stacked columns. ``classes[i]``: the CSS class that colours value i. ``title``: for those who do not see it."""
    from markupsafe import Markup

    top = nice_ceiling(max((sum(bar.values) for bar in bars), default=0))
    width = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    parts = [_grid(top)]
    for index, bar in enumerate(bars):
        x = LEFT + index * width
        parts.append(_column(bar, classes, x + width * gap / 2, width * (1 - gap), top))
        if bar.label:
            middle = x + width / 2
            anchor, at = ("start", x) if index == 0 and len(bars) > 20 else ("middle", middle)
            if at > WIDTH - RIGHT - len(bar.label) * 3.5:  # else its end would be cut off
                anchor, at = "end", WIDTH - RIGHT
            label = Markup('<text class="axis" x="{}" y="{}" text-anchor="{}">{}</text>')
            parts.append(label.format(f"{at:.1f}", HEIGHT - 8, anchor, bar.label))
    frame = Markup('<svg class="columns" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return frame.format(WIDTH, HEIGHT, title, Markup("").join(parts))


def _column(bar: Bar, classes: Sequence[str], x: float, width: float, top: float) -> Markup:
    from markupsafe import Markup

    parts = []
    y = float(HEIGHT - BOTTOM)
    for value, css in zip(bar.values, classes, strict=True):
        height = value / top * (HEIGHT - TOP - BOTTOM)
        y -= height
        if value:
            rect = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
            parts.append(rect.format(css, f"{x:.1f}", f"{y:.1f}", f"{max(width, 1):.1f}", f"{height:.1f}"))
    hover = Markup('<rect class="hover" x="{}" y="{}" width="{}" height="{}"/>')
    parts.append(hover.format(f"{x:.1f}", TOP, f"{max(width, 1):.1f}", HEIGHT - TOP - BOTTOM))
    return Markup("<g>{}<title>{}</title></g>").format(Markup("").join(parts), bar.hint)


def _grid(top: float) -> Markup:
    from markupsafe import Markup

    parts = []
    for step in range(5):
        value = top * step / 4
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
        line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="axis" x="{}" y="{}" text-anchor="end">{}</text>')
        parts.append(line.format(LEFT, WIDTH - RIGHT, f"{y:.1f}", f"{y:.1f}", LEFT - 8, f"{y + 4:.1f}", short(value)))
    return Markup("").join(parts)


def sparkline(values: Sequence[float], title: str) -> Markup:
    """A column for each value, without axes."""
    from markupsafe import Markup

    most, rect = max(values, default=0) or 1, Markup('<rect x="{}" y="{}" width="3" height="{}"/>')
    bars = [rect.format(4 * at, f"{20 - 20 * value / most:.1f}", f"{20 * value / most:.1f}") for at, value in enumerate(values) if value]
    frame = Markup('<svg class="spark" viewBox="0 0 {} 20" role="img" aria-label="{}"><title>{}</title>{}</svg>')
    return frame.format(4 * len(values), title, title, Markup("").join(bars))


def short(value: float) -> str:
    """Of five characters at most, as there is room for on a phone."""
    if value < 10_000:
        return number(value)
    return f"{value / 1_000:g}k" if value < 1_000_000 else f"{value / 1_000_000:g}M"


def nice_ceiling(value: float) -> float:
    """The smallest number ≥ value whose quarters are whole and round."""
    if value <= 4:
        return 4
    unit = 10.0 ** int(math.log10(value / 4))
    quarters = (unit * step for step in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10))
    return next(4 * quarter for quarter in quarters if 4 * quarter >= value and quarter.is_integer())


def log_position(value: float, low: float, high: float) -> float:
    """Where ``value`` lies on a logarithmic axis from low to high, as a percentage."""
    if high <= low:
        return 50.0
    return 100 * (math.log(max(value, low)) - math.log(low)) / (math.log(high) - math.log(low))


def log_ticks(low_ms: float, high_ms: float) -> list[tuple[float, str]]:
    """(position, label) of round times on a logarithmic axis, far enough apart to be read."""
    rounds = (1, 10, 100, 1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
    ticks: list[tuple[float, str]] = []
    for at in rounds:
        position = log_position(at, low_ms, high_ms)
        if low_ms <= at <= high_ms and position < 97 and (not ticks or position - ticks[-1][0] > 7):
            ticks.append((position, span(at)))
    return ticks
