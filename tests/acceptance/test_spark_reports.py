"""The Spark job on a sample export: what it writes, and what it refuses. Whether its figures are true: test_spark_truth.py."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark
import pytest

from benchmarks.analytics import sample
from homing.analytics.commands.analyze import AnalysisSummary, analyze
from homing.analytics.errors import AnalyticsError
from homing.analytics.input import inputs
from homing.analytics.input.export import ADD_AN_EXPORT
from homing.analytics.input.schema import MANIFEST_NAME
from homing.analytics.page.outputs import Output
from homing.analytics.reports.clusters import poison_clusters
from homing.analytics.reports.fates import Shared
from homing.analytics.reports.survival import survival
from homing.analytics.spark.java import find_java
from tests.acceptance.spark_support import session
from tests.wheels import build, copy_of_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
#: What a page or a CSV file must not trip over.
NASTY = '<script>alert("x")</script>,\nsecond line'


@dataclass(frozen=True)
class Analysed:
    dump: Path
    out: Path
    summary: AnalysisSummary
    steps: list[tuple[str, int, int]]

    def read(self, table: str) -> list[Row]:
        """A table of the export."""
        rows: list[Row] = ds.dataset(self.dump / table, format="parquet", partitioning="hive").to_table().to_pylist()
        return rows

    def result(self, name: str) -> list[Row]:
        rows: list[Row] = pq.read_table(self.out / "parquet" / name).to_pylist()
        return rows

    @property
    def exported_at(self) -> datetime:
        return datetime.fromtimestamp(json.loads((self.dump / MANIFEST_NAME).read_text())["exported_at_us"] / 1e6, UTC)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    directory = tmp_path_factory.mktemp("spark")
    first = replace(sample.QUEUES[0], poison_error=("Nasty<b>", NASTY), poison=0.02, max_attempts=14)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "QUEUES", (first, *sample.QUEUES[1:]))
        sample.write_sample(directory / "dump", seed=5, messages=2_500, hours=3)
    steps: list[tuple[str, int, int]] = []
    limits = ["dead_letters > 1", "poison_faults > 1000", f"p99_to_success({first.queue}) > 9d", "success_rate(nobody) < 99%"]
    summary = analyze(directory / "dump", directory / "out", progress=lambda *step: steps.append(step), fail_if=limits)
    return Analysed(directory / "dump", directory / "out", summary, steps)


def test_every_table_is_also_one_csv_file(analysed: Analysed) -> None:
    names = sorted(analysed.summary.rows)
    assert sorted(path.name for path in (analysed.out / "csv").iterdir()) == [f"{name}.csv" for name in names]
    for name in names:
        with (analysed.out / "csv" / f"{name}.csv").open(newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        table = pq.read_table(analysed.out / "parquet" / name)
        assert reader.fieldnames == table.column_names
        assert len(rows) == table.num_rows == analysed.summary.rows[name]
        for column in set(table.column_names) & {"queue", "messages", "deaths", "retries", "last_error_text"}:
            assert [row[column] for row in rows] == ["" if value is None else str(value) for value in table.column(column).to_pylist()]


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable


def test_csv_holds_nothing_that_a_spreadsheet_would_run(spark: SparkSession, tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n@x", "＝1", "plain", "a=1", "'=1", "", None]
    frame = spark.createDataFrame([(text, -number) for number, text in enumerate(texts)], "text string, number long")
    Output(spark, str(tmp_path / "out")).write_table("nasty", frame)
    with (tmp_path / "out" / "csv" / "nasty.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["number"] for row in found] == [str(-number) for number in range(len(texts))]
    for text, row in zip(texts, found, strict=True):
        sent = text or ""
        assert row["text"].strip() == (f"'{sent}" if sent.strip().startswith(tuple("=+-@＝")) else sent).strip()
    assert pq.read_table(tmp_path / "out" / "parquet" / "nasty").column("text").to_pylist() == texts


def test_the_page_stands_alone_and_says_what_the_tables_say(analysed: Analysed) -> None:
    page = (analysed.out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|\bsrc=|<link|@import|url\(", page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in page
    assert "prefers-color-scheme: dark" in page
    assert "&lt;script&gt;" in page
    assert "Nasty&lt;b&gt;" in page
    lost = sum(row["given_up"] for row in analysed.result("overview") if row["sent"])
    text = page.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(rf"<h1>[\d.]+ % of the messages that came to an end succeeded; {lost:,} did not</h1>", text)
    assert re.search(r"All of the 2,500 messages sent and \d+ that came back are accounted for", text)
    assert all(str(row["message_id"]) in page for row in analysed.result("failed_most")[:20])
    assert len(page) < 300_000


def test_progress_counts_up_to_its_end(analysed: Analysed) -> None:
    # A step that takes long is told again, with how far it has come.
    reported = list(dict.fromkeys((done, total) for _, done, total in analysed.steps))
    assert reported == [(number, len(reported)) for number in range(1, len(reported) + 1)]


def test_findings_and_limits(analysed: Analysed) -> None:
    found = json.loads((analysed.out / "findings.json").read_text())
    assert found == [each.as_json() for each in analysed.summary.findings]
    assert found[0]["messages"] == max(each["messages"] for each in found) > 10
    assert [each.as_json()["holds"] for each in analysed.summary.limits] == [False, True, True, None]
    assert analysed.summary.not_judged == ["success_rate(nobody) < 99%"]


def test_limits_against_the_usual_of_one_table(analysed: Analysed, tmp_path: Path) -> None:
    queue, other = sorted({row["queue"] for row in analysed.read("messages") if row["failed_attempts"] > 1})[:2]
    since = analysed.exported_at.replace(second=0, microsecond=0, tzinfo=None) - timedelta(hours=1)
    limits = [f"retries({queue}) > usual * 0.1", f"retries({other}) > usual * 9", "oldest_dead_letter > 1s"]
    summary = analyze(analysed.dump, tmp_path / "out", only=["overview"], fail_if=limits, since=since.isoformat())
    assert summary.rows.keys() == {"overview", "retry_load"}
    assert summary.report is None
    assert [each.as_json()["holds"] for each in summary.limits] == [False, True, False]
    retried = {True: 0, False: 0}
    minutes = [row for row in analysed.read("deliveries_by_minute") if row["queue"] == queue]
    for row in minutes:
        at_first = row["first_try"] + row["failed_first"]
        retried[row["minute"].replace(tzinfo=None) >= since] += row["succeeded"] + row["failed"] - at_first
    began = min(row["minute"].replace(tzinfo=None) for row in analysed.read("deliveries_by_minute"))
    ends = analysed.exported_at.replace(tzinfo=None)
    assert summary.limits[0].value == retried[True]
    assert summary.limits[0].bound == pytest.approx(0.1 * retried[False] * ((ends - since) / (since - began)))
    left = [row["died_at"] for row in analysed.read("dead_letters") if row["lies_in"]]
    assert summary.limits[2].value == pytest.approx((analysed.exported_at - min(left)).total_seconds())
    with pytest.raises(AnalyticsError, match="Did you mean overview"):
        analyze(analysed.dump, tmp_path / "out", only=["overwiev"])


def test_of_very_many_distinct_times_curves_are_on_a_grid(analysed: Analysed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end as they would, and are nowhere early, nor late by more than a step."""
    exact = [row for row in analysed.result("survival") if row["queue"] is None and row["by"] == "time"]
    assert not any(row["rounded"] for row in exact)
    monkeypatch.setattr("homing.analytics.reports.survival.DISTINCT", 10)
    found = survival(Shared(inputs.read_export(spark, str(analysed.dump))).fates()).where("queue IS NULL AND by = 'time'").collect()
    assert all(row["rounded"] for row in found)
    assert len(found) < len(exact)
    assert (found[-1]["came_home"], found[-1]["dead"]) == pytest.approx((exact[-1]["came_home"], exact[-1]["dead"]))
    for row in found:
        early, late = (max((each["came_home"] for each in exact if each["at"] <= at), default=0) for at in (row["at"] / 1.03, row["at"]))
        assert early - 1e-9 <= row["came_home"] <= late + 1e-9


def test_faults_are_new_gone_or_back(spark: SparkSession, tmp_path: Path) -> None:
    """By the hours of a record of twelve, with as many deliveries in each, in which each was met."""
    hours = {"new": [9, 11], "gone": [0, 5, 8], "back": [2, 5, 10], "steady": [0, 8, 11]}
    hour_us = 3_600_000_000
    world = sample.World(random.Random(0), sample.START_US, sample.START_US + 12 * hour_us, "b-1")
    for hour in range(12):
        world.add("deliveries_by_minute", queue="q", minute=sample.START_US + hour * hour_us, sent=1, succeeded=9)
    for number, (word, seen) in enumerate(hours.items()):
        for hour in seen:
            key = {"message_id": number, "sequence": number, "queue": "q", "address": "q", "home_queue": "q"}
            at = sample.START_US + hour * hour_us + 1
            world.add("attempts", **key, attempt=hour, at=at, outcome="listener", error_class=word, error_text=f"the text of {word}")
    sample.write_world(world, tmp_path / "dump")
    export = inputs.read_export(spark, str(tmp_path / "dump"))
    shared, counts = Shared(export), export.deliveries_by_minute
    tables = shared.faults(), shared.weighed(), shared.deaths(), shared.fates(), shared.outages(), counts
    assert {row["error_class"]: row["seen"] for row in poison_clusters(*tables).collect()} == {word: word for word in hours}


def test_what_is_not_ours_is_not_overwritten(analysed: Analysed, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(AnalyticsError) as raised:
        analyze(analysed.dump, tmp_path)
    assert raised.value.code == "out-exists"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_second_report_replaces_the_first_also_where_nothing_ever_failed(analysed: Analysed, spark: SparkSession, tmp_path: Path) -> None:
    """Most tables are empty then, and the page says so instead of failing. It names what of the input was left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "QUEUES", (replace(sample.QUEUES[0], failing=0, poison=0),))
        sample.write_sample(tmp_path / "dumps" / "calm", messages=20)
    left_out = [tmp_path / "dumps" / "notes.txt", tmp_path / "dumps" / "letters.txt"]
    for path in left_out:
        path.write_text("not an export")
    shutil.copytree(analysed.out, tmp_path / "out")
    summary = analyze(tmp_path / "dumps", tmp_path / "out", on_damage="skip")
    assert summary.rows["attempts_to_success"] == 1
    empty = {name for name, rows in summary.rows.items() if rows == 0}
    assert set(summary.rows) - empty == {"overview", "attempts_to_success", "retry_load"}
    assert pq.read_table(tmp_path / "out" / "parquet" / "failed_most").num_rows == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for said in (
        "none was given up",
        "No delivery was a retry",
        "No message was dead-lettered",
        "No message that failed",
        "No message on record has failed",
        "2 parts of the input were left out",
        *map(str, left_out),
    ):
        assert said in page


# --- exports that cannot be read --------------------------------------------------------------------------------------


def refused(spark: SparkSession, dump: Path) -> AnalyticsError:
    with pytest.raises(AnalyticsError) as raised:
        inputs.read_export(spark, str(dump))
    return raised.value


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    sample.write_sample(tmp_path / "dump", messages=60)
    return tmp_path / "dump"


def test_archives_alone_tell_why_what_was_removed_had_died_and_no_more(spark: SparkSession, dump: Path, tmp_path: Path) -> None:
    """Of those that died alone every fault would look like poison, and no limit could be broken."""
    manifest = json.loads((dump / MANIFEST_NAME).read_text())
    (dump / MANIFEST_NAME).write_text(json.dumps(manifest | {"rows": manifest["rows"] | {"bodies": 0}}))
    summary = analyze(dump, tmp_path / "out")
    assert summary.archives_only
    assert summary.findings == ()
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "These are archives alone" in page
    assert ADD_AN_EXPORT in page
    assert [text for text in ("messages sent", 'class="flag">poison', "No delivery was a retry") if text in page] == []
    groups = pq.read_table(tmp_path / "out" / "parquet" / "dead_letter_groups").to_pylist()
    assert sum(row["deaths"] for row in groups) > 0
    assert sum(row["remaining"] for row in groups) == 0, "they are in no queue any more"
    with pytest.raises(AnalyticsError) as raised:
        analyze(dump, tmp_path / "limited", fail_if=["dead_letters > 3"])
    assert (raised.value.code, raised.value.fix) == ("archives-only", ADD_AN_EXPORT)


def test_a_lost_part_file(spark: SparkSession, dump: Path) -> None:
    part = dump / "messages" / "part-00000.parquet"
    half = pq.read_table(part).slice(1)
    pq.write_table(half, part)
    error = refused(spark, dump)
    assert error.code == "export-incomplete"
    assert f"messages {half.num_rows} of {half.num_rows + 1}" in error.message


def test_a_damaged_file(spark: SparkSession, dump: Path) -> None:
    part = dump / "deliveries_by_minute" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2] + bytes(8))
    error = refused(spark, dump)
    assert error.code == "export-damaged"
    assert re.search("part-00000.parquet failed: .*magic bytes", error.message)


def test_other_columns(spark: SparkSession, dump: Path) -> None:
    part = dump / "dead_letters" / "part-00000.parquet"
    table = pq.read_table(part).drop_columns(["hops"])
    pq.write_table(table.set_column(2, "message_id", pa.array(["x"] * table.num_rows, pa.string())), part)
    error = refused(spark, dump)
    assert error.code == "export-schema"
    assert "message_id, hops" in error.message


def test_a_table_without_files(spark: SparkSession, dump: Path) -> None:
    (dump / "dead_letters" / "part-00000.parquet").unlink()
    assert refused(spark, dump).code == "export-incomplete"


# --- as a command -----------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.timeout(330)
def test_with_spark_submit_and_the_wheel_as_an_archive(dump: Path, tmp_path: Path) -> None:
    """As a cluster gets it: nothing of the package is a file on the machine that runs the job."""
    java = find_java()
    (tmp_path / "wheel").mkdir()
    package = build("wheel", copy_of_source(tmp_path / "source"), tmp_path / "wheel").rename(tmp_path / "homing.zip")
    job = tmp_path / "job.py"
    shutil.copy(ROOT / "analytics" / "job.py", job)
    quick = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java.archive(Path(pyspark.__file__).parent / 'jars').options(whole=False)}"
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--driver-java-options", quick]
    submit += ["--conf", "spark.ui.enabled=false", "--py-files", str(package), str(job), str(dump), "--out", str(tmp_path / "out")]
    variables = {"JAVA_HOME": str(java.quiet_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(submit, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=os.environ | variables)
    assert done.returncode == 0, done.stderr[-2000:]
    assert str(tmp_path / "out" / "report.html") in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
