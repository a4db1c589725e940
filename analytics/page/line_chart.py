"""Curves that fall in steps, from 100 % to 0: how many of the messages that failed still fail. SVG coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..words import NB
from .charts import log_position, log_ticks

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 12, 46


class Curve(NamedTuple):
    """``steps``: (x, the part that still fails after it), rising x; before the first the part is 1. ``css``: colours it."""

    name: str
    css: str
    steps: Sequence[tuple[float, float]]


class Axis(NamedTuple):
    """``ticks``: (position in per cent, label)."""

    low: float
    high: float
    title: str
    ticks: Sequence[tuple[float, str]]
    log: bool

    def x(self, value: float) -> float:
        part = log_position(value, self.low, self.high) if self.log else 100 * (value - self.low) / max(self.high - self.low, 1e-9)
        return LEFT + max(0.0, min(part, 100.0)) / 100 * (WIDTH - LEFT - RIGHT)


def time_axis(low_ms: float, high_ms: float, title: str) -> Axis:
    low, high = max(low_ms, 1.0), max(high_ms * 1.1, low_ms * 10)
    return Axis(low, high, title, log_ticks(low, high), log=True)


def count_axis(high: int, title: str) -> Axis:
    last = max(high, 5)
    step = max(1, -(-last // 12))
    ticks = [(100 * (n - 1) / (last - 1), str(n)) for n in range(1, last + 1) if (n - 1) % step == 0]
    return Axis(1, last, title, ticks, log=False)


def falling(curves: Sequence[Curve], axis: Axis, title: str) -> Markup:
    """The chart; later curves lie above earlier ones."""
    from markupsafe import Markup

    parts = [_frame(axis)]
    for curve in curves:
        parts.append(Markup('<path class="curve {}" d="{}"><title>{}</title></path>').format(curve.css, _line(curve, axis), curve.name))
    frame = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return frame.format(WIDTH, HEIGHT, title, Markup("").join(parts))


def _y(part: float) -> float:
    return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM)


def _line(curve: Curve, axis: Axis) -> str:
    path, before = [f"M{LEFT},{_y(1):.1f}"], 1.0
    for at, part in curve.steps:
        if part != before:
            path.append(f"H{axis.x(at):.1f}V{_y(part):.1f}")
        before = part
    last = curve.steps[-1][0] if curve.steps else axis.low
    return "".join([*path, f"H{axis.x(last):.1f}"])


def _frame(axis: Axis) -> Markup:
    from markupsafe import Markup

    parts = []
    across = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="axis" x="{}" y="{}" text-anchor="end">{}</text>')
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(across.format(LEFT, WIDTH - RIGHT, f"{y:.1f}", f"{y:.1f}", LEFT - 8, f"{y + 4:.1f}", f"{percent}{NB}%"))
    down = Markup('<line class="grid" x1="{x}" x2="{x}" y1="{}" y2="{}"/><text class="axis" x="{x}" y="{}" text-anchor="middle">{}</text>')
    for position, label in axis.ticks:
        x = f"{LEFT + position / 100 * (WIDTH - LEFT - RIGHT):.1f}"
        parts.append(down.format(f"{_y(1):.1f}", f"{_y(0) + 4:.1f}", f"{_y(0) + 19:.1f}", label, x=x))
    name = Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>')
    parts.append(name.format((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, axis.title))
    return Markup("").join(parts)
