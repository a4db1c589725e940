"""The life that ``homing history`` tells, from histories as the journal's reader gives them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from homing.broker.core.amqp.origin import packed
from homing.broker.core.message import AMQP_ORIGIN
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from homing.broker.words.amounts import clock
from homing.broker.words.timeline import Event, address_of, entries, life, sent_at_ms, verdict

NOW_MS = 1_800_000_000_000


def attempt(number: int, sequence: int = 5, **more: Any) -> Any:
    at_ms = NOW_MS - 60_000 + number * 5000
    known = {"sequence": sequence, "attempt": number, "queue": "orders", "at_ms": at_ms, "outcome": "listener", "consumer": "c1/1"}
    known |= {"connection": "c1", "assigned_at_ms": at_ms - 9, "given_at_ms": at_ms - 5, "delay_ms": 2000, "due_at_ms": at_ms + 2000}
    fault = {"error_type": "ValueError", "error_text": "no", "fingerprint": "f"}
    return {**known, "decision": "redeliver", "original_address": "orders", "fault": fault, **more}


def outcome(kind: str, sequence: int = 5, **more: Any) -> Any:
    known = {"sequence": sequence, "queue": "orders", "at_ms": NOW_MS - 1000, "outcome": kind, "address": "orders", "attempts": 3}
    return {**known, "sent_at_ms": NOW_MS - 60_000, "entered_at_ms": NOW_MS - 60_000, "delivery_count": 3, **more}


def reference(sequence: int = 5, **more: Any) -> Any:
    known = {"sequence": sequence, "queue": "orders", "state": 0, "due_at_ms": None, "entered_at_ms": NOW_MS - 9000, "hops": []}
    return {**known, **more}


Records = list[Any]


def history(attempts: Records | None = None, outcomes: Records | None = None, references: Records | None = None) -> Any:
    return {"message_id": 7, "message": None, "attempts": attempts or [], "outcomes": outcomes or [], "references": references or []}


def titles(events: list[Event]) -> list[str]:
    return [event.title for event in events]


def test_what_a_program_ended_with_is_told() -> None:
    fault = {"error_type": None, "error_text": None, "reason": "no disk", "exit_status": 75, "fingerprint": "f"}
    (failed,) = [each for each in life(history([attempt(1, fault=fault)]), NOW_MS) if each.title.startswith("attempt 1")]
    assert failed.details[:2] == ["reason: no disk", "exit status: 75"]


def test_a_life_is_told_stay_by_stay() -> None:
    dead = outcome("dead-lettered", reason="delivery_limit", target_queues=["DLQ.orders"])
    reported = history([attempt(1), attempt(2, decision="dead-letter")], [dead], [reference(9, queue="DLQ.orders")])
    assert titles(life(reported, NOW_MS)) == [
        "sent to orders",
        "entered queue orders",
        "attempt 1 failed: the listener raised, held 5 ms",
        "attempt 2 failed: the listener raised, held 5 ms",
        "dead-lettered to DLQ.orders",
        "entered queue DLQ.orders",
        "is in DLQ.orders, since 9 s",
    ]
    assert (entries(reported), address_of(reported), sent_at_ms(reported)) == ([5, 9], "orders", NOW_MS - 60_000)


def test_deaths_of_what_was_not_durable_then_stand_where_they_were() -> None:
    def hop(sequence: int, queue: str, reason: str = "rejected") -> Any:
        return {"sequence": sequence, "queue": queue, "reason": reason, "attempts": 1, "at_ms": NOW_MS - 9000 + sequence}

    # Twice from orders; kept by a stop; from there once more; then sent back.
    hops = [hop(9, "mails"), hop(7, "orders"), hop(5, "orders", "poison")]
    dead = outcome("dead-lettered", 9, queue="mails", target_queues=["DLQ"])
    here = reference(12, queue="mails", hops=hops, redrive=3)
    assert titles(life(history([attempt(1, 9)], [dead], [here]), NOW_MS)) == [
        "sent to orders",
        "dead-lettered from orders after 1 failed attempt",
        "came back to orders",
        "dead-lettered from orders after 1 failed attempt",
        "entered queue mails",
        "attempt 1 failed: the listener raised, held 5 ms",
        "dead-lettered to DLQ",
        "sent back to mails",
        "entered queue mails",
        "is in mails, since 9 s",
    ]


def test_attempts_that_are_not_kept_are_counted() -> None:
    events = life(history([attempt(1), attempt(11), attempt(12)], references=[reference()]), NOW_MS)
    assert "9 more attempts, not kept" in titles(events)


@pytest.mark.parametrize(
    ("ended", "title"),
    [
        (outcome("succeeded", attempts=2), "succeeded at attempt 3"),
        (outcome("expired", reason="expired"), "expired, removed"),
        (outcome("expired", target_queues=["EXP.orders"]), "expired, moved to EXP.orders"),
        (outcome("dropped", reason="delivery_limit"), "removed: there is no dead-letter address"),
        (outcome("dropped", reason="gone customers"), "removed by a rule"),
        (outcome("purged"), "purged by hand"),
        (outcome("redriven", target_queues=["orders"]), "sent back to orders"),
    ],
)
def test_each_ending_has_words(ended: dict[str, Any], title: str) -> None:
    assert titles(life(history(outcomes=[ended]), NOW_MS))[-1] == title


@pytest.mark.parametrize(
    ("here", "title"),
    [
        (reference(state=1), "is parked in orders"),
        (reference(due_at_ms=NOW_MS + 65_000), "is due again in 1 min 5 s"),
        (reference(due_at_ms=NOW_MS - 1), "is in orders, since 9 s"),
    ],
)
def test_each_place_has_words(here: dict[str, Any], title: str) -> None:
    assert titles(life(history(references=[here]), NOW_MS))[-1].startswith(title)


def test_a_suspect_is_called_one() -> None:
    assert "delivered alone" in life(history(references=[reference(state=2)]), NOW_MS)[-1].details[0]


def test_the_verdict_sees_what_the_last_attempts_have_in_common() -> None:
    other = {"error_type": "ConnectionError", "error_text": "refused", "fingerprint": "g"}
    dead = outcome("dead-lettered")
    assert (verdict(history([attempt(1), attempt(2)], [dead])) or "").startswith("Both attempts on record failed alike (ValueError: no)")
    before = [attempt(1, sequence=3, fault=other), attempt(1), attempt(2)]
    assert (verdict(history(before, [dead])) or "").startswith("Both attempts since it entered queue orders last failed alike (ValueError")
    mixed = verdict(history([attempt(1, fault=other), attempt(2), attempt(3)], [dead]))
    assert (mixed or "").startswith("Its last 2 attempts failed alike (ValueError: no)")
    different = verdict(history([attempt(1), attempt(2, fault=other)], [dead]))
    assert "different ways" in (different or "")
    assert verdict(history([attempt(1)], [dead])) is None
    for outcome_of_last in ("nack", "rejected"):
        silent = [attempt(1, fault=None, outcome="nack"), attempt(2, fault=None, outcome=outcome_of_last)]
        assert (verdict(history(silent, [dead])) or "").startswith("Nobody said why")
    lost = verdict(history([attempt(number, fault=None, outcome="connection-lost") for number in (1, 2)], [dead]))
    assert "failed alike (the connection was lost" in (lost or "")
    assert verdict(history([attempt(1), attempt(2)], references=[reference()])) is None


def test_times_say_their_date_and_zone_where_they_are_of_another_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        midnight_ms = 1_782_856_800_000  # 2026-07-01 00:00 in Berlin
        assert clock(midnight_ms - 1, beside_ms=midnight_ms) == "2026-06-30 23:59:59.999 CEST"
        assert clock(midnight_ms + 1, beside_ms=midnight_ms) == "00:00:00.001"
        assert clock(midnight_ms, beside_ms=midnight_ms, date=True) == "2026-07-01 00:00:00.000 CEST"
        overnight = attempt(1) | {"at_ms": midnight_ms - 1000, "decision": "redeliver", "due_at_ms": midnight_ms, "delay_ms": 1000}
        reported = life(history([overnight], references=[reference()]), midnight_ms)
        assert "decided: wait 1 s, again at 2026-07-01 00:00:00.000 CEST" in [line for event in reported for line in event.details]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_came_over_amqp_says_how() -> None:
    content = write_properties(ContentProperties(content_type="text/plain", message_id="order-7", delivery_mode=2))
    properties = {"n": 1, AMQP_ORIGIN: packed("shop", "orders.eu", [], content)}
    message: Any = {"address": "orders", "sent_at_ms": NOW_MS, "properties": properties}
    sent = life(history(references=[reference()]) | {"message": message}, NOW_MS)[0]
    assert sent.details == ["over AMQP to exchange shop, routing key orders.eu  message-id=order-7  content-type=text/plain", "n=1"]
