"""The same job on a real standalone cluster: a master and two workers, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.analytics import sample
from homing.analytics.commands.analyze import analyze
from tests.acceptance.spark_support import session

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


def test_a_cluster_of_two_workers_comes_to_the_same(tmp_path: Path) -> None:
    sample.write_sample(tmp_path / "dump", seed=6, messages=300)
    job = [sys.executable, "-m", "homing.analytics", str(tmp_path / "dump"), "--out", str(tmp_path / "out"), "--master", "{master}"]
    command = [sys.executable, "-m", "examples.spark_cluster", *job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "spark cluster ready spark://127.0.0.1:" in done.stderr
    session()
    here = analyze(tmp_path / "dump", tmp_path / "here")
    for name, rows in here.rows.items():
        left, right = (pq.read_table(tmp_path / out / "parquet" / name).to_pylist() for out in ("out", "here"))
        assert len(left) == rows
        assert left == right, name
