"""What a failure looked like, as it is reported to the broker (docs/protocol.md 2.4)."""

from __future__ import annotations

import traceback
from typing import Any, Final

from .errors import UsageError
from .validation import HIGHEST_INT64, check_whole

#: Much more than the broker keeps, so that where it cuts is decided after it has redacted: this client does not know by which patterns.
#: What is longer still is cut in its middle; there the broker leaves out what a pattern may have known only with the rest.
MAX_TRACEBACK_CHARACTERS: Final = 65_536
MAX_FAULT_TEXT_CHARACTERS: Final = 16_384
#: Base classes that are reported, the nearest first.
MAX_BASES: Final = 32
#: From a signal's, negated, to the highest that Windows has.
EXIT_STATUSES: Final = (-(1 << 31), (1 << 32) - 1)
_TEXTS: Final = ("reason", "error_type", "error_text", "traceback")
#: A frame that may be so large holds the longest failure that there is, beside the tags.
ROOMY_BYTES: Final = 1 << 20


def failure_map(
    outcome: str,
    reason: str | None = None,
    error: BaseException | str | None = None,
    delay_ms: int | None = None,
    until_ms: int | None = None,
    retryable: bool = True,
    count: bool = True,
    exit_status: int | None = None,
) -> dict[str, Any]:
    """The ``failure`` of docs/protocol.md 2.4; only what differs from its default."""
    failure: dict[str, Any] = {"outcome": outcome}
    if not retryable and not count:
        raise UsageError("invalid-argument", "retryable=False and count=False exclude each other", "choose one of them")
    if delay_ms is not None and until_ms is not None:
        raise UsageError("invalid-argument", "delay_ms and until_ms exclude each other", "choose one of them")
    if delay_ms is not None:
        failure["delay_ms"] = check_whole("delay_ms", delay_ms, 0, HIGHEST_INT64)
    if until_ms is not None:
        failure["until_ms"] = check_whole("until_ms", until_ms, 0, HIGHEST_INT64)
    if reason is not None:
        failure["reason"] = _clean(reason, MAX_FAULT_TEXT_CHARACTERS)
    if isinstance(error, BaseException):
        names = [_clean(_type_name(kind), MAX_FAULT_TEXT_CHARACTERS) for kind in type(error).__mro__[:-1][: MAX_BASES + 1]]
        failure["error_type"], failure["bases"] = names[0], names[1:]
        if exit_status is None:
            exit_status = _exit_status(error)
        failure["error_text"] = _clean(_text_of(error), MAX_FAULT_TEXT_CHARACTERS)
        failure["traceback"] = _clean("".join(traceback.format_exception(error)), MAX_TRACEBACK_CHARACTERS)
    elif error is not None:
        failure["error_text"] = _clean(error, MAX_FAULT_TEXT_CHARACTERS)
    if exit_status is not None:
        failure["exit_status"] = check_whole("exit_status", exit_status, *EXIT_STATUSES)
    if not retryable:
        failure["retryable"] = False
    if not count:
        failure["count"] = False
    return failure


def fitted(failure: dict[str, Any], most_bytes: int) -> dict[str, Any]:
    """A failure with its texts cut so that they take at most half of a frame of ``most_bytes``."""
    texts = [name for name in _TEXTS if name in failure]
    bases = failure.get("bases", ())
    if sum([4 * len(failure[name]) for name in texts]) + sum([4 * len(each) + 4 for each in bases]) <= most_bytes // 2:
        return failure
    failure = {name: value for name, value in failure.items() if name != "bases"}
    # A character takes at most four bytes; the mark at a cut takes less than 64.
    most = most_bytes // 2 // (4 * len(texts)) - 64
    return failure | {name: _cut(failure[name], most) for name in texts}


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _exit_status(error: BaseException) -> int | None:
    """Of the program that was run, as subprocess.CalledProcessError has it."""
    status = getattr(error, "returncode", None)
    return status if type(status) is int and EXIT_STATUSES[0] <= status <= EXIT_STATUSES[1] else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # a faulty __str__ must not hide the failure it describes
        return f"(no text: {type(broken).__name__} in __str__)"


def _clean(text: str, most: int) -> str:
    """UTF-8 encodable and at most ``most`` characters, cut in the middle: both ends of a traceback matter."""
    return _cut(str(text).encode("utf-8", "backslashreplace").decode(), most)


def _cut(text: str, most: int) -> str:
    """The broker knows a cut by these words (broker/recording/failure_report.py)."""
    if len(text) <= most:
        return text
    half = most // 2 - 20
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
