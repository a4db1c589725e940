"""Does the truth lie where the what-if says? ``python -m benchmarks.analytics.coverage --seeds 20`` prints it and fails if it does not.

20 seeds × 5 workloads: the truth must lie in the stated 90 % interval at least 85 of 100 times, for each figure. The control asks about
the policy of another run; it must not pass, or the intervals are so wide that they say nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.analytics.truth import Case, make_cases
from homing.analytics.what_if.policy import parse_policies
from homing.analytics.what_if.what_if import what_if

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES = ("time_to_success_ms", "deliveries", "dead_letters", "peak_per_s", "out_of_order")
#: 85 of 100.
PASSING = 0.85


@dataclass(slots=True)
class Coverage:
    cases: int
    #: figure -> how many truths lay within, asked about the right policy and about another run's
    within: dict[str, int] = field(default_factory=dict)
    control: dict[str, int] = field(default_factory=dict)
    #: figure -> median width of the interval as a part of the truth
    width: dict[str, float] = field(default_factory=dict)
    #: the same where outages are in the data
    width_of_outages: dict[str, float] = field(default_factory=dict)
    #: (figure, workload, queue, low, truth, high) of the truths that lay outside
    missed: list[tuple[str, str, str, float, float, float]] = field(default_factory=list)
    #: (figure, queue, what the export told of the recorded run, what that came to), where these differ
    misread: list[tuple[str, str, float, float]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.misread and all(count >= PASSING * self.cases for count in self.within.values())

    @property
    def control_fails(self) -> bool:
        return all(count < PASSING * self.cases for count in self.control.values())


def measure(spark: SparkSession, place: Path, seeds: range, messages: int, seed: int = 1) -> Coverage:
    from homing.analytics.input.inputs import read_export
    from homing.analytics.input.source import held

    cases = make_cases(place, seeds, messages)
    export = held(read_export(spark, str(place)))

    def ask(asked: dict[str, Any]) -> dict[tuple[str, str], Any]:
        rows = what_if(export.messages, export.attempts, parse_policies(asked), seed=seed, small=True).collect()
        return {(row["queue"], row["figure"]): row for row in rows}

    found = ask({case.queue: case.asked for case in cases})
    control = ask({case.queue: other for case, other in zip(cases, shuffled(cases), strict=True)})
    coverage = Coverage(len(cases))
    for figure in FIGURES:
        widths: list[tuple[str, float]] = []
        coverage.within[figure] = coverage.control[figure] = 0
        for case in cases:
            truth, row, wrong = float(getattr(case.truth, figure)), found[case.queue, figure], control[case.queue, figure]
            reported, came = float(row["recorded"]), float(getattr(case.record, figure))
            if abs(reported - came) > 1e-6 * came:
                coverage.misread.append((figure, case.queue, reported, came))
            inside = row["low"] <= truth <= row["high"]
            coverage.within[figure] += inside
            coverage.control[figure] += wrong["low"] <= truth <= wrong["high"]
            widths.append((case.workload, (row["high"] - row["low"]) / truth if truth else 0.0))
            if not inside:
                coverage.missed.append((figure, case.workload, case.queue, row["low"], truth, row["high"]))
        coverage.width[figure] = statistics.median(width for _, width in widths)
        coverage.width_of_outages[figure] = statistics.median(width for workload, width in widths if workload == "outages")
    return coverage


def shuffled(cases: list[Case]) -> list[dict[str, Any]]:
    """For each case a policy that another one was asked about, and not its own."""
    rng = random.Random("control")
    asked = {id(case.asked): dict(case.asked) for case in cases}
    return [rng.choice([each for each in asked.values() if each != case.asked]) for case in cases]


def main() -> int:
    from homing.analytics.spark.session import spark_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.analytics.coverage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--messages", type=int, default=400, help="of each run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, spark_session("local[*]") as spark:
        result = measure(spark, Path(place) / "dump", range(given.first, given.first + given.seeds), given.messages)
    for figure in FIGURES:
        print(
            f"{figure:20} within {result.within[figure]:3} of {result.cases}   control {result.control[figure]:3}   "
            f"median width {100 * result.width[figure]:.0f} % of the truth, of outages {100 * result.width_of_outages[figure]:.0f} %"
        )
    for figure, _, queue, low, truth, high in result.missed:
        print(f"  outside: {queue:12} {figure:20} {low:12.1f} … {high:12.1f}   truth {truth:12.1f}")
    for figure, queue, reported, came in result.misread:
        print(f"  of the record: {queue:12} {figure:20} told {reported:12.1f}   was {came:12.1f}")
    print(
        "holds" if result.holds else "DOES NOT HOLD", "· the control fails, as it must" if result.control_fails else "· THE CONTROL PASSES"
    )
    return 0 if result.holds and result.control_fails else 1


if __name__ == "__main__":
    sys.exit(main())
