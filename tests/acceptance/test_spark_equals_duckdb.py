"""Ten thousand attempts from the generator, and a sample with outages and storms: every table equals what DuckDB says in SQL of its own.

The long form, by size and with times, is ``scripts/bench-analytics``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.analytics.duck import tables
from benchmarks.analytics.generate import generate
from benchmarks.analytics.opinions import OPINIONS, opinions
from benchmarks.analytics.planted import compare
from benchmarks.analytics.race import by_spark
from benchmarks.analytics.sample import START_US, write_sample
from homing.analytics.commands.analyze import analyze
from homing.analytics.input.schema import MANIFEST_NAME
from tests.acceptance.spark_support import session, table

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(180)]


def test_equal_to_the_row_and_what_was_planted_is_found(tmp_path: Path) -> None:
    rows = generate(session(), str(tmp_path / "dump"), attempts=10_000, seed=3, days=3)
    assert rows["attempts"] == pytest.approx(10_000, rel=0.03)
    ours, at_us = by_spark(session(), tmp_path / "dump")
    assert at_us == json.loads((tmp_path / "dump" / MANIFEST_NAME).read_text())["exported_at_us"]
    theirs = tables(tmp_path / "dump", at_us)
    for name in theirs:
        assert len(theirs[name]) > 3, name
        assert ours[name] == theirs[name], name
    # What it invents holds together: everything adds up, and every failed attempt is counted.
    counts = {row[0]: row for row in theirs["overview"]}
    assert sum(row[6] for row in counts.values()) == rows["attempts"] == len(table(tmp_path / "dump", "attempts"))
    for row in counts.values():
        sent, moved_in, _, succeeded, _, _, dead = row[1:8]
        assert sent + moved_in == succeeded + dead + row[-1]
    analyze(tmp_path / "dump", tmp_path / "report", only=["consumers", "dead_letters", *OPINIONS])
    said_of(tmp_path / "dump", tmp_path / "report", at_us)
    found = compare(tmp_path / "dump", tmp_path / "report")
    # Outages need more traffic: scripts/bench-analytics, and a sample.
    assert [found[name] for name in ("slow", "hoarders", "poison")] == [True, True, True]
    write_sample(tmp_path / "sample", seed=5, messages=12_000, hours=3)
    analyze(tmp_path / "sample", tmp_path / "sampled", only=list(OPINIONS))
    rows = said_of(tmp_path / "sample", tmp_path / "sampled", START_US + 3 * 3_600_000_000)
    assert min(rows["retry_storms"], rows["outages"], rows["recent_load"]) > 1


def said_of(dump: Path, report: Path, at_us: int) -> dict[str, int]:
    """How many rows of each table are equal: all."""
    found = opinions(dump, report, at_us)
    for name, (written, said) in found.items():
        assert written == said, name
    return {name: len(written) for name, (written, _) in found.items()}
