"""The Spark job on a sample export: every number equals an independent calculation in plain Python on the same files."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from homing.analytics.commands.analyze import AnalysisSummary, analyze
from homing.analytics.errors import AnalyticsError
from homing.analytics.input import inputs
from homing.analytics.input.schema import MANIFEST_NAME
from homing.analytics.page.outputs import Output
from homing.analytics.spark.java import find_java
from homing.analytics.synthetic import sample
from tests.acceptance.spark_support import session

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
    summary = analyze(directory / "dump", directory / "out", progress=lambda *step: steps.append(step))
    return Analysed(directory / "dump", directory / "out", summary, steps)


def later_successes(analysed: Analysed) -> list[Row]:
    return [row for row in analysed.read("messages") if row["outcome"] == "succeeded" and row["failed_attempts"] > 0]


def in_ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def test_overview_and_the_balance(analysed: Analysed) -> None:
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for row in analysed.read("deliveries_by_minute"):
        expected[row["queue"]].update({k: v for k, v in row.items() if isinstance(v, int) and k not in ("schema_version", "queue_id")})
    for row in analysed.read("messages"):
        expected[row["queue"]][row["state"]] += row["state"] != "settled"
    found = {row["queue"]: row for row in analysed.result("overview")}
    assert found.keys() == expected.keys()
    for queue, counts in expected.items():
        row = found[queue]
        assert {name: row[name] for name in counts if name != "settled"} == {n: c for n, c in counts.items() if n != "settled"}
        assert row["here"] == counts["ready"] + counts["scheduled"] + counts["parked"]
        assert row["succeeded_later"] == counts["succeeded"] - counts["first_try"]
        assert row["difference"] == 0
    assert sum(row["sent"] for row in found.values()) == 2_500
    assert sum(row["here"] for row in found.values()) > 0


def test_attempts_to_success(analysed: Analysed) -> None:
    expected: dict[str, Counter[int]] = defaultdict(Counter)
    for row in analysed.read("deliveries_by_minute"):
        expected[row["queue"]][1] += row["first_try"]
    for row in later_successes(analysed):
        expected[row["queue"]][row["attempts"]] += 1
    rows = []
    for queue, counts in sorted(expected.items()):
        up_to = 0
        for attempts, messages in sorted(counts.items()):
            if messages:
                up_to += messages
                rows.append((queue, attempts, messages, messages / counts.total(), up_to / counts.total()))
    found = [tuple(row.values()) for row in analysed.result("attempts_to_success")]
    assert [row[:3] for row in found] == [row[:3] for row in rows]
    assert [value for row in found for value in row[3:]] == pytest.approx([value for row in rows for value in row[3:]])
    assert max(row[1] for row in rows) > 2


def first_and_last(analysed: Analysed) -> dict[int, tuple[Row, Row]]:
    """sequence -> its first and last attempt."""
    stays: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(analysed.read("attempts"), key=lambda row: row["attempt"]):
        stays[row["sequence"]].append(row)
    return {sequence: (rows[0], rows[-1]) for sequence, rows in stays.items()}


def test_time_to_success(analysed: Analysed) -> None:
    took: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    tries: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    firsts = first_and_last(analysed)
    for row in later_successes(analysed):
        kind = firsts[row["sequence"]][0]["error_class"]
        for key in ((row["queue"], kind), (row["queue"], None), (None, None)):
            took[key].append(in_ms(row["settled_at"] - row["sent_at"]))
            tries[key].append(row["attempts"])
    found = {(row["queue"], row["error_class"]): row for row in analysed.result("time_to_success")}
    assert found.keys() == took.keys()
    for key, spans in took.items():
        spans.sort()
        row = found[key]
        assert [row[f"p{p}_ms"] for p in (50, 90, 99)] == [spans[math.ceil(len(spans) * p / 100) - 1] for p in (50, 90, 99)]
        assert (row["messages"], row["max_ms"], row["max_attempts"]) == (len(spans), spans[-1], max(tries[key]))
        assert row["mean_ms"] == pytest.approx(sum(spans) / len(spans))
        assert row["mean_attempts"] == pytest.approx(sum(tries[key]) / len(spans))


def kaplan_meier(watched: list[tuple[int, bool]]) -> list[tuple[Any, ...]]:
    """By the book, event by event: (at, at_risk, succeeded, censored, still_failing, error, not_home)."""
    rows, part, variance, won, risk = [], 1.0, 0.0, 0, len(watched)
    for at in sorted({at for at, _ in watched}):
        events = sum(good for when, good in watched if when == at)
        lost = sum(when == at for when, _ in watched) - events
        part *= 1 - events / risk
        variance += events / (risk * (risk - events)) if events < risk else 0
        won += events
        rows.append((at, risk, events, lost, part, part * math.sqrt(variance), 1 - won / len(watched)))
        risk -= events + lost
    return rows


def test_survival(analysed: Analysed) -> None:
    watched: dict[tuple[str | None, str | None, str], list[tuple[int, bool]]] = defaultdict(list)
    attempts = first_and_last(analysed)
    for row in analysed.read("messages"):
        if row["failed_attempts"] == 0:
            continue
        first, last = attempts[row["sequence"]]
        good = row["outcome"] == "succeeded"
        ms = in_ms((row["settled_at"] if good else last["at"]) - first["at"])
        step = next(step for step in range(1_000) if ms <= 100 * 10 ** (step / 20))
        made = row["attempts"] if good else row["failed_attempts"]
        for key in ((row["queue"], first["error_class"]), (row["queue"], None), (None, None)):
            watched[*key, "time"].append((round(100 * 10 ** (step / 20)), good))
            watched[*key, "attempts"].append((made, good))
    found: dict[tuple[str | None, str | None, str], list[tuple[Any, ...]]] = defaultdict(list)
    for row in analysed.result("survival"):
        found[row["queue"], row["error_class"], row["by"]].append(tuple(row.values())[3:])
    assert found.keys() == watched.keys()
    for group, each in watched.items():
        expected = kaplan_meier(each)
        assert [row[:4] for row in found[group]] == [row[:4] for row in expected]
        assert [row[4:] for row in found[group]] == [pytest.approx(row[4:], abs=1e-9) for row in expected]
    whole = watched[None, None, "time"]
    assert sum(good for _, good in whole) > 20 < sum(not good for _, good in whole)


def test_dead_letters(analysed: Analysed) -> None:
    def age(died_at: datetime) -> str:
        hours = (analysed.exported_at - died_at).total_seconds() / 3600
        return "under 1 hour" if hours < 1 else "1 to 24 hours" if hours < 24 else "1 to 7 days" if hours < 168 else "7 days and more"

    deaths: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in analysed.read("dead_letters"):
        deaths[row["queue"], row["error_class"], age(row["died_at"])].append(row)
    found = {(row["queue"], row["error_class"], row["age"]): row for row in analysed.result("dead_letters")}
    assert found.keys() == deaths.keys()
    for key, rows in deaths.items():
        died = [row["died_at"] for row in rows]
        assert (found[key]["deaths"], found[key]["lying"]) == (len(rows), sum(bool(row["lies_in"]) for row in rows))
        assert (found[key]["first_died_at"], found[key]["last_died_at"]) == (min(died), max(died))
    assert len({key[2] for key in deaths}) == 2


def test_dead_letters_by_fault_and_hour(analysed: Analysed) -> None:
    groups: Counter[tuple[Any, ...]] = Counter()
    lying: Counter[tuple[Any, ...]] = Counter()
    hours: Counter[tuple[datetime, str]] = Counter()
    for row in analysed.read("dead_letters"):
        key = (row["target_queues"][0], row["queue"], row["address"], row["error_class"], row["error_text"])
        groups[key] += 1
        lying[key] += bool(row["lies_in"])
        hours[row["died_at"].replace(minute=0, second=0, microsecond=0), row["queue"]] += 1
    names = ("dead_letter_queue", "queue", "source", "error_class", "fault")
    found = {tuple(row[name] for name in names): row for row in analysed.result("dead_letter_groups")}
    assert {key: row["deaths"] for key, row in found.items()} == groups
    assert {key: row["lying"] for key, row in found.items() if row["lying"]} == +lying
    assert all(row["under_hour"] + row["under_day"] + row["under_week"] + row["older"] == row["deaths"] for row in found.values())
    so_far: Counter[str] = Counter()
    for row in analysed.result("dead_letter_growth"):
        so_far[row["queue"]] += row["deaths"]
        assert row["so_far"] == so_far[row["queue"]]
    assert {(row["hour"], row["queue"]): row["deaths"] for row in analysed.result("dead_letter_growth")} == hours


def test_trend_of_the_deaths(analysed: Analysed) -> None:
    began = min(row["minute"] for row in analysed.read("deliveries_by_minute") if row["minute"].minute).replace(minute=0)
    whole = analysed.exported_at - began
    parts: dict[str, list[int]] = defaultdict(lambda: [0] * 12)
    for row in analysed.read("dead_letters"):
        parts[row["queue"]][min((row["died_at"] - began) * 12 // whole, 11)] += 1
    found = {row["queue"]: row for row in analysed.result("dead_letter_trend")}
    assert found.keys() == parts.keys()
    days = whole / timedelta(days=1)
    for queue, counts in parts.items():
        row = found[queue]
        slope = statistics.linear_regression(range(12), counts).slope
        assert (row["deaths"], row["early"], row["late"]) == (sum(counts), sum(counts[:6]), sum(counts[6:]))
        assert row["per_day"] == pytest.approx(sum(counts) / days)
        assert row["slope_per_day"] == pytest.approx(slope * (12 / days) ** 2, abs=1e-6)


def test_settings_in_force(analysed: Analysed) -> None:
    stays: dict[tuple[str, str], list[tuple[Row, Row, Row]]] = defaultdict(list)
    attempts = first_and_last(analysed)
    for row in analysed.read("messages"):
        if row["failed_attempts"]:
            first, last = attempts[row["sequence"]]
            stays[row["queue"], last["policy"]].append((row, first, last))
    found = {(row["queue"], row["policy"]): row for row in analysed.result("settings_in_force")}
    assert found.keys() == stays.keys()
    limits = {traffic.queue: (traffic.max_attempts, traffic.delay_ms) for traffic in sample.QUEUES[1:]}
    for (queue, policy), each in stays.items():
        row = found[queue, policy]
        won = sorted(in_ms(stay["settled_at"] - first["at"]) for stay, first, _ in each if stay["outcome"] == "succeeded")
        died = [stay["failed_attempts"] - 1 for stay, _, _ in each if stay["outcome"] == "dead-lettered"]
        assert (row["failed"], row["succeeded"], row["died"], row["wasted"]) == (len(each), len(won), len(died), sum(died))
        assert (row["from_at"], row["until"]) == (min(first["at"] for _, first, _ in each), max(last["at"] for *_, last in each))
        assert row["within_ms"] == won[math.ceil(0.93 * len(won)) - 1]
        assert row["retries"] == sum(stay["attempts"] - 1 for stay, _, _ in each)
        assert (row["pattern"], row["current"], row["verdict"]) == (queue, True, "first")
        assert limits.get(queue, (14, 2_000)) == (row["max_delivery_attempts"], row["redelivery_delay_ms"])


def test_retry_load(analysed: Analysed) -> None:
    expected: dict[tuple[datetime, str], Counter[str]] = defaultdict(Counter)
    held_us: Counter[tuple[datetime, str]] = Counter()
    for row in analysed.read("deliveries_by_minute"):
        if row["succeeded"]:
            first, every = row["first_try"], row["succeeded"]
            expected[row["minute"], row["queue"]].update(succeeded_first=first, succeeded_retry=every - first, retries=every - first)
    dead = {row["sequence"] for row in analysed.read("messages") if row["outcome"] == "dead-lettered"}
    for row in analysed.read("attempts"):
        again = row["attempt"] > 1
        minute = row["at"].replace(second=0, microsecond=0)
        expected[minute, row["queue"]].update(failed_first=not again, failed_retry=again, retries=again)
        expected[minute, row["queue"]].update(wasted=again and row["sequence"] in dead)
        held_us[minute, row["queue"]] += (row["at"] - row["given_at"]) // timedelta(microseconds=1)
    found = [(row.pop("minute"), row.pop("queue"), row.pop("failed_ms"), row) for row in analysed.result("retry_load")]
    assert [row[:2] for row in found] == sorted(expected)
    assert all(row == {name: expected[minute, queue][name] for name in row} for minute, queue, _, row in found)
    assert all(failed_ms == held_us[minute, queue] // 1000 for minute, queue, failed_ms, _ in found)
    assert sum(row["wasted"] for *_, row in found) > 50


def test_the_messages_that_failed_most(analysed: Analysed) -> None:
    failed: Counter[int] = Counter()
    for row in analysed.read("messages"):
        failed[row["message_id"]] += row["failed_attempts"]
    most = sorted(((-count, message_id) for message_id, count in failed.items() if count))[:50]
    found = analysed.result("failed_most")
    assert [(-row["failed_attempts"], row["message_id"]) for row in found] == most
    attempts: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(analysed.read("attempts"), key=lambda row: row["at"]):
        attempts[row["message_id"]].append(row)
    stays = {row["message_id"]: row for row in sorted(analysed.read("messages"), key=lambda row: row["sequence"])}
    for row in found:
        last, stay = attempts[row["message_id"]][-1], stays[row["message_id"]]
        assert (row["last_error_class"], row["last_error_text"]) == (last["error_class"], last["error_text"])
        assert (row["first_failed_at"], row["last_failed_at"]) == (attempts[row["message_id"]][0]["at"], last["at"])
        assert (row["queue"], row["state"], row["outcome"]) == (stay["queue"], stay["state"], stay["outcome"])
    assert found[0]["last_error_text"] == NASTY


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
    page = Path(analysed.summary.report).read_text(encoding="utf-8")
    assert not re.search(r"https?:|\bsrc=|<link|<script|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "&lt;script&gt;" in page
    assert "Nasty&lt;b&gt;" in page
    overview = analysed.result("overview")
    dead = sum(row["dead_lettered"] for row in overview)
    text = page.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(rf"<h1>[\d.]+ % of the messages that came to an end succeeded; {dead:,} died</h1>", text)
    assert re.search(r"All of the 2,500 messages sent and \d+ sent back are accounted for", text)
    assert f"{dead:,} messages died, " in text
    assert all(str(row["message_id"]) in page for row in analysed.result("failed_most")[:20])
    assert len(page) < 300_000


def test_progress_counts_up_to_its_end(analysed: Analysed) -> None:
    # A step that takes long is told again, with how far it has come.
    told = list(dict.fromkeys((done, total) for _, done, total in analysed.steps))
    assert told == [(number, len(told)) for number in range(1, len(told) + 1)]


def test_what_is_not_ours_is_not_overwritten(analysed: Analysed, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(AnalyticsError) as raised:
        analyze(analysed.dump, tmp_path)
    assert raised.value.code == "out-exists"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_second_report_replaces_the_first_also_where_nothing_ever_failed(analysed: Analysed, spark: SparkSession, tmp_path: Path) -> None:
    """Most tables are empty then, and the page says so instead of failing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "QUEUES", (replace(sample.QUEUES[0], failing=0, poison=0),))
        sample.write_sample(tmp_path / "calm", messages=20)
    shutil.copytree(analysed.out, tmp_path / "out")
    summary = analyze(tmp_path / "calm", tmp_path / "out")
    assert summary.rows["attempts_to_success"] == 1
    empty = {name for name, rows in summary.rows.items() if rows == 0}
    assert set(summary.rows) - empty == {"overview", "attempts_to_success", "retry_load"}
    assert pq.read_table(tmp_path / "out" / "parquet" / "failed_most").num_rows == 0
    page = Path(summary.report).read_text(encoding="utf-8")
    for said in ("none died", "No delivery was a retry", "No message died", "No message that failed", "No message on record has failed"):
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


def test_a_lost_part_file(spark: SparkSession, dump: Path) -> None:
    part = dump / "messages" / "part-00000.parquet"
    half = pq.read_table(part).slice(1)
    pq.write_table(half, part)
    error = refused(spark, dump)
    assert error.code == "export-incomplete"
    assert f"messages {half.num_rows} of {half.num_rows + 1}" in error.message


def test_a_damaged_file(spark: SparkSession, dump: Path) -> None:
    part = dump / "deliveries_by_minute" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    error = refused(spark, dump)
    assert error.code == "export-damaged"
    assert "part-00000.parquet is not a Parquet file" in error.message


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


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=ROOT, env=os.environ | variables)


def test_with_spark_submit(dump: Path, tmp_path: Path) -> None:
    submit = Path(sys.executable).with_name("spark-submit")
    quick = ["--driver-java-options", "-XX:TieredStopAtLevel=1"]
    command = [str(submit), "--master", "local[2]", *quick, "analytics/job.py", str(dump), "--out", str(tmp_path / "out")]
    variables = {"JAVA_HOME": str(find_java().quiet_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = run(command, **variables)
    assert done.returncode == 0, done.stderr[-2000:]
    assert str(tmp_path / "out" / "report.html") in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
