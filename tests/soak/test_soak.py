"""The soak's judge, and one short soak: it takes its samples, its load does all it is to do. ``scripts/check-soak`` judges at length."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.soak.campaign import soak
from tests.soak.curves import Measure, Points, judge, slope, svg
from tests.soak.load import KINDS
from tests.soak.sampling import FILES, MEMORY, TABLES, WAL

HOUR_S = 3600
LEAK = Measure("memory", "MiB", slack=4.0, share=0.05)


def curve(per_hour: float, *, level: float = 100.0, noise: float = 0.0, warm: float = 0.0, spikes: float = 0.0) -> Points:
    """An hour in 120 points; ``warm``: what is added within the first half, ``spikes``: what every tenth point has more."""
    rng = Random(1)
    points = []
    for n in range(120):
        value = level + per_hour * n / 120 + warm * min(1.0, n / 50) + rng.uniform(-noise, noise) + (spikes if n % 10 == 0 else 0.0)
        points.append((n * HOUR_S / 120, value))
    return points


@pytest.mark.parametrize(
    ("points", "flat"),
    [
        (curve(0), True),
        (curve(0, noise=8), True),
        (curve(0, warm=200, noise=2), True),
        (curve(0, spikes=80), True),
        (curve(-50), True),
        (curve(10), True),  # 5 in the half that is judged, 9 are allowed
        (curve(25), False),
        (curve(40, noise=8), False),
        (curve(40, warm=100), False),
        (curve(40, spikes=80), False),
    ],
)
def test_a_curve_is_flat_when_its_second_half_is(points: Points, flat: bool) -> None:
    verdict = judge(LEAK, points)
    assert bool(verdict.problem) is not flat, verdict
    assert verdict.problem.startswith("memory grew by") is not flat


def test_a_ceiling_holds_at_all_times_and_too_few_points_say_nothing() -> None:
    ceiling = Measure("log", "MiB", slack=None, most=150.0)
    assert not judge(ceiling, curve(40)).problem
    assert "reached" in judge(ceiling, curve(0, spikes=80)).problem
    with pytest.raises(ValueError, match="say nothing"):
        judge(LEAK, curve(0)[:7])


def test_the_slope_is_that_of_most_points() -> None:
    assert slope([(0.0, 0.0), (1.0, 2.0), (2.0, 4.0), (3.0, 500.0), (4.0, 8.0), (5.0, 10.0)]) == pytest.approx(2.0)
    assert slope([(1.0, 1.0)]) == 0.0


def test_the_chart_shows_every_curve() -> None:
    chart = svg({LEAK: curve(10), Measure("files"): curve(0, level=0.0)})
    assert chart.count("<polyline") == 2
    assert ">memory<" in chart
    assert ">files<" in chart


@pytest.mark.timeout(120)
def test_a_short_soak_measures_what_a_long_one_judges(tmp_path: Path) -> None:
    run = soak(tmp_path, seconds=6.0, every_s=0.4, export_every_s=1.0)
    assert not run.problems, run.problems
    assert all(f" {kind}" in run.load for kind in KINDS), run.load
    curves = run.curves()
    assert {MEMORY, FILES, WAL, *TABLES.values()} <= set(curves)
    assert len(run.verdicts()) == len(curves)
    assert max(value for _, value in curves[TABLES["failure"]]) > 0
    assert min(value for _, value in curves[MEMORY]) > 10
