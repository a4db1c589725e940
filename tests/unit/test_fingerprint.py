"""Faults that look alike have one fingerprint, wherever and under whatever Python they were raised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.journal.fingerprint import fingerprint, of_fault, of_group, plain

#: What one program printed as it failed in three ways: released into a venv under Python 3.11, and in a checkout under 3.13, where
#: comprehensions have no frame, and other lines are marked.
TRACEBACKS = Path(__file__).parent / "tracebacks"
Reported = dict[str, tuple[str, str, str]]


def of(error_type: str, text: str, traceback: str) -> str:
    """Of a failure that was reported."""
    return fingerprint("nack", "orders", error_type, text, traceback)


def reported_by(name: str) -> Reported:
    found: Reported = {}
    for part in (TRACEBACKS / f"{name}.txt").read_text().split("== ")[1:]:
        head, traceback = part.split("\n", 1)
        way, error = head.split(" ", 1)
        kind, text = error.split(" | ")
        found[way] = kind, text, traceback
    return found


def test_a_release_under_one_python_and_a_checkout_under_another_are_one_group() -> None:
    released, checkout = reported_by("released-3.11"), reported_by("checkout-3.13")
    assert released["lookup"][1] != checkout["lookup"][1]
    prints = {way: of(*reported) for way, reported in released.items()}
    assert prints == {way: of(*reported) for way, reported in checkout.items()}
    assert len(set(prints.values())) == 3


@pytest.mark.parametrize("name", ["released-3.11", "checkout-3.13"])
def test_another_place_in_the_program_is_another_fault(name: str) -> None:
    kind, text, traceback = reported_by(name)["lookup"]
    assert of(kind, text, traceback.replace("in price_of", "in cost_of")) != of(kind, text, traceback)
    assert of("ValueError", text, traceback) != of(kind, text, traceback)
    assert of(kind, "something else", traceback) != of(kind, text, traceback)


def test_our_own_client_in_the_traceback_says_nothing() -> None:
    kind, text, traceback = reported_by("checkout-3.13")["cut"]
    ours = '  File "/opt/venv/lib/python3.13/site-packages/homing/client/listener.py", line 7, in _handle\n    await handler(message)\n'
    compiled = '  File "homing/client/listener.py", line 7, in _handle\n'
    for each in (ours, compiled):
        assert of(kind, text, each + traceback) == of(kind, text, traceback)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no row 17", "no row 4711"),
        ("order ch_3MmlLrLkdIwHu7ix0snN0B15 was refused", "order ch_1GqIC8 was refused"),
        ("token deadbeef expired", "token 0xCAFE expired"),
        ("at 2026-11-23 09:14:02.117+01:00 too late", "at 2025-01-01 too late"),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff is gone", "00000000-0000-0000-0000-000000000001 is gone"),
        ("host 10.0.0.7:5432 refused", "host 192.168.1.200:1 refused"),
        ("unknown key 'colour' in \"a b\"", "unknown key 'it' in \"x\""),
        ("cannot take [1, 2, 3]", "cannot take [4]"),
        ("can't open 'a.txt'", "can't open 'some where/b.txt'"),
    ],
)
def test_what_differs_from_message_to_message_says_nothing(one: str, other: str) -> None:
    assert plain(one) == plain(other)
    assert plain(one) != plain("not at all alike")


def test_words_and_apostrophes_stay() -> None:
    assert plain("can't divide by zero: it isn't decade") == "can't divide by zero: it isn't decade"


TEXTS = st.text(st.sampled_from("ab f019 -:.,'\"`xX\n_é"), max_size=300)


@given(TEXTS, st.integers(0, 10**30), st.integers(0, 10**30))
def test_any_number_is_as_good_as_any_other(text: str, one: int, other: int) -> None:
    assert plain(f"{text} {one} {text}") == plain(f"{text} {other} {text}")


@given(TEXTS)
def test_nothing_of_a_number_is_left(text: str) -> None:
    assert not re.search(r"\d", plain(text))


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_any_text_has_a_fingerprint(kind: str, text: str, traceback: str) -> None:
    assert re.fullmatch(r"3-[0-9a-f]{16}", of(kind, text, traceback))


@given(st.lists(st.sampled_from(["/srv/a", "/home/b/src", "C:\\app", "/x/lib/python3.12/site-packages/y"]), min_size=2, max_size=2))
def test_roots_say_nothing(roots: list[str]) -> None:
    one, other = (f'  File "{root}/work.py", line 3, in run\n  File "{root}/jobs/__init__.py", line 9, in step\n' for root in roots)
    assert of("E", "", one) == of("E", "", other)


def test_faults_on_record_from_before_are_mapped() -> None:
    kind, text, traceback = reported_by("released-3.11")["lookup"]
    old = {"error_type": kind, "error_text": text, "traceback": traceback, "fingerprint": "00f067aa0ba902b7"}
    assert of_fault("nack", "orders", old) == of(kind, text, traceback)
    assert of_fault("nack", "orders", {**old, "fingerprint": "3-00f067aa0ba902b7"}) == "3-00f067aa0ba902b7"
    assert of_fault("nack", "orders", {**old, "fingerprint": "2-00f067aa0ba902b7"}) == "3-00f067aa0ba902b7", (
        "the digits of what was reported"
    )
    assert of_fault("connection-lost", "orders", None) == fingerprint("connection-lost", "orders")
    assert of_fault("nack", "orders", {"reason": "out of stock"}) == fingerprint("nack", "stock", text="out of stock")


def test_without_a_report_it_is_a_fault_of_its_queue_and_outcome() -> None:
    assert fingerprint("rejected", "orders") != fingerprint("rejected", "stock") != fingerprint("nack", "stock")
    late = "not settled within 1000 ms of being given"
    assert fingerprint("timeout", "orders", text=late) != fingerprint("timeout", "stock", text=late), "the broker's own words are no report"
    assert fingerprint("nack", "orders", "KeyError", "x") == fingerprint("nack", "stock", "KeyError", "x")


def test_what_is_raised_outside_of_a_task_is_a_fault_of_each_task() -> None:
    pay, ship = (fingerprint("nack", "celery", "WorkerLostError", "exitcode 3", task=task) for task in ("pay", "ship"))
    assert pay != ship


def test_groups_of_the_version_before_become_those_of_their_queues() -> None:
    """Numbers as version 2 gave them: rejected, without a report, and KeyError: 'GBP'."""
    assert of_group("2-6e67ae0b3c9d334b", "rejected", "orders") == fingerprint("rejected", "orders")
    assert of_group("2-5e806adffc83ea40", "KeyError", "orders") == "3-5e806adffc83ea40" == fingerprint("nack", "any", "KeyError", "'GBP'")
    assert of_group("other", "other", "") == "other"


def test_faults_recorded_when_our_client_was_imported_as_client_group_with_todays() -> None:
    def traceback(ours: str) -> str:
        return f'File "/venv/lib/python3.12/site-packages/{ours}/listener.py", line 9, in _handle\nFile "/srv/app.py", line 3, in work\n'

    old = {"error_type": "client.errors.UsageError", "error_text": "closed", "traceback": traceback("client"), "fingerprint": "0" * 16}
    assert of_fault("nack", "orders", old) == of("homing.client.errors.UsageError", "closed", traceback("homing/client"))
