"""What a failure looked like, made fit to keep: capped, redacted, and with its fingerprint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from homing.journal.contract import AttemptOutcome, Fault
from homing.journal.fingerprint import fingerprint

from ..core.fault import FailureReport
from ..core.patterns import TooSlow, pattern_of
from ..core.settings.address_settings import AddressSettings

#: Of a failure: its fingerprint, class, text and traceback.
FaultDescription = tuple[str, str, str, str]
_MAX_TEXT: Final = 4096
_MAX_NAME: Final = 256
#: Rules are tried out on these (management/preview.py).
_BRIEF_BASES: Final = 8
#: Of a secret that a cut went through, a pattern may not know the rest: so many characters beside a cut are left out too.
MARGIN: Final = 4096
#: Attempts that one and the same report is stored whole with; further ones have the beginning of it.
_STORED_WHOLE: Final = 100
#: How a cut is shown, here and by the client (client/failure.py).
WITHHELD: Final = "(withheld: a pattern of traceback-redactions takes too long)"
_CUT: Final = re.compile(r"\n… (\d{1,15}) characters left out …\n")


class LastReport:
    """The report that was read last. One may fail thousands of messages: it is read once, and stored whole a number of times."""

    __slots__ = ("_fault", "_outcome", "_queue", "_report", "_settings", "_stored", "description")

    def __init__(self) -> None:
        self._report: FailureReport | None = None
        self._settings: AddressSettings | None = None
        self._queue = self._outcome = ""
        self._fault: Fault | None = None
        self._stored = 0
        #: Also where nothing of the fault is stored.
        self.description: FaultDescription = ("", "", "", "")

    def read(self, report: FailureReport, queue: str, settings: AddressSettings, outcome: AttemptOutcome) -> None:
        if self._report is report and self._queue == queue and self._settings is settings and self._outcome == outcome:
            return
        self._fault, number = keep(report, queue, settings, outcome)
        fault = self._fault or Fault()
        text = fault.get("error_text") or fault.get("reason", "")
        if task := fault.get("task"):
            text = f"{text} (task {task})" if text else f"task {task}"
        self.description = (number, fault.get("error_type") or outcome, text, fault.get("traceback", ""))
        self._report, self._queue, self._settings, self._outcome = report, queue, settings, outcome
        self._stored = 0

    def to_store(self) -> Fault | None:
        """The fault as it is stored with one more attempt."""
        self._stored += 1
        if self._stored == _STORED_WHOLE and self._fault is not None:
            self._fault = brief(self._fault)
        return self._fault


def keep(report: FailureReport, queue: str, settings: AddressSettings, outcome: str) -> tuple[Fault | None, str]:
    """The part of a failure report that is stored, None when empty; and the fault's fingerprint. ``outcome``: how the delivery ended.

    ``traceback-redactions`` are regular expressions whose matches become ``***``, in all of them. Long texts are cut only then, and keep
    their head and tail.
    """
    said: Mapping[str, Any] = report
    limits = {
        "reason": _MAX_TEXT,
        "task": _MAX_NAME,
        "error_type": _MAX_NAME,
        "error_text": _MAX_TEXT,
        "traceback": settings.max_traceback_bytes,
    }
    reported = {name: said[name] for name in limits if said.get(name)}
    bases: list[str] = report.get("bases", [])
    if redactions := settings.traceback_redactions:
        reported = {name: _redact(text, limits[name], redactions) for name, text in reported.items()}
        bases = [_redact(each, _MAX_NAME, redactions) for each in bases]
    kept: dict[str, Any] = {name: _cut(text, limits[name]) for name, text in reported.items()}
    if not settings.keep_tracebacks:
        kept.pop("traceback", None)
    if bases:
        kept["bases"] = [_cut(each, _MAX_NAME) for each in bases]
    if report.get("exit_status") is not None:
        kept["exit_status"] = report["exit_status"]
    text = reported.get("error_text") or reported.get("reason", "")
    number = fingerprint(outcome, queue, reported.get("error_type", ""), text, reported.get("traceback", ""), reported.get("task", ""))
    return (cast(Fault, {**kept, "fingerprint": number}) if kept else None), number


def brief(fault: Fault) -> Fault:
    """A fault with its texts cut, without what is long: for the many that were failed by one report. The fingerprint leads to the whole."""
    kept: dict[str, Any] = {name: value for name, value in fault.items() if name != "traceback"}
    kept = {name: value[:_MAX_NAME] if isinstance(value, str) else value for name, value in kept.items()}
    if "bases" in kept:
        kept["bases"] = kept["bases"][:_BRIEF_BASES]
    return cast(Fault, kept)


def _redact(text: str, most: int, patterns: tuple[str, ...]) -> str:
    """The text without what the patterns match in it as it was sent; where it was cut, here or by the client, without MARGIN on both sides.

    What is too far from the ``most`` characters that are kept is not looked at. ``WITHHELD``, where a pattern takes too long.
    """
    parts: list[str] = _CUT.split(_cut(text, most + 2 * MARGIN))
    try:
        for pattern in patterns:
            parts[::2] = [pattern_of(pattern).replace("***", part) for part in parts[::2]]
    except TooSlow:
        return WITHHELD
    if len(parts) == 1:
        return parts[0]
    head, tail = parts[0][:-MARGIN], parts[-1][MARGIN:]
    whole = sum(map(len, parts[::2])) + sum(map(int, parts[1::2]))
    return f"{head}{_gap(whole - len(head) - len(tail))}{tail}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    head, tail = text[:half], text[len(text) - half :]
    cuts = sum(int(found[1]) - len(found[0]) for found in _CUT.finditer(text, half, len(text) - half))
    return f"{head}{_gap(len(text) - 2 * half + cuts)}{tail}"


def _gap(left_out: int) -> str:
    return f"\n… {left_out} characters left out …\n"
