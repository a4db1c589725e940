"""Which messages are meant: the filter of a call, and the options of a command that it stands for."""

from __future__ import annotations

import json
import math
import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Final

from homing.journal import json_text

from ..answers.parts import Properties

if TYPE_CHECKING:
    from ..core.message import PropertyValue

#: Those that have another name than their key.
_NAMES: Final = {"since_ms": "--since", "until_ms": "--until", "message_ids": "--id", "properties": "--property"}


def options_of(wanted: Properties) -> list[str]:
    """The options that it stands for, as typed."""
    found = []
    for key, value in wanted.items():
        texts = list(value) if isinstance(value, list) else [value]
        if key in ("since_ms", "until_ms"):
            texts = [datetime.fromtimestamp(value / 1000).isoformat(timespec="milliseconds")]
        elif key == "properties":
            texts = [f"{name}={each}" if isinstance(each, str) else f"{name}:={json_text.dumps(each)}" for name, each in value.items()]
        elif isinstance(value, bytes):
            texts = [value.decode(errors="replace")]
        option = _NAMES.get(key) or f"--{key.replace('_', '-')}"
        found += [f"{option} {shlex.quote(str(text))}" for text in texts]
    return found


def property_of(text: str) -> tuple[str, PropertyValue]:
    """``name=text``, or ``name:=json``, in which bytes are ``{"base64": …}``. Raises ValueError."""
    name, found, value = text.partition("=")
    if not found or not name.rstrip(":"):
        raise ValueError(f"{text!r} is not name=text (or name:=json for numbers, true, false and null)")
    if not name.endswith(":"):
        return name, value
    try:
        typed = json.loads(value)
    except ValueError:  # said below
        typed = value = ""
    if isinstance(typed, dict) and (told := json_text.read_back(typed)) is not None:
        typed = told
    if isinstance(typed, dict | list) or not value or (isinstance(typed, float) and not math.isfinite(typed)):
        raise ValueError(f'{text!r}: what follows := must be a JSON number, string, true, false, null or {{"base64": …}}')
    return name[:-1], typed
