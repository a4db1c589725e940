"""What is kept of a failure: no part of a secret, wherever the client and the broker cut."""

from __future__ import annotations

from typing import cast

import pytest

from homing.broker.core.fault import FailureReport
from homing.broker.core.settings.address_settings import AddressSettings
from homing.broker.recording import failure_report
from homing.broker.recording.failure_report import MARGIN, brief
from homing.client.failure import MAX_FAULT_TEXT_CHARACTERS, MAX_TRACEBACK_CHARACTERS, failure_map, fitted
from homing.journal.contract import Fault
from homing.journal.fingerprint import fingerprint

SECRET = "4929-1234-5678-9012-KEY"
#: It does not know a part of it.
PATTERNS = (r"\d{4}-\d{4}-\d{4}-\d{4}-KEY",)


def keep(report: FailureReport, in_force: AddressSettings) -> Fault | None:
    return failure_report.keep(report, "orders", in_force, "nack")[0]


def settings(**more: object) -> AddressSettings:
    return AddressSettings(traceback_redactions=PATTERNS, **more)  # type: ignore[arg-type]


def parts_of_the_secret(text: str) -> list[str]:
    """All of its parts of four characters that are in the text."""
    parts = {SECRET[at : at + 4] for at in range(len(SECRET) - 3)}
    return sorted(part for part in parts if part in text)


def around(place: int, length: int) -> range:
    return range(max(0, place - len(SECRET) - 3), min(length - len(SECRET), place + 4))


@pytest.mark.parametrize(("name", "most"), [("error_text", 4096), ("error_type", 256), ("traceback", 16 * 1024), ("traceback", 80_000)])
@pytest.mark.parametrize("length", [300, 13_000, 70_000])
def test_a_secret_at_any_offset_around_any_cut_is_not_kept(name: str, most: int, length: int) -> None:
    """The client's cuts, the broker's first one (of what it looks at) and its last (of what it keeps), from both sides."""
    in_force = settings(max_traceback_bytes=most) if name == "traceback" else settings()
    limit = MAX_TRACEBACK_CHARACTERS if name == "traceback" else MAX_FAULT_TEXT_CHARACTERS
    halves = {limit // 2 - 20, most // 2, (most + 2 * MARGIN) // 2}
    for half in halves:
        for place in (half, length - half):
            for at in around(place, length):
                text = "." * at + SECRET + "." * (length - at - len(SECRET))
                sent = text if len(text) <= limit else fitted({name: text}, limit * 8)[name]
                fault = keep(cast(FailureReport, {name: sent}), in_force)
                assert fault is not None
                kept, shorter = str(dict(fault)[name]), str(dict(brief(fault)).get(name, ""))
                assert not parts_of_the_secret(kept), (place, at)
                assert not parts_of_the_secret(shorter)
                assert len(kept) <= most + 100


def test_a_text_that_is_sent_whole_is_redacted_whole() -> None:
    text = f"{SECRET} first, {'.' * 9000}, then {SECRET}"
    fault = keep({"error_text": text}, settings())
    assert fault is not None
    assert fault["error_text"].startswith("*** first")
    assert fault["error_text"].endswith("then ***")


def test_a_type_and_all_other_texts_are_redacted() -> None:
    report = dict.fromkeys(("reason", "error_type", "error_text", "traceback"), f"a {SECRET} b")
    fault = keep(cast(FailureReport, report), settings())
    assert fault is not None
    assert {name: text for name, text in fault.items() if name != "fingerprint"} == dict.fromkeys(
        ("reason", "error_type", "error_text", "traceback"), "a *** b"
    )


def test_what_was_left_out_is_counted_whoever_left_it_out() -> None:
    sent = failure_map("nack", "x" * 100_000)["reason"]
    for in_force in (settings(), AddressSettings()):
        fault = keep({"reason": sent}, in_force)
        assert fault is not None
        head, counted, tail = fault["reason"].split("\n")
        assert int(counted.split()[1]) == 100_000 - len(head) - len(tail)
        assert len(fault["reason"]) <= 4096 + 50


def test_without_patterns_nothing_more_is_left_out() -> None:
    fault = keep({"traceback": "x" * 20_000}, AddressSettings(max_traceback_bytes=20_000))
    assert fault is not None
    assert fault["traceback"] == "x" * 20_000


def test_where_a_redaction_takes_too_long_nothing_is_kept() -> None:
    """`(a+)+$`, which stops most matchers for good, is none of those; with a lookahead it is."""
    text = "a" * 3000 + "b" + SECRET
    quick = keep({"error_text": text}, AddressSettings(traceback_redactions=("(a+)+$", SECRET)))
    assert quick is not None
    assert quick["error_text"] == "a" * 3000 + "b***"
    slow = keep({"error_type": "KeyError", "error_text": text}, AddressSettings(traceback_redactions=(SECRET, "(?!x)(a+)+$")))
    assert slow is not None
    assert (slow["error_type"], slow["error_text"]) == ("KeyError", "(withheld: a pattern of traceback-redactions takes too long)")


def test_the_fingerprint_knows_no_secret() -> None:
    """Else it could be guessed; and faults that differ by it alone are alike."""
    one, other = (keep({"error_text": f"token {each}-KEY"}, AddressSettings(traceback_redactions=(r"\S+-KEY",))) for each in "ab")
    assert one is not None
    assert one == other
    assert one["fingerprint"] == fingerprint("nack", "orders", text="token ***")


def test_tracebacks_can_be_off() -> None:
    report: FailureReport = {"error_text": "x", "traceback": f'File "a.py", line 1, in b\n{SECRET}'}
    fault = keep(report, settings(keep_tracebacks=False))
    assert fault is not None
    assert "traceback" not in fault
    assert fault["fingerprint"] == fingerprint("nack", "orders", "", report["error_text"], report["traceback"])
    assert keep({"traceback": "nothing else"}, settings(keep_tracebacks=False)) is None
