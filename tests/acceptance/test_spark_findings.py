"""What is read first is true: of workloads with one planted cause, or none, the report finds the cause first and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from homing.analytics.commands.analyze import analyze
from tests.acceptance.spark_support import session
from tests.truth.causes import run
from tests.truth.scenes import Verdict, drawn, judged

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def verdict(count: int, first: int, directory: Path) -> Verdict:
    plays = drawn(count, first)
    logging.disable(logging.ERROR)  # each failure is told there
    try:
        asyncio.run(run(plays, directory / "dump"))
    finally:
        logging.disable(logging.NOTSET)
    session()
    analyze(directory / "dump", directory / "report")
    return judged([scene for scene, _ in plays], json.loads((directory / "report" / "findings.json").read_text()))


def test_fifteen_planted_workloads(tmp_path: Path) -> None:
    found = verdict(15, 0, tmp_path)
    assert (found.missed, found.false_alarms) == ([], []), str(found)


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
def test_a_hundred_planted_workloads(tmp_path: Path) -> None:
    """One cause in twenty may be missed, and one workload in twenty give a false alarm."""
    found = verdict(100, 15, tmp_path)
    print(found)
    assert 20 * len(found.missed) <= found.planted, str(found)
    assert 20 * len(found.false_alarms) <= 100, str(found)
