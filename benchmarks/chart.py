"""One self-contained SVG: for each scenario a bar a broker (its median) with a line over all rounds."""

from __future__ import annotations

from html import escape

from benchmarks.figures import Report, Result, number
from benchmarks.scenarios import SCENARIOS, Scenario

WIDTH, LEFT, BAR, GAP, RIGHT = 900, 190, 20, 8, 210
OURS, THEIRS, INK, PALE = "#1f6f5c", "#a9b4bd", "#1d2429", "#5d6a73"


def svg(report: Report) -> str:
    parts: list[str] = []
    top = 58
    for key in sorted({result.scenario for result in report.results}):
        results = [result for result in report.of(key) if result.median(SCENARIOS[key].main) is not None]
        if results:
            parts.append(_panel(SCENARIOS[key], results, top))
            top += 40 + len(results) * (BAR + GAP) + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img">'
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>'
        f'<text x="16" y="28" font-size="18" font-weight="600" fill="{INK}">Brokers side by side</text>'
        f'<text x="16" y="46" fill="{PALE}">{escape(_subtitle(report))}</text>'
    )
    return head + "".join(parts) + "</svg>\n"


def _subtitle(report: Report) -> str:
    rounds = report.parameters.get("rounds")
    return f"{report.machine.get('cpu')}, {report.machine.get('cpus')} CPUs; median of {rounds} rounds, line: all rounds"


def _panel(scenario: Scenario, results: list[Result], top: int) -> str:
    better = "longer is better" if scenario.higher_is_better else "shorter is better"
    most = max(max(result.values(scenario.main)) for result in results) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    title = f"{scenario.key}  {scenario.title} ({scenario.unit}, {better})"
    parts = [f'<text x="16" y="{top + 20}" font-weight="600" fill="{INK}">{escape(title)}</text>']
    for row, result in enumerate(results):
        parts.append(_bar(scenario, result, top + 32 + row * (BAR + GAP), scale))
    return "".join(parts)


def _bar(scenario: Scenario, result: Result, y: int, scale: float) -> str:
    values = result.values(scenario.main)
    median = result.median(scenario.main) or 0.0
    colour = OURS if result.peer.startswith("homing") else THEIRS
    middle, low, high = y + BAR / 2, LEFT + min(values) * scale, LEFT + max(values) * scale
    return (
        f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="{INK}">{escape(result.peer)}</text>'
        f'<rect x="{LEFT}" y="{y}" width="{max(1.0, median * scale):.1f}" height="{BAR}" fill="{colour}"/>'
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" stroke="{INK}" fill="none"/>'
        f'<text x="{high + 8:.1f}" y="{y + 15}" fill="{INK}">{number(median)} {escape(scenario.unit)}</text>'
    )
