"""Each report finds the pattern planted for it, and does not find its control; both lie in one export with ordinary traffic."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics import sample
from analytics.advice import advice, sentence
from analytics.clusters import poison_clusters
from analytics.compare import compare
from analytics.compare_job import compare_periods
from analytics.consumers import consumers
from analytics.due_error import due_error
from analytics.errors import AnalyticsError
from analytics.flow import flow
from analytics.inputs import Export, read_export
from analytics.patterns import PATTERNS, plant
from analytics.storms import retry_storms
from tests.acceptance.spark_support import session, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Row = dict[str, Any]


def both(world: sample.World) -> None:
    for name in PATTERNS:
        plant(world, name)
        plant(world, name, control=True)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("patterns") / "dump"
    sample.write_sample(out, seed=4, messages=600, plant=both)
    return out


@pytest.fixture(scope="module")
def export(dump: Path) -> Export:
    return read_export(session(), str(dump))


def rows(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_the_hoarder(export: Export, dump: Path) -> None:
    found = rows(consumers(export.attempts))
    assert {(row["queue"], row["consumer"]) for row in found if row["hoards"]} == {("hoarder.planted", "worker-3")}
    assert {(row["queue"], row["consumer"]) for row in found if row["slow"]} == {("hoarder.planted", "worker-3")}
    counted = Counter((row["queue"], row["consumer"]) for row in table(dump, "attempts") if row["given_at"] is not None)
    assert {(row["queue"], row["consumer"]): row["attempts"] for row in found} == counted
    for row in found:
        of_queue = {consumer: count for (queue, consumer), count in counted.items() if queue == row["queue"]}
        assert row["share"] == pytest.approx(row["attempts"] / sum(of_queue.values()))
        assert row["fair_share"] == pytest.approx(1 / len(of_queue))


def test_the_storm(export: Export, dump: Path) -> None:
    found = rows(retry_storms(export.attempts))
    assert {row["queue"] for row in found} == {"storm.planted"}
    assert found[0]["failures_s"] > 60  # a herd that jitter would have broken up
    due = Counter(row["due_at"].replace(microsecond=0, tzinfo=None) for row in table(dump, "attempts") if row["queue"] == "storm.planted")
    assert (found[0]["second"], found[0]["due"]) == due.most_common(1)[0]
    others = [count for second, count in due.items() if second != found[0]["second"]]
    assert found[0]["usual"] == pytest.approx(statistics.mean(others))


def test_late_retries(export: Export, dump: Path) -> None:
    found = {row["queue"]: row for row in rows(due_error(export.attempts))}
    assert {queue for queue, row in found.items() if row["late"]} == {"late.planted"}
    assert found["late.control"]["p50_ms"] == 40
    assert all(row["early"] == 0 for row in found.values())
    stays: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in table(dump, "attempts"):
        stays[row["sequence"]][row["attempt"]] = row
    expected = Counter(
        row["queue"] for stay in stays.values() for number, row in stay.items() if number - 1 in stay and stay[number - 1]["due_at"]
    )
    assert {queue: row["retries"] for queue, row in found.items()} == expected


def test_the_poison(export: Export) -> None:
    found = [row for row in rows(poison_clusters(export.attempts, export.dead_letters)) if "poison." in row["queues"]]
    (one,) = [row for row in found if row["error_class"] == "ParseError"]
    assert one["poison"]
    assert (one["texts"], one["messages"], one["deaths"], one["attempts"]) == (5, 30, 30, 90)
    varied = [row for row in found if row["error_class"] == "VariedError"]
    assert len(varied) > 20
    assert not any(row["poison"] for row in varied)


def test_the_circle(export: Export, dump: Path) -> None:
    found = rows(flow(export.messages, export.dead_letters))
    assert {(row["source"], row["circling"]) for row in found if row["circling"]} == {("cycle.planted", 12)}
    expected = Counter(
        (row["queue"], target, row["outcome"])
        for row in table(dump, "messages")
        if row["outcome"] in ("dead-lettered", "redriven", "expired")
        for target in row["target_queues"]
    )
    assert {(row["source"], row["target"], row["why"]): row["messages"] for row in found} == expected


def test_advice(export: Export, dump: Path) -> None:
    found = {(row["queue"], row["error_class"]): row for row in rows(advice(export.messages, export.attempts, export.policies))}
    planted, control = found["tight.planted", "TimeoutError"], found["tight.control", "TimeoutError"]
    assert (planted["kind"], control["kind"]) == ("longer", "fine")
    assert (planted["max_delivery_attempts"], planted["redelivery_delay_ms"], planted["most_attempts"]) == (11, 5_000, 11)
    assert planted["gives_up_ms"] == 50_120
    told = sentence(planted).replace("\N{NO-BREAK SPACE}", " ")
    assert "11 attempts give up after 50.1 s" in told
    assert "homing simulate" in told
    assert found["poison.planted", "ParseError"]["kind"] == "not-retryable"
    assert "retryable=False" in sentence(found["poison.planted", "ParseError"])
    outcomes = Counter((row["queue"], row["outcome"]) for row in table(dump, "messages") if row["queue"].startswith("tight."))
    for row in (planted, control):
        assert (row["succeeded"], row["died"]) == (outcomes[row["queue"], "succeeded"], outcomes[row["queue"], "dead-lettered"])


def test_two_periods(export: Export, tmp_path: Path) -> None:
    sample.write_sample(tmp_path / "calm", seed=9, messages=600, plant=lambda world: plant_as(world, "tight", "tight.planted"))
    after = read_export(session(), str(tmp_path / "calm"))
    found = {row["queue"]: row for row in rows(compare(export, after))}
    assert found["tight.planted"]["verdict"] == "better"
    assert found["storm.planted"]["verdict"] == "gone"
    ordinary = {row["verdict"] for queue, row in found.items() if queue in {traffic.queue for traffic in sample.QUEUES}}
    assert ordinary == {"same"}
    back = {row["queue"]: row["verdict"] for row in rows(compare(after, export))}
    assert (back["tight.planted"], back["storm.planted"]) == ("worse", "new")


def test_the_page_of_two_periods(dump: Path, export: Export, tmp_path: Path) -> None:
    sample.write_sample(tmp_path / "calm", seed=9, messages=600, plant=lambda world: plant_as(world, "tight", "tight.planted"))
    page = Path(compare_periods([dump, tmp_path / "calm"], tmp_path / "out")).read_text()
    assert "<h1>1 queue got better, first tight.planted</h1>" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert not re.search(r"https?:|\bsrc=|<link|<script|@import|url\(", page)
    assert (tmp_path / "out" / "csv" / "comparison.csv").is_file()
    with pytest.raises(AnalyticsError) as raised:
        compare_periods([dump], tmp_path / "out")
    assert raised.value.code == "two-periods"


def plant_as(world: sample.World, name: str, queue: str) -> None:
    """The control under the name of the pattern: the trouble is the same, the policy is not."""
    PATTERNS[name](world, queue, True)
    assert json.loads(world.rows["policies"][-1]["settings_json"])["max_delivery_attempts"] == 120
