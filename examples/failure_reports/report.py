"""What all three publish to the exchange ``homing.failure``: a message without a body whose headers tell of one delivery."""

from __future__ import annotations

import traceback
from typing import Any

EXCHANGE = "homing.failure"
#: Headers have to fit into one frame.
MOST_CHARACTERS = 30_000


def failure(error: BaseException, **more: Any) -> dict[str, Any]:
    """``more``: ``retryable=False`` (never again), ``delay_ms=60_000`` (not before a minute has passed), ``reason="…"``."""
    name, *bases = [_name(kind) for kind in type(error).__mro__[:-1]]
    reported = "".join(traceback.format_exception(error))
    return {"error_type": name, "bases": bases, "error_text": _cut(str(error)), "traceback": _cut(reported), **more}


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _cut(text: str) -> str:
    """In the middle, in words that the broker knows: what it redacts is then not half there."""
    half = MOST_CHARACTERS // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"
