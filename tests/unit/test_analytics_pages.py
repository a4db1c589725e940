"""What the pages draw and advise, from plain rows. No Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from homing.analytics.commands.limits import Period, parse_limit
from homing.analytics.errors import AnalyticsError
from homing.analytics.page.advice_words import attempts_for, sentence, spacing
from homing.analytics.page.flow_chart import drawn_flow
from homing.analytics.page.line_chart import Curve, count_axis, falling, time_axis
from homing.analytics.page.ranking import Finding, headlines, ranked
from homing.analytics.page.simulate_report import simulate_page
from homing.analytics.reports.clusters import near_duplicates
from homing.analytics.what_if.policy import parse_policies
from homing.analytics.words import NB

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]


def way(source: str, target: str, messages: int, why: str = "dead-lettered", circling: int = 0) -> Row:
    return {"source": source, "target": target, "why": why, "messages": messages, "circling": circling}


def boxes(svg: str) -> dict[str, tuple[float, float, float]]:
    """name -> (x, y, height) of its box."""
    found = re.findall(r'<rect class="node" x="([\d.]+)" y="([\d.]+)" width="\d+" height="([\d.]+)".*?<title>(.*?):', svg)
    return {name: (float(x), float(y), float(height)) for x, y, height, name in found}


def test_queues_stand_right_of_those_that_lead_to_them() -> None:
    svg = str(drawn_flow([way("a", "b", 40), way("b", "c", 30), way("a", "c", 10)], "t"))
    x = {name: box[0] for name, box in boxes(svg).items()}
    assert x["a"] < x["b"] < x["c"]
    heights = {name: box[2] for name, box in boxes(svg).items()}
    assert heights["a"] == pytest.approx(heights["b"] * 50 / 40, rel=0.01)
    assert "way back" not in svg


def test_boxes_of_a_column_do_not_overlap() -> None:
    rows = [way(f"q{n}", f"DLQ.q{n % 3}", 1 + 7 * n) for n in range(9)]
    columns: dict[float, list[tuple[float, float]]] = {}
    for x, y, height in boxes(str(drawn_flow(rows, "t"))).values():
        columns.setdefault(x, []).append((y, height))
    assert len(columns) == 2
    for column in columns.values():
        column.sort()
        assert all(y + height < after for (y, height), (after, _) in pairwise(column))


def test_what_closes_a_circle_leads_back_and_redrives_yield_first() -> None:
    svg = str(drawn_flow([way("a", "b", 5), way("b", "a", 90, why="redriven"), way("b", "b", 3, circling=3)], "t"))
    assert svg.count('class="way back"') == 2
    assert boxes(svg)["a"][0] < boxes(svg)["b"][0]
    assert "b → b: 3 messages dead-lettered, 3 messages in circles" in svg


def test_names_in_the_picture_are_escaped_and_cut() -> None:
    svg = str(drawn_flow([way("<b>", "a" * 60, 5)], "t"))
    assert "&lt;b&gt;" in svg
    assert "<b>" not in svg
    assert f"{'a' * 27}…" in svg


def test_a_curve_falls_in_steps_and_times_are_logarithmic() -> None:
    axis = time_axis(100, 10_000, "time")
    assert [axis.x(ms) for ms in (100, 1_000, 10_000)] == pytest.approx([52, 52 + 892 * 0.4899, 52 + 892 * 0.9798], abs=0.5)
    assert (count_axis(11, "n").x(1), count_axis(11, "n").x(11)) == (52, 944)
    svg = str(falling([Curve("<x>", "all", [(1_000, 0.5), (2_000, 0.5), (5_000, 0.0)])], axis, "t"))
    (line,) = re.findall(r'class="curve all" d="(.*?)"', svg)
    assert line.count("V") == 2  # nothing happened at 2 s
    assert "&lt;x&gt;" in svg


SETTINGS = {"max_delivery_attempts": 10, "redelivery_delay_ms": 5_000, "redelivery_delay_multiplier": 1.0, "max_redelivery_delay_ms": None}
ADVICE: Row = {
    "rule": None,
    "queue": "orders.eu",
    "pattern": "orders.*",
    "error_class": "Timeout",
    "kind": "longer",
    "failed": 200,
    "succeeded": 150,
    "died": 50,
    "within_ms": 40_000,
    "gives_up_ms": 50_000,
    "needs_ms": 90_000,
    "most_attempts": 10,
    "last_two": 30,
    "late_wins": 20,
    "wasted": 400,
    "settings_json": json.dumps(SETTINGS | {"consumer_policy": None, "redelivery_delays_ms": []}),
}


def test_advice_says_how_many_attempts_it_would_take() -> None:
    assert sentence(ADVICE | {"queue": "pay @ 65305e68", "pattern": "pay"}).startswith("pay @ 65305e68: ")
    reported = sentence(ADVICE).replace(NB, " ")
    assert reported.startswith(
        "orders.eu (settings of orders.*): 93 % of what succeeds after Timeout does so within 40 s; 10 attempts at 5 s give up after 50 s; "
        "Timeout would need about 1 min 30 s for 99 of 100 to succeed: max-delivery-attempts: 18 with the delays as they are, or "
        "6 with redelivery-delay: 5s, redelivery-delay-multiplier: 2, max-redelivery-delay: 50s (5 s, 10 s, 20 s … 50 s apart). 20.0 % of "
        "the successes came with one of the last two attempts."
    )


@pytest.mark.parametrize("more", [{}, {"max_redelivery_delay_ms": 3_600_000, "redelivery_collision_avoidance_factor": 0.2}])
def test_advice_names_the_whole_schedule(more: Row) -> None:
    """Who names a part of a schedule takes leave of what he does not name: what is advised comes to what was reckoned with."""
    reported = sentence(ADVICE | {"settings_json": json.dumps(SETTINGS | more), "needs_ms": 400_000})
    advised = dict(re.findall(r"(redelivery-[a-z-]+|max-redelivery-delay): ([\w.]+)", reported))
    policy = parse_policies({"#": {name: yaml_value(value) for name, value in advised.items()}}).of(frozenset({"#"}))
    assert policy is not None
    assert policy.delays_ms[:3] == (5_000, 10_000, 20_000)
    assert (policy.cap_ms, policy.factor) == ((3_600_000, 0.2) if more else (50_000, 0.0))


def yaml_value(text: str) -> Any:
    return float(text) if re.fullmatch(r"[\d.]+", text) else text


def test_attempts_take_as_long_as_they_did() -> None:
    """Nine delays of 5 s took 50 s on record, so each counts 5.56 s: 17 of them last 94.4 s, 16 only 88.9 s."""
    assert attempts_for(ADVICE, 90_000) == 18
    assert attempts_for(ADVICE, 88_000) == 17
    assert attempts_for(ADVICE, 10_000_000) is None
    assert attempts_for(ADVICE | {"settings_json": None}, 90_000) is None
    listed = json.dumps({"redelivery_delays_ms": [1_000, 60_000], "max_delivery_attempts": 4})
    assert spacing(ADVICE | {"settings_json": listed}).replace(NB, " ") == " from 1 s to 1 min apart"
    assert attempts_for(ADVICE | {"settings_json": listed, "most_attempts": 4}, 130_000, multiplier=2.0) is None


def test_settings_of_another_kind_are_left_out_of_the_sentence() -> None:
    reported = sentence(ADVICE | {"settings_json": '{"redelivery_back_off": "later"}', "pattern": None}).replace(NB, " ")
    assert reported.startswith("orders.eu: 93 %")
    assert "10 attempts give up after 50 s; Timeout would need about 1 min 30 s for 99 of 100 to succeed. 20.0 %" in reported
    assert "homing simulate" in sentence(ADVICE | {"needs_ms": None})


def test_what_hangs_together_is_one() -> None:
    few, chain = [set("abcd"), set("xy"), set("abcde"), set("bcdef"), set(), set()], [set(range(n, n + 9)) for n in range(0, 1_000, 2)]
    assert near_duplicates(few) == [0, 1, 0, 0, 2, 3]
    assert near_duplicates(chain) == [0] * len(chain)
    assert near_duplicates([{1, 2}, {2, 3}]) == [0, 1]
    assert near_duplicates([]) == []


def test_the_page_of_a_what_if() -> None:
    rows = [
        {"queue": queue, "figure": figure, "recorded": recorded, "expected": 20.0, "low": low, "high": high, "observed_share": 0.5}
        for queue in (None, "<q>")
        for figure, recorded, low, high in (
            ("dead_letters", 50.0, 10.0, 30.0),
            ("succeeded", 5.0, 0.0, 30.0),
            ("deliveries", 5.0, 20.0, 20.0),
        )
    ]
    page = simulate_page(rows, headline="Told; and more", dump="d", policy='"#": {max-delivery-attempts: 3}', seed=7)
    assert "<h1>Told</h1>" in page
    assert "<h2>Dead letters: 10 to 30, on record 50</h2>" in page
    assert page.count('<small class="better">') == 2  # fewer died, in all and in the one queue
    assert page.count('<small class="worse">') == 2  # and more was delivered
    assert "&lt;q&gt;" in page
    assert "max-delivery-attempts: 3" in page
    assert not re.search(r"https?:|\bsrc=|<link|<script|@import|url\(", page)


AT, LATER = datetime(2026, 3, 2, 8, tzinfo=UTC), datetime(2026, 3, 2, 8, 5, tzinfo=UTC)
FAULT: Row = {
    "cluster": 1,
    "error_class": "Shape",
    "queue": "pay",
    "deaths": 30,
    "here": 28,
    "lost": 2,
    "succeeded": 0,
    "messages": 30,
    "attempts": 90,
    "poison": True,
    "outage": False,
    "seen": "steady",
    "first_at": AT,
    "last_at": LATER,
}
ADVISED = ADVICE | {"queue": "pay", "current": True, "retries": 500, "wasted": 400, "first_at": AT, "last_at": LATER}
SUSPECT: Row = {
    "queue": "pay",
    "error_class": "Timeout",
    "kind": "version",
    "name": "3.2",
    "failed": 50,
    "deliveries": 100,
    "others_failed": 0,
    "others_deliveries": 90,
    "suspect": True,
    "alike": "",
    "first_at": AT,
    "last_at": LATER,
}
OUTAGE: Row = {
    "queue": "pay",
    "error_class": "Shape",
    "from_at": AT,
    "to_at": LATER,
    "up_after": LATER,
    "failures": 60,
    "messages": 40,
    "succeeded": 12,
}


def findings(**changed: list[Row]) -> list[Finding]:
    """Of tables that have a row of each, and of those in ``changed`` others."""
    storm = {"queue": "log", "from_at": AT, "until": LATER, "minutes": 5, "retries": 300, "deliveries": 400}
    tables: dict[str, list[Row]] = {
        "overview": [{"queue": "pay", "difference": 0, "dropped": 3, "ran_out": 2}],
        "dead_letter_groups": [{"dead_letter_queue": "DLQ.pay", "queue": "pay", "remaining": 28}],
        "poison_clusters": [FAULT],
        "advice": [ADVISED],
        "dead_letter_trend": [{"queue": "log", "verdict": "growing", "early": 5, "late": 25}],
        "retry_load": [{"queue": "pay", "minute": AT}, {"queue": "pay", "minute": LATER}, {"queue": "log", "minute": AT}],
        "retry_storms": [storm],
        "due_error": [{"queue": "log", "late": True, "p50_ms": 5_000, "retries": 9}],
        "flow": [{"source": "pay", "target": "b", "circling": 12, "first_at": AT, "last_at": LATER}],
        "faults": [{"queue": "pay", "cluster": 1, "fingerprint": "3-ab", "attempts": 90, "command": "homing faults show 3-ab"}],
        **{name: [] for name in ("thundering_herds", "consumers", "releases", "outages", "redrive_yield")},
    }
    every = (tables | changed).items()
    return ranked({name: pa.Table.from_pylist(rows) if rows else pa.table({"queue": []}) for name, rows in every}, "exports")


def test_findings_come_by_what_they_cost() -> None:
    found = findings()
    assert [(each.kind, each.messages, each.retries) for each in found] == [
        *(("longer", 50, 0), ("poison", 30, 0), ("growth", 20, 0), ("circle", 12, 0), ("dropped", 3, 0), ("expired", 2, 0)),
        *(("storm", 0, 300), ("late", 0, 9)),
    ]
    assert [each.command for each in found[:2]] == ["homing simulate exports --policy new.yaml", "homing faults show 3-ab"]
    assert found[0].parts[0] == "pay gives up too early on Timeout"
    assert found[1].text.endswith("30 of 30 messages that met it were dead-lettered; 28 lie in a dead-letter queue and 2 are gone")
    assert found[1].as_json()["last_seen"] == "2026-03-02T08:05:00+00:00"
    wrong = findings(overview=[{"queue": "log", "difference": 1, "dropped": 0, "ran_out": 0}])
    assert (wrong[0].kind, wrong[0].queue) == ("imbalance", "log")
    assert [each.window for each in found if each.kind == "late"] == [(AT, AT)]
    assert wrong[0].window == (AT, AT)


def test_a_fault_that_is_new_or_back_is_found() -> None:
    fault = FAULT | {"error_class": "Late", "deaths": 2, "here": 2, "lost": 0, "messages": 40, "attempts": 55, "poison": False}
    for seen, kinds in {"new": ["new-fault"], "back": ["back-fault"], "steady": [], "gone": []}.items():
        found = [each for each in findings(poison_clusters=[fault | {"seen": seen}], advice=[]) if each.kind.endswith("fault")]
        assert [each.kind for each in found] == kinds
    assert findings(poison_clusters=[fault | {"seen": "new", "messages": 5}], advice=[])[0].kind != "new-fault"


def told(queue: str, **changed: list[Row]) -> list[str]:
    return [each.kind for each in findings(overview=[], flow=[], **changed) if each.queue == queue]


def test_one_fault_is_one_finding_and_its_symptoms_are_none() -> None:
    """It is of no use to try longer what is poison, nor to say that something is poison where the advice is not to retry it."""
    fault = FAULT | {"error_class": "Timeout"}
    assert told("pay", poison_clusters=[fault]) == ["poison"]
    assert told("pay", poison_clusters=[fault], advice=[ADVISED | {"kind": "not-retryable"}]) == ["not-retryable"]
    assert told("pay", poison_clusters=[fault], releases=[SUSPECT]) == ["suspect-release"]
    grows = {"queue": "pay", "verdict": "growing", "early": 5, "late": 25}
    assert told("pay", poison_clusters=[fault], dead_letter_trend=[grows]) == ["poison"]


def test_a_suspect_comes_first_and_is_named() -> None:
    (first, *_) = findings(releases=[SUSPECT | {"failed": 5, "alike": "host h1"}, SUSPECT | {"suspect": False}])
    assert (first.kind, first.queue, first.messages) == ("suspect-release", "pay", 5)
    assert first.text.replace(NB, " ") == (
        "Version 3.2 fails 5.0 % of what it gets from pay with Timeout; no other does at the same time. "
        "It may as well be host h1: they fail alike"
    )


def test_an_outage_is_found_whether_anything_died_or_not() -> None:
    down = FAULT | {"poison": False, "outage": True}
    killed = [each for each in findings(poison_clusters=[down], outages=[OUTAGE], advice=[]) if each.kind == "outage"]
    assert [(each.messages, each.command) for each in killed] == [(30, "homing redrive DLQ.pay")]
    (survived,) = (each for each in findings(poison_clusters=[], outages=[OUTAGE], advice=[]) if each.kind == "outage")
    assert (survived.messages, survived.retries, survived.command) == (0, 60, "homing explain pay")
    assert survived.text.endswith("12 of 40 messages succeeded since")


def test_what_is_over_comes_last_and_what_may_go_back_is_told() -> None:
    over = FAULT | {"here": 0, "lost": 0, "succeeded": 30, "poison": False}
    assert (findings(poison_clusters=[over])[-1].kind, findings(poison_clusters=[over])[-1].over) == ("poison", True)
    assert [each.over for each in findings() if each.kind == "poison"] == [False]
    some = [each for each in findings(poison_clusters=[over | {"here": 9, "succeeded": 21}]) if each.kind == "redrive"]
    assert [(each.messages, each.command) for each in some] == [(9, "homing redrive DLQ.pay")]
    lie = {
        "fingerprint": "3-ab",
        "lie": 9,
        "least": 7,
        "most": 9,
        "like_succeeded": 4,
        "like_version": "3.3",
        "command": "homing redrive these",
    }
    (told,) = (each for each in findings(poison_clusters=[over | {"here": 9}], redrive_yield=[lie]) if each.kind == "redrive")
    assert told.text.endswith("; 7 to 9 of 9 can be expected to succeed; since then 4 messages that met it succeeded, the last in 3.3")
    assert told.command == "homing redrive these"


def test_the_page_shows_one_finding_of_each_kind_and_queue() -> None:
    one, other = (Finding("slow", "pay", 0, n, None, "told", "homing consumers pay", "consumers") for n in (9, 8))
    assert headlines([one, other, replace(other, queue="b")], 8) == [one, replace(other, queue="b")]
    assert headlines([one, replace(other, queue="b")], 1) == [one]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("dead_letter_rate > 0.01", "dead_letter_rate > 0.01 (dead_letter_rate is 0.05)"),
        ("dead_letter_rate > 4%", "dead_letter_rate > 4% (dead_letter_rate is 0.05)"),
        ("dead_letter_rate > 0.05", None),
        ("dead_letters>=5", "dead_letters>=5 (dead_letters is 5)"),
        ("failure_rate < 0.5", "failure_rate < 0.5 (failure_rate is 0.1)"),
    ],
)
def test_limits(text: str, reported: str | None) -> None:
    """Of messages: of 100 that were sent 94 succeeded; one that died came from elsewhere."""
    row = {"came_home": 94, "given_up": 6, "died": 5, "dead_lettered": 6, "ran_out": 1, "dropped": 0, "failed": 20, "delivered": 200}
    judged = parse_limit(text).judge(Period({"overview": pa.Table.from_pylist([row])}, 0))
    assert (str(judged) if judged.broken else None) == reported


def test_limits_on_what_is_new_and_who_is_suspect() -> None:
    rows = [SUSPECT, SUSPECT | {"kind": "host"}, SUSPECT | {"suspect": False}]
    assert parse_limit("suspect_releases > 0").judge(Period({"releases": pa.Table.from_pylist(rows)}, 0)).value == 1
    seen = [FAULT | {"seen": each} for each in ("new", "back", None, "new")]
    assert str(parse_limit("new_faults >= 2").judge(Period({"poison_clusters": pa.Table.from_pylist(seen)}, 0))) == (
        "new_faults >= 2 (new_faults is 2)"
    )


def test_limits_of_one_queue_of_times_and_against_the_usual() -> None:
    def told(text: str, now: list[Any], before: tuple[Any, ...] = ()) -> tuple[bool | None, str]:
        limit = parse_limit(text)
        periods = (
            Period({limit.table: pa.Table.from_pylist(rows)}, 3_600_000_000, hours * 3_600_000_000)
            for rows, hours in ((now, 1), (before, 4))
        )
        judged = limit.judge(*periods)
        return judged.as_json()["holds"], str(judged)

    pay, orders = {"queue": "pay", "died": 8, "came_home": 2, "given_up": 8}, {"queue": "orders", "died": 0, "came_home": 90, "given_up": 0}
    assert told("dead_letter_rate(pay) > 1%", [pay, orders]) == (False, "dead_letter_rate(pay) > 1% (dead_letter_rate is 0.8)")
    assert told("dead_letter_rate(orders) > 1%", [pay, orders])[0] is True
    assert told("dead_letter_rate(nobody) > 1%", [pay, orders]) == (None, "dead_letter_rate(nobody) > 1% (dead_letter_rate is not known)")
    # Four hours had eight, so an hour has two.
    assert told("dead_letters > usual * 3", [pay], (pay,)) == (False, "dead_letters > usual * 3 (dead_letters is 8, usual is 2)")
    assert told("dead_letters > usual * 4", [pay], (pay,))[0] is True
    assert told("dead_letters > usual * 0", [pay], (pay,)) == (False, "dead_letters > usual * 0 (dead_letters is 8, usual is 2)")
    assert told("dead_letter_rate > usual", [pay], (pay,))[0] is True
    died = {"queue": "pay", "oldest_died_at": datetime.fromtimestamp(0, UTC)}
    assert told("oldest_dead_letter > 59min", [died, died | {"oldest_died_at": datetime.fromtimestamp(3_000, UTC)}]) == (
        False,
        "oldest_dead_letter > 59min (oldest_dead_letter is 1 h)",
    )
    waits = [{"queue": each, "error_class": None, "p99_ms": ms} for each, ms in ((None, 5_000), ("pay", 9_000), ("orders", 1_000))]
    assert [told(f"p99_to_success{each} > 6s", waits)[0] for each in ("", "(pay)", "(orders)")] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("dead_leter_rate > 1", "Did you mean dead_letter_rate?"),
        ("dead_letters", "Write a figure"),
        ("p99_to_success > 5", "Give it a unit: ms, s, min, h, d; such as 5h."),
        ("dead_letters > 5min", "Leave out 'min'."),
    ],
)
def test_limits_that_say_nothing(text: str, fix: str) -> None:
    with pytest.raises(AnalyticsError) as raised:
        parse_limit(text)
    assert raised.value.code == "bad-limit"
    assert raised.value.fix.startswith(fix)


def test_the_page_comes_from_an_archive_too(tmp_path: Path) -> None:
    """As a cluster gets the package: nothing of it is a file on the machine that runs the job."""
    with zipfile.ZipFile(tmp_path / "homing.zip", "w") as archive:
        archive.write(ROOT / "homing" / "__init__.py", "homing/__init__.py")
        for path in sorted((ROOT / "analytics").rglob("*.*")):
            if path.suffix != ".pyc":
                archive.write(path, f"homing/analytics/{path.relative_to(ROOT / 'analytics')}")
    program = (
        "from homing.analytics.page import report; print(report.page_environment().get_template('report.html.j2').name, report.__file__)"
    )
    variables = {"PYTHONPATH": str(tmp_path / "homing.zip"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.stdout == f"report.html.j2 {tmp_path}/homing.zip/homing/analytics/page/report.py\n", done.stderr
