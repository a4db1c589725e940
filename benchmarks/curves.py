"""``python -m benchmarks.curves`` (scripts/bench-curves): how Homing's cost grows with body size, queue length, queues and consumers."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from math import log10
from pathlib import Path
from typing import Final

from benchmarks.figures import number
from benchmarks.load import ROOT, LoadError
from benchmarks.peers.homing import Homing
from benchmarks.scenarios import PREFETCH, QUEUE, WINDOW, s1_durable, s4_backlog
from benchmarks.stage import Cost, Figures, Stage


@dataclass(frozen=True, slots=True)
class Curve:
    """``points``: (value on the axis, messages, body bytes). ``main`` is drawn; ``also`` is printed beside it."""

    name: str
    axis: str
    main: str
    also: tuple[str, ...]
    points: tuple[tuple[int, int, int], ...]
    run: Callable[[Stage, int, int], Figures]


def _body_size(stage: Stage, value: int, count: int) -> Figures:
    return s1_durable(stage, {"count": count})


def _length(stage: Stage, value: int, count: int) -> Figures:
    return s4_backlog(stage, {"count": count, "window": WINDOW, "settle_s": 1})


def _queues(stage: Stage, value: int, count: int) -> Figures:
    return _spread(stage, count, {"queues": value, "connections": min(value, 10)}, {"queues": value, "connections": min(value, 10)})


def _consumers(stage: Stage, value: int, count: int) -> Figures:
    return _spread(stage, count, {"queues": 1, "connections": 1}, {"queues": 1, "connections": value})


def _spread(stage: Stage, count: int, produce: Mapping[str, int], consume: Mapping[str, int]) -> Figures:
    stage.start(QUEUE, queues=produce["queues"])
    places = max(produce["queues"], consume["connections"])
    window, prefetch = max(1, WINDOW // produce["queues"]), max(1, PREFETCH // places)
    sending = {"queue": QUEUE, "window": window, **produce}
    receiving = {"queue": QUEUE, "prefetch": prefetch, "ack": "each", **consume}
    stage.run_both(max(places, count // 10), sending, receiving)
    cost = Cost(stage)
    sent, got = stage.run_both(count, sending, receiving)
    took_s = (max(sent["ended_ns"], got["ended_ns"]) - sent["started_ns"]) / 1e9
    return {"msgs_per_s": count / took_s} | cost.figures(count)


_SIZES: Final = ((100, 200_000), (1_024, 200_000), (10_240, 30_000), (102_400, 3_000), (1_048_576, 300))
_RATE: Final = ("cpu_s_per_100k", "peak_rss_mib")
CURVES: Final = (
    Curve("size", "bytes of a body", "msgs_per_s", _RATE, tuple((size, count, size) for size, count in _SIZES), _body_size),
    Curve(
        "length", "messages in the queue (100 bytes)", "drain_per_s", ("fill_per_s", "peak_rss_mib", "serves_after_s"),
        tuple((10**power, 10**power, 100) for power in range(3, 8)), _length,
    ),
    Curve("queues", "queues", "msgs_per_s", _RATE, tuple((10**power, 100_000, 1024) for power in range(5)), _queues),
    Curve("consumers", "consumers of one queue", "msgs_per_s", _RATE, tuple((10**power, 100_000, 1024) for power in range(4)), _consumers),
)  # fmt: skip

Points = list[tuple[int, Figures]]


def measure(curve: Curve, deadline_s: float, most: int, smoke: bool) -> Points:
    points: Points = []
    for value, count, body in curve.points:
        if value > most:
            break
        count = max(value if curve.name != "size" else 1, count // 500) if smoke else count
        try:
            with (
                tempfile.TemporaryDirectory(prefix="homing-curve-", ignore_cleanup_errors=True) as folder,
                Stage(Homing(Path(folder) / "homing"), body, deadline_s) as stage,
            ):
                figures = curve.run(stage, value, count)
        except LoadError as error:
            print(f"{curve.name} {value:,}: {error}", file=sys.stderr, flush=True)
            break
        points.append((value, figures))
        shown = "; ".join(f"{name} {number(figures[name])}" for name in (curve.main, *curve.also))
        print(f"{curve.name:<10}{value:>12,} {curve.axis}: {shown}", flush=True)
    return points


def svg(found: Mapping[str, Points]) -> str:
    """One small panel a curve: the figure over a logarithmic axis, from zero."""
    panels = [_panel(curve, found[curve.name], 30 + 230 * row) for row, curve in enumerate(CURVES) if found.get(curve.name)]
    height = 230 * len(panels) + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="640" height="{height}" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def _panel(curve: Curve, points: Points, top: int) -> str:
    most = max(figures[curve.main] for _, figures in points)
    first, last = log10(points[0][0]), max(log10(points[-1][0]), log10(points[0][0]) + 1)
    at = [
        (70 + (log10(value) - first) / (last - first) * 500, top + 180 - figures[curve.main] / most * 150, value, figures)
        for value, figures in points
    ]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in at)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#1f6f5c"/><text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">'
        f'{number(figures[curve.main])}</text><text x="{x:.1f}" y="{top + 198}" text-anchor="middle" fill="#5d6a73">{value:,}</text>'
        for x, y, value, figures in at
    )
    title = f"messages {'drained ' if curve.main == 'drain_per_s' else ''}a second, by {curve.axis}"
    return (
        f'<text x="16" y="{top + 6}" font-weight="600" fill="#1d2429">{escape(title)}</text>'
        f'<path d="M70 {top + 180}H600" stroke="#a9b4bd"/><path d="{line}" fill="none" stroke="#1f6f5c" stroke-width="2"/>{dots}'
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-curves", description=__doc__)
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"which: {', '.join(curve.name for curve in CURVES)} (default: all)")
    parser.add_argument("--most", type=int, default=10**7, help="no point beyond this on the axis")
    parser.add_argument("--deadline", type=float, default=600, help="seconds after which a load client gives up (default 600)")
    parser.add_argument("--smoke", action="store_true", help="few messages: only whether it works")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "curves", metavar="DIR", help="keeps the curves of an earlier run not asked for now"
    )
    chosen = parser.parse_args(words)
    if unknown := set(chosen.curves) - {curve.name for curve in CURVES}:
        parser.error(f"there is no curve {', '.join(sorted(unknown))}")
    wanted = [curve for curve in CURVES if not chosen.curves or curve.name in chosen.curves]
    found = {curve.name: measure(curve, chosen.deadline, chosen.most, chosen.smoke) for curve in wanted}
    chosen.out.mkdir(parents=True, exist_ok=True)
    figures = chosen.out / "curves.json"
    drawn = (json.loads(figures.read_text()) if figures.exists() else {}) | found
    figures.write_text(json.dumps(drawn, indent=1))
    (chosen.out / "curves.svg").write_text(svg(drawn))
    print(f"written: {chosen.out / 'curves.json'}, {chosen.out / 'curves.svg'}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
