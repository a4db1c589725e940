"""The what-if against truth: workloads really run under both policies. The long form is ``python -m benchmarks.analytics.coverage``."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.analytics import sample
from benchmarks.analytics.coverage import measure
from homing.analytics.commands.simulate import sentence, simulate
from homing.analytics.errors import AnalyticsError
from homing.analytics.input.inputs import read_export
from homing.analytics.what_if.details import details_recorded, placed_by_key
from homing.analytics.what_if.policy import parse_policies
from homing.analytics.what_if.simulate import failed_entries, with_policy
from homing.analytics.what_if.what_if import what_if
from tests.acceptance.spark_support import rows_of, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.timeout(400)  # seconds of work, but on a machine that is shared
def test_the_truth_lies_where_it_says_and_the_control_does_not(spark: SparkSession, tmp_path: Path) -> None:
    """The first seeds of the long form, whose bar is 85 of 100 for each figure: too few here to tell one figure by itself."""
    found = measure(spark, tmp_path / "dump", range(1, 3), messages=150)
    assert found.cases == 10
    assert found.misread == []
    figures = found.cases * len(found.within)
    assert sum(found.within.values()) >= 0.85 * figures, found
    assert sum(found.control.values()) < 0.5 * figures, found
    assert found.width["deliveries"] < 0.3
    assert found.width_of_outages["deliveries"] < 0.1


def test_order_is_told_of_neighbours_of_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """Sent a b a b a, in this order: the first a fails and succeeds last of all, the first b dies, all others succeed at once."""
    from pyspark.sql import functions as F

    world = sample.World(random.Random(0), sample.START_US, sample.START_US + 3_600_000_000, "b-1")
    ends = {1: 60, 2: None, 3: 3, 4: 4, 5: 5}
    for number, end_s in ends.items():
        row = {"message_id": number, "sequence": number, "queue": "q", "address": "q", "message_key": "ab"[number % 2 == 0]}
        failed, died = int(number < 3), end_s is None
        sent_us = sample.START_US + number * 1_000_000
        settled = {
            "state": "settled",
            "outcome": "dead-lettered" if died else "succeeded",
            "settled_at": sent_us + (end_s or 9) * 1_000_000,
        }
        world.add("messages", **row, **settled, sent_at=sent_us, failed_attempts=failed, attempts=failed + (not died))
        if failed:
            world.add("attempts", **row, attempt=1, at=sent_us + 1, outcome="listener", error_class="E", due_at=sent_us + 10)
    sample.write_world(world, tmp_path / "dump")
    export = read_export(spark, str(tmp_path / "dump"))

    def recorded(messages: DataFrame, attempts: DataFrame) -> int:
        entries = with_policy(failed_entries(messages, attempts), parse_policies({"#": {"max-delivery-attempts": 2}}))
        return {row["queue"]: int(row["out_of_order"]) for row in details_recorded(entries, placed_by_key(messages, entries)).collect()}[
            "q"
        ]

    # 1 and 3 are neighbours of key a, and 1 came after 3; 5 follows 3, and none of these two failed.
    assert recorded(export.messages, export.attempts) == 1
    # Only what failed is on record, as a rule: 1 has no neighbour then.
    assert recorded(export.messages.where("failed_attempts > 0"), export.attempts) == 0
    # Without keys the queue is one: 2 died, so 1 has no neighbour that succeeded.
    nameless = (frame.withColumn("message_key", F.lit(None).cast("string")) for frame in (export.messages, export.attempts))
    assert recorded(*nameless) == 0
    # A failed message without a key, in a queue that has keys, is in no pair.
    keyless = (
        frame.withColumn("message_key", F.when(F.col("sequence") == 2, F.col("message_key")))
        for frame in (export.messages, export.attempts)
    )
    assert recorded(*keyless) == 0


def test_of_very_many_messages_a_share_is_played(spark: SparkSession, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = read_export(spark, str(dump))

    def ask() -> dict[tuple[str | None, str], Any]:
        rows = what_if(export.messages, export.attempts, parse_policies(SAME), seed=1, replicates=12, details=False, small=True).collect()
        return {(row["queue"], row["figure"]): row for row in rows}

    every = ask()
    monkeypatch.setattr("homing.analytics.what_if.simulate.PLAYED", 12)
    some = ask()
    assert some != every
    for key in ((None, "deliveries"), (None, "succeeded")):
        assert every[key]["expected"] == pytest.approx(some[key]["expected"], rel=0.25)
        assert some[key]["low"] < every[key]["expected"] < some[key]["high"]


def test_a_seed_gives_the_same_answer_and_another_seed_another(spark: SparkSession, dump: Path) -> None:
    export = read_export(spark, str(dump))
    policies = parse_policies({"#": {"redelivery-delay": "3s", "redelivery-collision-avoidance-factor": 0.5}})

    def ask(seed: int, parts: int) -> list[tuple[object, ...]]:
        cut = export.attempts.repartition(parts)
        return rows_of(what_if(export.messages, cut, policies, seed=seed, replicates=6, details=False, small=True).drop("observed_share"))

    first = ask(1, 2)
    assert ask(1, 5) == first
    assert ask(2, 2) != first


def _policy(path: Path, settings: object) -> Path:
    path.write_text(json.dumps({"address-settings": settings}))  # JSON is YAML
    return path


def test_what_nobody_tried_is_not_told(dump: Path, spark: SparkSession) -> None:
    """Under one attempt nothing is known of a second; that one attempt more changes nothing where it was not asked for is known."""
    export = read_export(spark, str(dump))
    once = export.attempts.where("attempt = 1"), export.messages.where("failed_attempts > 0")
    entries = once[1].selectExpr("* EXCEPT (outcome, failed_attempts)", "'dead-lettered' AS outcome", "1 AS failed_attempts")

    def ask(attempts: int) -> dict[tuple[str | None, str], Any]:
        policies = parse_policies({"#": {"max-delivery-attempts": attempts, "redelivery-delay": "1s"}})
        rows = what_if(entries, once[0], policies, replicates=4, details=False, small=True).collect()
        return {(row["queue"], row["figure"]): row for row in rows}

    more, same = ask(3)[None, "dead_letters"], ask(1)[None, "dead_letters"]
    assert (more["low"], more["expected"], more["high"]) == (None, None, None)
    assert more["recorded"] == same["low"] == same["high"] > 20


def test_nothing_is_tried_after_a_message_expired_or_the_record_ended(dump: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    export = read_export(spark, str(dump))
    began_us = export.attempts.agg(F.unix_micros(F.min("at"))).collect()[0][0]
    failed = export.messages.where("failed_attempts > 0")
    entries = failed.count()
    for messages, until_us in ((failed.withColumn("expires_at", F.col("sent_at")), None), (failed, began_us)):
        rows = what_if(
            messages, export.attempts, parse_policies(SAME), replicates=4, details=False, small=True, until_us=until_us
        ).collect()
        whole = {row["figure"]: row for row in rows if row["queue"] is None}
        assert whole["deliveries"]["low"] == whole["deliveries"]["high"] == entries < whole["deliveries"]["recorded"]
        assert whole["dead_letters"]["high"] == 0


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
