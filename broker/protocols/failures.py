"""What a client reports of a failure, checked: the same keys in every protocol (docs/protocol.md, 2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..core.fault import FailureReport

KINDS: Final[dict[str, type]] = {
    "reason": str,
    "task": str,
    "error_type": str,
    "bases": list,
    "error_text": str,
    "exit_status": int,
    "traceback": str,
    "delay_ms": int,
    "until_ms": int,
    "retryable": bool,
    "count": bool,
}
_WORDS: Final = {str: "text", list: "a list", int: "a whole number", bool: "true or false"}
_MOST_BASES: Final = 64
_MOST_MS: Final = (1 << 63) - 1


def checked_report(report: object, outcomes: Sequence[str] = ()) -> FailureReport:
    """Without the keys whose value is None. ``outcomes``: what it may give as its outcome. Raises ValueError, which goes on behind the word
    "failure"."""
    if not isinstance(report, Mapping):
        raise ValueError("must be a map")
    kept: dict[str, Any] = {}
    for name, value in report.items():
        kind = str if outcomes and name == "outcome" else KINDS.get(name)
        if kind is None:
            raise ValueError(f"has no key {name!r}")
        if value is None:
            continue
        if type(value) is not kind:
            raise ValueError(f"gives {name} as something other than {_WORDS[kind]}")
        kept[name] = value
    if kept.get("outcome") not in (None, *outcomes):
        raise ValueError(f"has an outcome that is none of {', '.join(outcomes)}")
    for name in ("delay_ms", "until_ms"):
        if not 0 <= kept.get(name, 0) <= _MOST_MS:
            raise ValueError(f"gives {name} as something other than a whole number from 0 on")
    if not -(1 << 31) <= kept.get("exit_status", 0) < 1 << 32:
        raise ValueError("has an exit_status that no program has")
    bases = kept.get("bases", ())
    if len(bases) > _MOST_BASES or any(type(base) is not str for base in bases):
        raise ValueError(f"has bases that are not up to {_MOST_BASES} names")
    return cast(FailureReport, kept)
