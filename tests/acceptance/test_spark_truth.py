"""The report is true: drawn workloads run through real brokers with real clients, whose own account every figure must equal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from homing.analytics.commands.analyze import analyze
from homing.analytics.input.schema import MANIFEST_NAME
from homing.journal.export.export import export
from tests.truth.expected import TABLES, differences
from tests.truth.play import Play
from tests.truth.workload import Workload, drawn

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


async def play(workloads: list[Workload], directory: Path) -> list[Play]:
    """Two at a time, since starts and ends wait for a process."""
    plays = [Play(workload, directory / f"broker-{number}") for number, workload in enumerate(workloads)]
    turn = asyncio.Semaphore(2)

    async def one(each: Play) -> None:
        async with turn, asyncio.timeout(60):
            try:
                await each.run()
            finally:
                each.server.close()

    async with asyncio.TaskGroup() as group:
        for each in plays:
            group.create_task(one(each))
    return plays


def differing(workloads: list[Workload], directory: Path) -> list[str]:
    """What one report on all their brokers tells otherwise than their clients know."""
    plays = asyncio.run(play(workloads, directory))
    dumps = [directory / "exports" / each.server.directory.name for each in plays]
    for each, dump in zip(plays, dumps, strict=True):
        export(each.server.data, dump)
    report = directory / "report"
    analyze(directory / "exports", report)
    tables = {name: pq.read_table(report / "parquet" / name).to_pylist() for name in TABLES}
    found = []
    for each, dump in zip(plays, dumps, strict=True):
        broker_id = json.loads((dump / MANIFEST_NAME).read_text())["broker_id"]
        wrong = differences(each.account, broker_id, tables)
        found += wrong and [f"{each.workload}:", *wrong]
    return found


def test_twenty_workloads(tmp_path: Path) -> None:
    found = differing(drawn(20, 2), tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(100, 110))
def test_two_hundred_workloads(number: int, tmp_path: Path) -> None:
    found = differing(drawn(20, number), tmp_path)
    assert not found, "\n".join(found)
