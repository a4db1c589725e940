"""What a message may say beside its body: which names and values can be stored, and what they take in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

PropertyValue = str | int | float | bool | bytes | None
Properties = dict[str, PropertyValue]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def check_properties(properties: Mapping[Any, Any]) -> None:
    """Raise ValueError, with a sentence that names the property, unless every name and value can be stored.

    Names: non-empty str. Values: str, int within 64 bits signed, finite float, bool, bytes, None; no str with a lone
    surrogate. SQLite and msgpack refuse such values only when the batch is half written, or turn them into something
    else, so they are kept out before a message joins a batch.
    """
    for name, value in properties.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"a property name must be a non-empty string, not {name!r}")
        kind = type(value)
        if kind is str:
            _check_text(f"the value of property {name!r}", value)
        elif kind is int:
            if not INT64_MIN <= value <= INT64_MAX:
                raise ValueError(f"property {name!r} holds an integer beyond 64 bits signed; send it as a string")
        elif kind is float:
            if not math.isfinite(value):
                raise ValueError(f"property {name!r} holds {value}, which is not a finite number; leave it out or send it as a string")
        elif value is not None and kind is not bool and kind is not bytes:
            raise ValueError(
                f"property {name!r} is of type {kind.__name__}; a property is a string, an integer, a float, a boolean, bytes or null"
            )
        _check_text(f"the property name {name!r}", name)


def _check_text(what: str, text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{what} holds a lone surrogate, which cannot be written as UTF-8; send it as bytes") from None


#: What properties take in memory: all of them, each (its name, which other messages may share or not, and its place), and text, number
#: and binary beside what is in it. Text beyond ASCII may take as much for each of its characters.
_PROPERTIES_BYTES, _PROPERTY_BYTES = 184, 110
_TEXT_BYTES, _NUMBER_BYTES, _BINARY_BYTES = 56, 32, 40
_WIDEST: Final = 4


def weight_of(properties: Properties) -> int:
    """What properties take in memory, in bytes; about that, and rather more."""
    return measure(properties)[1]


def measure(properties: Properties) -> tuple[int, int]:
    """What properties hold, in bytes: names and values, 9 for each that is not text or binary; and their weight (``weight_of``)."""
    size, weight = 0, _PROPERTIES_BYTES + _PROPERTY_BYTES * len(properties)
    for name, value in properties.items():
        length = len(name)
        if name.isascii():
            size += length
            weight += length
        else:
            size += len(name.encode(errors="surrogatepass"))
            weight += _WIDEST * length
        if isinstance(value, str):
            length = len(value)
            if value.isascii():
                size += length
                weight += _TEXT_BYTES + length
            else:
                size += len(value.encode(errors="surrogatepass"))
                weight += _TEXT_BYTES + _WIDEST * length
        elif isinstance(value, bytes):
            size += len(value)
            weight += _BINARY_BYTES + len(value)
        else:
            size += 9
            if value is not None:
                weight += _NUMBER_BYTES
    return size, weight
