"""What the console's first page says is wrong: of answers of the broker's calls, which are written down here."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.console.overview import Answers, Level, findings
from homing.broker.console.templates import body_shown, trend

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
NOTHING = Answers(None, None, None, None, None, None)


def statistics(**said: Any) -> Any:
    disk = {"low": False, "waits_ms": 0, "free_bytes": 0}
    return {"producers_wait": [], "disk": disk, "failed_not_kept": 0, **said}


def group(**said: Any) -> Any:
    program = {"client_id": "", "host": "", "version": "2.3"}
    counts = {"dead": 1, "waiting": 0, "last_hour": 1, "first_ms": NOW_MS - MINUTE_MS, "last_ms": NOW_MS}
    states = {"muted": False, "regressed_ms": None, "fixed_in": None}
    return {"fault": "3-1", "queue": "q", "error_class": "E", "text": "t", "programs": [program], **counts, **states, **said}


def dead(**said: Any) -> Any:
    return {"queue": "DLQ.q", "messages": 5, "oldest_ms": 1, "reasons": {"delivery_limit": 5}, "top_fault": None, **said}


def job(**said: Any) -> Any:
    return {
        "job_id": 7,
        "queue": "DLQ.q",
        "state": "stopped",
        "why": "w",
        "ended_ms": NOW_MS,
        "started_ms": 1,
        "left": 3,
        "sent": 9,
        **said,
    }


def queue(**said: Any) -> Any:
    return {"queue": "q", "pending": 4, "dead": 0, "paused": False, "consumers": 0, **said}


def sentences(**answers: Any) -> list[str]:
    return [each.sentence for each in findings(NOTHING._replace(**answers), NOW_MS)]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "q: 1 failure within the hour, E: t, release 2.3 only"),
        ({"last_hour": 40, "first_ms": NOW_MS - 10 * MINUTE_MS}, "q: 4 failures a minute, E: t, release 2.3 only"),
        ({"last_hour": 600, "first_ms": 0}, "q: 10 failures a minute, E: t, release 2.3 only"),
        (
            {"last_hour": 600, "last_ms": NOW_MS - 20 * MINUTE_MS},
            "q: 600 failures within the hour, the last one 20 min ago, E: t, release 2.3 only",
        ),
        ({"programs": [{"version": "2.3"}, {"version": "2.4"}]}, "q: 1 failure within the hour, E: t"),
        ({"programs": [{"version": ""}]}, "q: 1 failure within the hour, E: t"),
        ({"text": ""}, "q: 1 failure within the hour, E, release 2.3 only"),
        ({"regressed_ms": NOW_MS, "fixed_in": "2.2"}, "q: E: t is back, and was said to be fixed in 2.2"),
        ({"muted": True}, None),
        ({"last_hour": 0}, None),
    ],
)
def test_a_fault_in_one_sentence(said: dict[str, Any], sentence: str | None) -> None:
    assert sentences(faults=[group(**said)]) == ([sentence] if sentence else [])


def test_the_worst_comes_first() -> None:
    waits = {"producers": 2, "why": "the disk is full", "limit": "disk-reserve", "since_ms": 1}
    held: Any = {"queue": "held", "suspects": 0, "on_hold": 2}
    answers = Answers(
        statistics(producers_wait=[waits]),
        [group(dead=3), group(dead=90, queue="worse")],
        [dead(), dead(queue="orders", reasons={"parked": 5})],
        [held],
        [job(), job(state="running"), job(state="done"), job(ended_ms=0)],
        [queue(), queue(paused=True, queue="still", pending=0), queue(consumers=1), queue(pending=0)],
    )
    found = findings(answers, NOW_MS)
    assert [each.sentence for each in found] == [
        "2 producers wait: the disk is full",
        "worse: 1 failure within the hour, E: t, release 2.3 only",
        "q: 1 failure within the hour, E: t, release 2.3 only",
        "Redrive 7 of DLQ.q has stopped: w",
        "DLQ.q: 5 dead letters",
        "orders: 5 dead letters stay in it, parked, with nowhere to go",
        "q: nobody consumes, and 4 messages wait",
        "still is paused",
        "Redrive 7 of DLQ.q is running, 9 sent",
        "held: 2 messages on hold until released by hand",
    ]
    assert [each.level for each in found] == sorted(each.level for each in found)
    assert found[0].level is Level.STOPPED
    assert all(each.where or each.command for each in found), "each has a next step"


def test_what_may_not_be_known_is_left_out() -> None:
    assert findings(NOTHING, NOW_MS) == []


@pytest.mark.parametrize(
    ("minutes", "last_hour", "last_day", "said"),
    [
        (59, 1, 1, "new"),
        (120, 10, 20, ""),
        (120, 21, 31, "growing"),
        (48 * 60, 11, 80, "growing"),
        (48 * 60, 9, 9, ""),
        (60, 10, 10, "growing"),
    ],
)
def test_how_a_fault_goes(minutes: int, last_hour: int, last_day: int, said: str) -> None:
    assert trend(group(first_ms=NOW_MS - minutes * MINUTE_MS, last_hour=last_hour, last_day=last_day), NOW_MS) == said


_PACKED = '{\n  "a": {\n    "base64": "/w=="\n  },\n  "b": [\n    {\n      "float": "NaN"\n    }\n  ]\n}'


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"hello", "text, 5 B", "hello"),
        (b'{"b":1,"a":[]}', "JSON, 14 B", '{\n  "b": 1,\n  "a": []\n}'),
        (b"7", "JSON, 1 B", "7"),
        (b'{"n":1.10,"big":9007199254740993}', "JSON, 33 B", '{\n  "n": 1.10,\n  "big": 9007199254740993\n}'),
        (b"\x82\xa1a\xc4\x01\xff\xa1b\x91\xcb\x7f\xf8" + b"\0" * 6, "MessagePack, 18 B", _PACKED),
        (b"\x81\xff\x01", "MessagePack, 3 B", '{\n  "-1": 1\n}'),
        (b"\x89PNG\r\n\x1a\n", "PNG image, 8 B", f"00000000  {'89 50 4e 47 0d 0a 1a 0a':<47}  .PNG...."),
        (b"\xff\x00A", "binary, 3 B", f"00000000  {'ff 00 41':<47}  ..A"),
        ("é".encode() * 40_000, "text, the first 64.0 KiB of 78.1 KiB", "é" * 32_768),
        (b"x" + "é".encode() * 40_000, "text, the first 64.0 KiB of 78.1 KiB", "x" + "é" * 32_767),
        (b"[" * 100_000, "text, the first 64.0 KiB of 97.7 KiB", "[" * 65_536),
    ],
)
def test_a_body_is_shown_as_what_it_looks_like(body: bytes, kind: str, text: str) -> None:
    assert body_shown(body) == (kind, text)
