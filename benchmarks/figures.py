"""Rounds into medians, spread and ratios; as a table for people and as JSON for everything else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.stage import Figures

LABELS = {
    "msgs_per_s": "messages/s",
    "deliveries_per_s": "deliveries/s",
    "cpu_s_per_100k": "broker CPU s per 100,000",
    "peak_rss_mib": "peak RSS MiB",
    "written_mib_per_100k": "MiB written per 100,000",
    "rows_per_message": "rows written per message",
}


@dataclass
class Result:
    """All rounds of one broker in one scenario. ``failure`` says why there are none, or fewer than asked for."""

    scenario: str
    peer: str
    rounds: list[Figures] = field(default_factory=list)
    failure: str | None = None

    def median(self, name: str) -> float | None:
        values = self.values(name)
        return statistics.median(values) if values else None

    def values(self, name: str) -> list[float]:
        return [figures[name] for figures in self.rounds if name in figures]


@dataclass
class Report:
    """Everything one run of the harness found."""

    started: str
    machine: dict[str, Any]
    parameters: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    #: What the machine itself could do before each round: ``syncs_per_s``, ``sqlite_commits_per_s``, ``load``.
    baseline: list[Figures] = field(default_factory=list)
    #: scenario -> peer -> system calls that sync, counted in a run of its own.
    syncs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def of(self, scenario: str) -> list[Result]:
        return [result for result in self.results if result.scenario == scenario]

    def result(self, scenario: str, peer: str) -> Result:
        """The one for these two, made when it is not there yet."""
        for each in self.of(scenario):
            if each.peer == peer:
                return each
        self.results.append(Result(scenario, peer))
        return self.results[-1]

    def write_json(self, path: Path) -> None:
        document = asdict(self)
        for entry, result in zip(document["results"], self.results, strict=True):
            names = sorted({name for figures in result.rounds for name in figures})
            entry["median"] = {name: result.median(name) for name in names}
            entry["spread"] = {name: [min(result.values(name)), max(result.values(name))] for name in names}
        path.write_text(json.dumps(document, indent=1) + "\n")


def number(value: float | None) -> str:
    """Three significant digits or whole thousands: more would pretend a precision that is not there."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(report: Report) -> str:
    lines: list[str] = []
    for key in dict.fromkeys(result.scenario for result in report.results):
        lines += [*_scenario_lines(SCENARIOS[key], report.of(key)), ""]
    lines += _baseline_lines(report.baseline) + _sync_lines(report.syncs)
    return "\n".join(lines)


def _scenario_lines(scenario: Scenario, results: list[Result]) -> Iterable[str]:
    yield f"{scenario.key}  {scenario.title}"
    ours = next((result.median(scenario.main) for result in results if result.peer == "homing"), None)
    for result in results:
        values = result.values(scenario.main)
        if values:
            value, spread = number(result.median(scenario.main)), f"{number(min(values))} … {number(max(values))}"
            yield f"  {result.peer:<24} {value:>10} {scenario.unit:<13} {spread:<22} {_ratio(scenario, ours, result)}".rstrip()
            also = [f"{LABELS.get(name, name)} {number(result.median(name))}" for name in scenario.also if result.median(name) is not None]
            yield f"  {'':<24} {'; '.join(also)}"
        if result.failure:
            yield f"  {result.peer:<24} {'FAILED after ' + str(len(result.rounds)) + ' rounds: ' if values else ''}{result.failure}"


def _ratio(scenario: Scenario, ours: float | None, result: Result) -> str:
    """How many times better Homing is than this one; below 1 it is worse."""
    theirs = result.median(scenario.main)
    if not ours or not theirs or result.peer == "homing":
        return ""
    return f"homing is {ours / theirs if scenario.higher_is_better else theirs / ours:.2f} ×"


def _baseline_lines(baseline: list[Figures]) -> list[str]:
    if not baseline:
        return []
    parts = []
    for name in baseline[0]:
        values = [each[name] for each in baseline]
        parts.append(f"{name} {number(statistics.median(values))} ({number(min(values))} … {number(max(values))})")
    return [f"machine before each round: {'; '.join(parts)}"]


def _sync_lines(syncs: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    return [
        f"{scenario} {peer}: " + (", ".join(f"{call} {count:,.0f}" for call, count in sorted(calls.items())) or "no sync at all")
        for scenario, peers in syncs.items()
        for peer, calls in peers.items()
    ]
