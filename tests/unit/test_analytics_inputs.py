"""Exports that cannot be analysed are refused before Spark starts, with a code and what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.analytics.sample import write_sample
from homing.analytics.commands import analyze as job
from homing.analytics.errors import AnalyticsError
from homing.analytics.input.export import SHORT_ROWS
from homing.analytics.input.inputs import cause, find_exports, rows_of
from homing.analytics.input.schema import MANIFEST_NAME
from homing.analytics.input.store import rows_here


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_sample(tmp_path / "dump", messages=20)
    return tmp_path / "dump"


def change_manifest(dump: Path, **values: Any) -> None:
    path = dump / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def refused(dump: Path) -> str:
    with pytest.raises(AnalyticsError) as raised:
        rows_of([str(dump)], skip=False)
    assert raised.value.fix
    return raised.value.code


def test_a_whole_export(dump: Path) -> None:
    assert rows_of([str(dump)], skip=False) == sum(json.loads((dump / MANIFEST_NAME).read_text())["rows"].values())


@pytest.mark.parametrize(
    ("kept", "stored"),
    [({}, 0), ({"rows": {"attempts": {"none": 10}}}, 10), ({"rows": {"attempts": {"none": 10**6}}}, 10**6), (None, SHORT_ROWS)],
)
def test_with_a_store_what_it_holds_counts(dump: Path, tmp_path: Path, kept: dict[str, Any] | None, stored: int) -> None:
    store = tmp_path / "store"
    store.mkdir()
    if kept != {}:  # else a new one
        (store / "_homing_store-000002.json").write_text(json.dumps(kept or {"format": "homing-store"}))
        (store / "_homing_store-000001.json").write_text(json.dumps({"rows": {}}))
    assert rows_of([str(dump)], False, rows_here(str(store))) == rows_of([str(dump)], False) + stored


def test_no_directory(tmp_path: Path) -> None:
    assert refused(tmp_path / "missing") == "no-export"


def test_a_directory_that_is_no_export(tmp_path: Path) -> None:
    assert refused(tmp_path) == "not-an-export"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "homing-export"}', "null"])
def test_a_manifest_that_is_none(dump: Path, text: str) -> None:
    (dump / MANIFEST_NAME).write_text(text)
    assert refused(dump) == "not-an-export"


def test_another_schema_version(dump: Path) -> None:
    change_manifest(dump, schema_version=3)
    assert refused(dump) == "export-version"


def test_nothing_in_it(dump: Path) -> None:
    change_manifest(dump, rows={"messages": 0, "queues": 3})
    assert refused(dump) == "export-empty"


def test_since_opens_only_its_days_and_no_older_export(dump: Path) -> None:
    day_us, at_us = 86_400_000_000, json.loads((dump / MANIFEST_NAME).read_text())["exported_at_us"]
    older = shutil.copytree(dump, dump.parent / "older")
    change_manifest(older, exported_at_us=at_us - 2 * day_us)
    (day,) = (dump / "attempts").iterdir()
    shutil.copytree(day, dump / "attempts" / f"day={datetime.fromtimestamp(at_us / 1e6 - 86_400, UTC):%Y-%m-%d}")
    change_manifest(dump, rows={table: rows * (1 + (table == "attempts")) for table, rows in manifest_rows(dump).items()})
    (found, old), _ = find_exports(None, [str(dump), str(older)], since_us=at_us // day_us * day_us)
    assert old.files == {}
    assert [Path(each).parent for each in found.files["attempts"]] == [day]
    (found, old), _ = find_exports(None, [str(dump), str(older)])
    assert (len(found.files["attempts"]), len(old.files["attempts"])) == (2, 1)


def manifest_rows(dump: Path) -> dict[str, int]:
    rows: dict[str, int] = json.loads((dump / MANIFEST_NAME).read_text())["rows"]
    return rows


def test_a_table_is_missing(dump: Path) -> None:
    shutil.rmtree(dump / "attempts")
    assert refused(dump) == "export-incomplete"


def test_the_command_tells_code_and_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main([str(tmp_path / "missing"), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("no-export: ")
    assert not (tmp_path / "out").exists()


def test_the_sample_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert write_sample(first, seed=7, messages=50) == write_sample(second, seed=7, messages=50)
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)


def test_importing_the_job_brings_only_spark_along() -> None:
    heavy = ("pyarrow", "jinja2", "rich")
    ours = "homing.analytics.commands.analyze, homing.analytics.input.inputs, homing.analytics.page.report"
    code = f"import sys, {ours}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("reported", "cause_reported"),
    [
        ("An error occurred while calling o1.collect.\n: java.io.IOException: gone\n\tat a.b", "java.io.IOException: gone"),
        ("failed\nCaused by: a.Outer: x\n\tat c\nCaused by: a.Inner: y\n\tat d", "a.Inner: y"),
        ("failed\nCaused by: org.apache.spark.SparkException: \nJob aborted.\n\tat d", "org.apache.spark.SparkException: Job aborted."),
        ("org.apache.spark.SparkException:", "org.apache.spark.SparkException:"),
        (" : \n", "ValueError(' : \\n')"),
        ("", "ValueError('')"),
    ],
)
def test_a_cause_is_never_empty(reported: str, cause_reported: str) -> None:
    assert cause(ValueError(reported)) == cause_reported
