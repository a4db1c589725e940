"""Values of ours and of clients as JSON that any reader takes. What JSON has no word for says what it is: bytes, and texts that are not
UTF-8, ``{"base64": …}``; numbers that are not finite ``{"float": "NaN"}``. ``read_back`` is the inverse.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_BASE64: Final = "base64"
_FLOAT: Final = "float"
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def dumps(value: Any, **options: Any) -> str:
    """``options``: as of json.dumps. Most values need no look at what is in them."""
    options = {"ensure_ascii": False, "default": plain, **options}
    try:
        text = json.dumps(value, allow_nan=False, **options)
        text.encode()
    except ValueError:  # of which UnicodeEncodeError is one
        text = json.dumps(_told(value, options["default"]), **options)
    return text


def plain(value: Any) -> Any:
    """What JSON has no word for, for ``default`` of json.dumps."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BASE64: base64.b64encode(value).decode()}
    return list(value) if isinstance(value, Iterable) else str(value)


def read_back(value: Mapping[str, Any]) -> bytes | float | None:
    """What ``dumps`` told in a map of its own; None: it is no such map."""
    if value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except binascii.Error:
            return None
    return _NOT_FINITE.get(value[_FLOAT]) if value.keys() == {_FLOAT} and isinstance(value[_FLOAT], str) else None


def _told(value: Any, default: Callable[[Any], Any]) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str):
        raw = _bytes_of(value)
        return value if raw is None else plain(raw)
    if isinstance(value, Mapping):
        return {_name(str(name)): _told(each, default) for name, each in value.items()}
    return [_told(each, default) for each in value] if isinstance(value, list | tuple) else _told(default(value), default)


def _bytes_of(text: str) -> bytes | None:
    """What a text that is not UTF-8 stands for; None: it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogatepass")
    return None


def _name(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
