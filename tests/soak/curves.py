"""Is a curve flat? Judged by the second half of it: what a process takes to get warm is not a leak. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Measure:
    """``slack`` and ``share``: how much it may grow over the second half, in its unit and as a share of its level then. ``most``: its
    ceiling at all times, None without one; a measure with ``most`` only (``slack`` None) may do below it what it likes."""

    name: str
    unit: str = ""
    slack: float | None = 0.0
    share: float = 0.0
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``growth``: over the second half, by its median slope; ``allowed``: how much it might have been."""

    measure: Measure
    first: float
    level: float
    last: float
    highest: float
    growth: float
    allowed: float

    @property
    def problem(self) -> str:
        """What is wrong with the curve; "" where nothing is."""
        measure = self.measure
        if measure.slack is not None and self.growth > self.allowed:
            return f"{measure.name} grew by {self.growth:.1f} {measure.unit} over the second half; {self.allowed:.1f} are allowed"
        if measure.most is not None and self.highest > measure.most:
            return f"{measure.name} reached {self.highest:.1f} {measure.unit}; {measure.most:.1f} are allowed"
        return ""


#: Fewer say nothing.
LEAST_POINTS: Final = 8


def slope(points: Points) -> float:
    """The median of the slopes between all pairs (Theil and Sen): a few outliers, whichever, do not move it."""
    slopes = [(b - a) / (u - t) for n, (t, a) in enumerate(points) for u, b in points[n + 1 :] if u > t]
    return median(slopes) if slopes else 0.0


def judge(measure: Measure, points: Points) -> Verdict:
    """Raises ValueError where there are too few points to say anything."""
    if len(points) < LEAST_POINTS:
        raise ValueError(f"{len(points)} points of {measure.name} say nothing; {LEAST_POINTS} would")
    half = points[len(points) // 2 :]
    level = median(value for _, value in half)
    growth = slope(half) * (half[-1][0] - half[0][0])
    allowed = (measure.slack or 0.0) + measure.share * level
    values = [value for _, value in points]
    return Verdict(measure, values[0], level, values[-1], max(values), growth, allowed)


def svg(curves: Mapping[Measure, Points]) -> str:
    """All curves below one another, each from 0 to its own maximum; the half that was judged is shaded."""
    width, height, left = 640, 60, 230
    parts = []
    for row, (measure, points) in enumerate(curves.items()):
        top = row * (height + 14) + 10
        begin, end = points[0][0], points[-1][0]
        highest = max((value for _, value in points), default=0.0) or 1.0
        span = (end - begin) or 1.0
        line = " ".join(f"{left + (t - begin) / span * width:.1f},{top + height - value / highest * height:.1f}" for t, value in points)
        parts += [
            f'<rect x="{left + width / 2}" y="{top}" width="{width / 2}" height="{height}" fill="#8884" />',
            f'<polyline points="{line}" fill="none" stroke="#2a6f97" stroke-width="1.5" />',
            f'<text x="{left - 10}" y="{top + 24}" text-anchor="end">{measure.name}</text>',
            f'<text x="{left - 10}" y="{top + 42}" text-anchor="end" fill="#888">0 to {highest:,.1f} {measure.unit}</text>',
        ]
    size = f'width="{left + width + 20}" height="{len(curves) * (height + 14) + 20}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">{"".join(parts)}</svg>\n'
