"""What the page says: numbers, spans, sentences and charts from plain numbers. No Spark."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from homing.analytics import words
from homing.analytics.input.export import Manifest
from homing.analytics.input.inputs import parse_manifest
from homing.analytics.input.schema import TABLES
from homing.analytics.page import charts, findings
from homing.analytics.page.findings import Load
from homing.journal.export import parquet as export_parquet


def plain(text: str) -> str:
    return text.replace(words.NB, " ")


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 ms"),
        (870, "870 ms"),
        (5_000, "5 s"),
        (5_120, "5.1 s"),
        (59_990, "1 min"),
        (75_254, "1 min 15 s"),
        (3_599_900, "1 h"),
        (3_730_412, "1 h 2 min"),
        (86_399_000, "1 d"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_spans(ms: int, said: str) -> None:
    assert plain(words.span(ms)) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 3, "33.3 %"),
        (99_999, 100_000, "> 99.9 %"),
        (1, 100_000, "< 0.1 %"),
        (0, 0, "–"),
        (1 + 1e-15, 1, "100 %"),
    ],
)
def test_shares_never_round_something_away(part: float, whole: int, said: str) -> None:
    assert plain(words.share(part, whole)) == said


TOTAL = {"sent": 1000, "moved_in": 0, "succeeded": 990, "dead_lettered": 10, "expired": 0, "dropped": 0, "purged": 0}
TOTAL |= {"came_home": 990, "given_up": 10}


def test_the_headline() -> None:
    assert plain(findings.headline(TOTAL)) == "99.0 % of the messages that came to an end succeeded; 10 did not"
    assert findings.headline(TOTAL | {"given_up": 0}).endswith("none was given up")
    nothing = dict.fromkeys(TOTAL, 0) | {"sent": 1}
    assert findings.headline(nothing) == "1 message sent; none has come to an end yet"


def test_the_balance_says_so_when_it_does_not_come_out() -> None:
    assert findings.balance(TOTAL, {"wrong_queues": 0}) == "All of the 1,000 messages sent are accounted for"
    assert findings.balance(TOTAL, {"wrong_queues": 2}).startswith("2 queues do not add up")


def test_attempts_and_times() -> None:
    assert plain(findings.attempts({2: 75, 3: 20, 7: 5})).endswith("75.0 % at the second attempt, the last at attempt 7")
    assert findings.attempts({2: 1}) == "1 message failed at first and then succeeded, each at the second attempt"
    assert findings.attempts({}) == findings.times(None, []) == "No message that failed has succeeded later"
    every = {"p50_ms": 5_000, "p90_ms": 9_000, "max_ms": 60_000}
    slow = {"queue": "pay", "p90_ms": 30_000}
    assert plain(findings.times(every, [slow, slow])).endswith("slowest is pay, where one in ten took over 30 s")
    assert plain(findings.times(every, [every | {"queue": "a"}])).endswith("5 s after being sent; the slowest took 1 min")


def test_deaths_and_failures() -> None:
    kinds = [
        {"queue": "a", "error_class": "Timeout", "deaths": 8, "why": "rejected"},
        {"queue": "b", "error_class": "KeyError", "deaths": 2, "why": ""},
    ]
    assert (
        plain(findings.deaths(10, [{"queue": "a", "deaths": 8}], kinds))
        == "10 deaths, 80.0 % of them in a, there mostly of Timeout (rejected)"
    )
    assert findings.deaths(8, [{"queue": "a", "deaths": 8}], kinds[:1]) == "8 deaths, all in a, there mostly of Timeout (rejected)"
    assert findings.deaths(0, [], []) == "No message was dead-lettered"
    assert findings.failed([]) == "No message on record has failed"
    assert findings.failed([{"failed_attempts": 1, "last_error_class": None}]) == "The message that failed most failed 1 time"


def test_where_a_message_is_now() -> None:
    row = {"queue": "DLQ.a", "outcome": None}
    assert findings.fate(row | {"state": "ready"}) == "waits in DLQ.a"
    assert findings.fate(row | {"state": "parked"}) == "is parked in DLQ.a"
    assert findings.fate(row | {"state": "settled", "outcome": "redriven"}) == "sent back from DLQ.a"
    assert findings.fate(row | {"state": "settled", "outcome": "expired"}) == "expired"


def test_the_retry_load_finds_its_peak() -> None:
    start = int(datetime(2026, 3, 2, 8, tzinfo=UTC).timestamp())
    points = [Load(start, 90, 0, 10, 0), Load(start + 60, 10, 20, 0, 30)]
    assert (points[1].retries, points[1].deliveries) == (50, 60)
    expected = "31.2 % of all deliveries were retries; most at 08:01 UTC, when they were 83.3 % of 60 in 1 minute"
    assert plain(findings.load(points, 1)) == expected
    assert findings.load([], 1) == "No delivery was a retry"


@pytest.mark.parametrize(
    ("value", "top"), [(0, 4), (4, 4), (5, 8), (127, 160), (384, 400), (401, 500), (40_537, 50_000), (1_000_001, 1_200_000)]
)
def test_axes_end_at_round_numbers_not_far_above(value: int, top: int) -> None:
    assert charts.nice_ceiling(value) == top


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (7_500, "7,500"), (12_500, "12.5k"), (900_000, "900k"), (1_250_000, "1.25M")])
def test_what_an_axis_is_marked_with_is_short(value: float, text: str) -> None:
    assert charts.short(value) == text


def test_columns_are_as_high_as_their_values() -> None:
    svg = str(charts.columns([charts.Bar("08:00", "first", (50, 50)), charts.Bar("", "second", (25, 0))], ["first", "dead"], "<title>"))
    room = charts.HEIGHT - charts.TOP - charts.BOTTOM
    top = charts.nice_ceiling(100)
    heights = [float(h) for h in re.findall(r'class="(?:first|dead)"[^>]* height="([\d.]+)"', svg)]
    assert heights == pytest.approx([50 / top * room, 50 / top * room, 25 / top * room], abs=0.1)
    assert 'aria-label="&lt;title&gt;"' in svg


def test_the_width_of_a_bin() -> None:
    assert [words.width(minutes) for minutes in (1, 30, 60, 360, 1_440, 43_200)] == [
        *("1 minute", "30 minutes", "1 hour", "6 hours", "1 day", "30 days")
    ]


def test_from_when_to_when() -> None:
    def at(day: int, hour: int, minute: int, second: int = 0) -> datetime:
        return datetime(2026, 11, day, hour, minute, second, tzinfo=UTC)

    assert words.between(at(23, 18, 48, 55), at(23, 18, 49, 21)) == "23 Nov 18:48:55 to 18:49:21"
    assert words.between(at(23, 18, 48), at(23, 18, 50)) == "23 Nov 18:48 to 18:50"
    assert words.between(at(2, 8, 0, 3), at(16, 7, 51)) == "02 Nov 08:00 to 16 Nov 07:51"
    assert words.between(at(2, 8, 0, 3), at(2, 8, 0, 3)) == "02 Nov 08:00:03"


def test_a_logarithmic_axis() -> None:
    assert charts.log_position(100, 10, 1000) == pytest.approx(50)
    assert [plain(label) for _, label in charts.log_ticks(500, 700_000)] == ["1 s", "10 s", "1 min", "5 min"]
    assert charts.log_position(5, 7, 7) == 50


def test_both_sides_know_the_same_columns() -> None:
    """journal writes them, analytics reads them, and neither imports the other."""
    shared = [("broker_id", "string"), ("schema_version", "int32")]
    assert {table.name: [*shared, *table.fields()] for table in export_parquet.TABLES} == TABLES


def test_a_manifest_is_read() -> None:
    text = '{"format": "homing-export", "schema_version": 1, "broker_id": "b", "exported_at_us": 5, "rows": {"messages": 1}}'
    assert parse_manifest("dump", text) == Manifest("b", 5, {"messages": 1}, 1)
