"""What the pages draw and advise, from plain rows. No Spark."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from homing.analytics.page.advice_words import attempts_for, sentence, spacing
from homing.analytics.page.flow_chart import drawn_flow
from homing.analytics.page.line_chart import Curve, count_axis, falling, time_axis
from homing.analytics.page.simulate_report import simulate_page
from homing.analytics.reports.clusters import components
from homing.analytics.words import NB

Row = dict[str, Any]


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
    told = sentence(ADVICE).replace(NB, " ")
    assert told.startswith(
        "orders.eu (settings of orders.*): 93 % of what succeeds after Timeout does so within 40 s; 10 attempts at 5 s give up after 50 s; "
        "Timeout would need about 1 min 30 s for 99 of 100 to come home: max-delivery-attempts: 18 with the delays as they are, or "
        "6 with redelivery-delay-multiplier: 2. 20.0 % of the successes came with one of the last two attempts."
    )


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
    told = sentence(ADVICE | {"settings_json": '{"redelivery_back_off": "later"}', "pattern": None}).replace(NB, " ")
    assert told.startswith("orders.eu: 93 %")
    assert "10 attempts give up after 50 s; Timeout would need about 1 min 30 s for 99 of 100 to come home. 20.0 %" in told
    assert "homing simulate" in sentence(ADVICE | {"needs_ms": None})


def test_what_hangs_together_is_one() -> None:
    assert components([(5, 9), (9, 2), (7, 8)]) == {5: 2, 9: 2, 2: 2, 7: 7, 8: 7}
    chain = dict.fromkeys(range(500), 0)
    assert components((n, n + 1) for n in range(499)) == chain


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
