"""What is read first is true: of workloads with one planted cause, or none, the report finds the cause first and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from homing.analytics.commands.analyze import analyze
from homing.analytics.commands.simulate import simulate
from tests.acceptance.spark_support import session
from tests.truth.causes import Play, Scene, run
from tests.truth.scenes import POISON, TEN_MESSAGES, Verdict, drawn, judged

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Planted(NamedTuple):
    scenes: list[Scene]
    dump: Path
    findings: list[dict[str, Any]]
    verdict: Verdict


def plant(plays: list[tuple[Scene, Play]], directory: Path) -> Planted:
    dump = directory / "dump"
    scenes = [scene for scene, _ in plays]
    logging.disable(logging.ERROR)  # each failure is told there
    try:
        asyncio.run(run(plays, dump))
    finally:
        logging.disable(logging.NOTSET)
    session()
    analyze(dump, directory / "report")
    findings = json.loads((directory / "report" / "findings.json").read_text())
    return Planted(scenes, dump, findings, judged(scenes, findings))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant([*drawn(14), TEN_MESSAGES], tmp_path_factory.mktemp("planted"))


def test_fifteen_planted_workloads(planted: Planted) -> None:
    found = planted.verdict
    assert (found.missed, found.false_alarms) == ([], []), str(found)


@pytest.mark.campaign
def test_a_what_if_of_planted_workloads(planted: Planted, tmp_path: Path) -> None:
    """What never succeeds dies of more attempts, too, and what waits for something does not, as the report says; the policies in force
    predict what was, order included.
    """
    longer = {"redelivery-delay": "4m", "redelivery-delay-multiplier": 1, "max-delivery-attempts": 18}
    asked = {scene.queue: scene.dies_of_more for scene in planted.scenes if scene.dies_of_more is not None}
    six = {TEN_MESSAGES[0].queue: {"max-delivery-attempts": 6}}
    (tmp_path / "longer.yaml").write_text(json.dumps({"#": {}} | dict.fromkeys(asked, longer) | six))
    rows = simulate(planted.dump, tmp_path / "longer.yaml", replicates=20).rows
    found = {row["queue"]: row for row in rows if row["figure"] == "dead_letters"}
    assert [(dead, found[queue]) for queue, dead in asked.items() if not found[queue]["low"] <= dead <= found[queue]["high"]] == []
    for finding in planted.findings:
        if finding["queue"] in asked and finding["kind"] in POISON:
            assert found[finding["queue"]]["high"] >= found[finding["queue"]]["recorded"], "it may be of no use"
        elif finding["queue"] in asked and finding["kind"] == "longer":
            assert found[finding["queue"]]["expected"] < found[finding["queue"]]["recorded"] / 2, "it helps"
    others = [row for row in rows if row["queue"] is not None and row["queue"] not in asked]
    assert len(others) > 30
    assert [row for row in others if not row["recorded"] == row["expected"] == row["low"] == row["high"]] == []


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
def test_a_hundred_planted_workloads(tmp_path: Path) -> None:
    """One cause in twenty may be missed, and one workload in twenty give a false alarm."""
    found = plant(drawn(100, 15), tmp_path).verdict
    print(found)
    assert 20 * len(found.missed) <= found.planted, str(found)
    assert 20 * len(found.false_alarms) <= 100, str(found)
