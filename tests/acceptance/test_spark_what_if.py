"""The what-if against truth: workloads really run under both policies. The long form is ``python -m benchmarks.analytics.coverage``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics import sample
from analytics.errors import AnalyticsError
from analytics.inputs import read_export
from analytics.policy import parse_policies
from analytics.simulate_job import sentence, simulate
from analytics.what_if import FIGURES, what_if
from benchmarks.analytics.coverage import measure
from tests.acceptance.spark_support import rows_of, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SAME = {
    each.queue: {
        "redelivery-delay": each.delay_ms,
        "redelivery-delay-multiplier": each.multiplier,
        "max-delivery-attempts": each.max_attempts,
    }
    for each in sample.QUEUES
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("what-if") / "dump"
    sample.write_sample(out, seed=3, messages=500)
    return out


def test_the_truth_lies_where_it_says_and_the_control_does_not(spark: SparkSession, tmp_path: Path) -> None:
    """Four seeds of the long form's three workloads; its bar is 51 of 60, and the same part here."""
    found = measure(spark, tmp_path / "dump", range(201, 205), messages=150)
    assert found.cases == 12
    assert found.holds, found
    assert found.control_fails, found
    assert found.width["deliveries"] < 0.5


def test_a_seed_gives_the_same_answer_and_another_seed_another(spark: SparkSession, dump: Path) -> None:
    export = read_export(spark, str(dump))
    policies = parse_policies({"#": {"redelivery-delay": "3s", "redelivery-collision-avoidance-factor": 0.5}})

    def ask(seed: int, parts: int) -> list[tuple[object, ...]]:
        cut = export.attempts.repartition(parts)
        return rows_of(what_if(export.messages, cut, policies, seed=seed, replicates=6, details=False).drop("observed_share"))

    first = ask(1, 2)
    assert ask(1, 5) == first
    assert ask(2, 2) != first


def test_the_same_policy_comes_to_what_is_on_record(dump: Path, spark: SparkSession) -> None:
    found = simulate(dump, _policy(dump.parent / "same.yaml", SAME))
    whole = {row["figure"]: row for row in found.rows if row["queue"] is None}
    assert whole.keys() == FIGURES.keys()
    for figure in ("deliveries", "dead_letters", "succeeded"):
        assert whole[figure]["low"] <= whole[figure]["recorded"] <= whole[figure]["high"], whole[figure]
    assert whole["deliveries"]["observed_share"] > 0.8
    assert "would have died instead of" in sentence(found.rows)


def _policy(path: Path, settings: object) -> Path:
    path.write_text(json.dumps({"address-settings": settings}))  # JSON is YAML
    return path


def test_addresses_that_the_file_does_not_name_are_left_out(dump: Path, spark: SparkSession) -> None:
    found = simulate(dump, _policy(dump.parent / "one.yaml", {"email.*": {"max-delivery-attempts": 1}}), dump.parent / "out")
    assert {row["queue"] for row in found.rows} == {None, "email.send"}
    whole = {row["figure"]: row for row in found.rows if row["queue"] is None}
    assert whole["succeeded"]["high"] == 0
    assert whole["dead_letters"]["low"] == whole["deliveries"]["expected"]
    assert (dump.parent / "out" / "csv" / "what_if.csv").is_file()
    assert found.report == str(dump.parent / "out" / "report.html")
    page = Path(found.report).read_text()
    assert sentence(found.rows).split(";")[0] in page
    assert "max-delivery-attempts" in page
    assert not re.search(r"https?:|\bsrc=|<link|<script|@import|url\(", page)
    with pytest.raises(AnalyticsError) as raised:
        simulate(dump, _policy(dump.parent / "none.yaml", {"nothing.#": {"max-delivery-attempts": 1}}))
    assert raised.value.code == "nothing-to-simulate"
