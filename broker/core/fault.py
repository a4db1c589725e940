"""What a failure looked like, made fit to keep: capped, redacted, and with a fingerprint that groups like with like."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from broker.core.address_settings import AddressSettings

_MAX_TEXT: Final = 4096
_MAX_NAME: Final = 256
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\d+")
_FRAMES: Final = re.compile(r'File "([^"]{1,512})", line \d+, in (\S{1,128})')


def keep(report: dict[str, Any], settings: AddressSettings) -> dict[str, Any] | None:
    """The part of a failure report that is stored: reason, error_type, error_text, traceback, fingerprint; None when empty.

    Long texts keep their head and tail. ``traceback-redactions`` are regular expressions whose matches become ``***``.
    """
    fault: dict[str, Any] = {}
    if report.get("reason"):
        fault["reason"] = _redact(_cap(report["reason"], _MAX_TEXT), settings)
    if report.get("error_type"):
        fault["error_type"] = _cap(report["error_type"], _MAX_NAME)
    if report.get("error_text"):
        fault["error_text"] = _redact(_cap(report["error_text"], _MAX_TEXT), settings)
    if report.get("traceback") and settings.keep_tracebacks:
        fault["traceback"] = _redact(_cap(report["traceback"], settings.max_traceback_bytes), settings)
    if fault:
        fault["fingerprint"] = fingerprint(report)
    return fault or None


def brief(fault: dict[str, Any]) -> dict[str, Any]:
    """The same without its traceback, long texts cut: for the many that were failed by one report. The fingerprint leads to the whole."""
    return {name: value[:_MAX_NAME] for name, value in fault.items() if name != "traceback"}


def fingerprint(report: dict[str, Any]) -> str:
    """16 hex digits; equal for faults of one error type and text (numbers aside) that were raised in the same places."""
    text = _NUMBERS.sub("#", str(report.get("error_text") or report.get("reason") or "")[:_MAX_TEXT])
    frames = _FRAMES.findall(str(report.get("traceback") or "")[-16_384:])
    key = "\n".join((str(report.get("error_type") or ""), text, *(f"{file} {function}" for file, function in frames)))
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _cap(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _redact(text: str, settings: AddressSettings) -> str:
    for pattern in settings.traceback_redactions:
        text = re.sub(pattern, "***", text)
    return text
