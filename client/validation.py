"""What may be sent, checked before it leaves: the same rules as the broker's, so that a mistake raises where it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from .errors import UsageError

PropertyValue = str | int | float | bool | bytes | None

MAX_PROPERTIES_BYTES: Final = 64 * 1024
MAX_NAME_CHARACTERS: Final = 1024
MAX_SELECTOR_CHARACTERS: Final = 4096
LOWEST_INT64: Final = -(2**63)
HIGHEST_INT64: Final = 2**63 - 1
RESERVED_PREFIXES: Final = ("_AMQ_", "JMSX", "_HOMING_")
MAX_DUPLICATE_ID_CHARACTERS: Final = 256
#: The longest time that the broker takes: 10 years.
MAX_DURATION_MS: Final = 10 * 365 * 86_400_000
#: What the array around a message may take in a frame beyond body, properties and duplicate id.
ENVELOPE_BYTES: Final = 64


def invalid(message: str, fix: str, code: str = "invalid-message") -> UsageError:
    return UsageError(code, message, fix)


def check_text(what: str, text: object, most: int = MAX_NAME_CHARACTERS) -> str:
    """Non-empty text without lone surrogates, at most ``most`` characters; returned as it is."""
    if type(text) is not str or not text:
        raise invalid(f"{what} must be non-empty text, got {text!r}", f"give {what} as str", "invalid-argument")
    if len(text) > most:
        raise invalid(f"{what} has {len(text)} characters, {most} are allowed", f"shorten {what}", "invalid-argument")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid(
            f"{what} holds a lone surrogate and cannot be UTF-8", "clean the text before sending it", "invalid-argument"
        ) from None
    return text


def check_whole(what: str, value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise invalid(f"{what} is {value!r}, expected a whole number from {low} to {high}", f"correct {what}", "invalid-argument")
    return value


def check_properties(properties: Mapping[str, PropertyValue]) -> tuple[dict[str, PropertyValue], int]:
    """A copy of the properties and their size on the wire in bytes; raises UsageError ``invalid-message``."""
    if not isinstance(properties, Mapping):
        raise invalid(f"properties must be a mapping, got {type(properties).__name__}", "give a dict of str to plain values")
    copy = dict(properties)
    for name, value in copy.items():
        _check_property(name, value)
    try:
        size = len(msgpack.packb(copy))
    except (ValueError, UnicodeEncodeError) as error:
        raise invalid(f"the properties cannot be encoded ({error})", "remove lone surrogates from names and text values") from None
    if size > MAX_PROPERTIES_BYTES:
        raise invalid(f"the properties take {size} bytes, {MAX_PROPERTIES_BYTES} are allowed", "put large values into the body")
    return copy, size


_NAME_IT: Final = f"begin it otherwise than with {', '.join(RESERVED_PREFIXES)}; a message's copy_for_send() leaves such properties out"


def _check_property(name: object, value: object) -> None:
    if type(name) is not str or not name:
        raise invalid(f"a property name must be non-empty text, got {name!r}", "name the property")
    if name.startswith(RESERVED_PREFIXES):
        raise invalid(f"the property name {name!r} is the broker's own", _NAME_IT)
    kind = type(value)
    if kind is int:
        if not LOWEST_INT64 <= value <= HIGHEST_INT64:  # type: ignore[operator]
            raise invalid(f"property {name!r} is {value}, outside of 64 bits signed", "send it as text")
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise invalid(f"property {name!r} is {value}, not a finite number", "send it as text or leave it out")
    elif value is not None and kind not in (str, bool, bytes):
        raise invalid(f"property {name!r} is of type {kind.__name__}", "property values are str, int, float, bool, bytes or None")


def message_fields(
    body: bytes | bytearray | memoryview,
    properties: Mapping[str, PropertyValue] | None,
    priority: int,
    durable: bool,
    ttl_ms: int,
    delay_ms: int,
    duplicate_id: str | None,
) -> tuple[list[Any], int]:
    """A message as docs/protocol.md 2.2 wants it, trailing defaults left out, and the most bytes it takes in a frame."""
    if type(body) is not bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise invalid(
                f"the body must be bytes, got {type(body).__name__}", "encode it first, e.g. text.encode() or json.dumps(…).encode()"
            )
        body = bytes(body)
    size = len(body) + ENVELOPE_BYTES
    held: dict[str, PropertyValue] | None = None
    if properties:
        held, properties_size = check_properties(properties)
        size += properties_size
    if priority == 4 and durable is True and ttl_ms == 0 and delay_ms == 0 and duplicate_id is None and type(priority) is int:
        return ([body, held] if held else [body]), size
    check_whole("priority", priority, 0, 9)
    check_whole("ttl_ms", ttl_ms, 0, MAX_DURATION_MS)
    check_whole("delay_ms", delay_ms, 0, MAX_DURATION_MS)
    if type(durable) is not bool:
        raise invalid(f"durable is {durable!r}, expected True or False", "correct durable", "invalid-argument")
    if duplicate_id is not None:
        size += 4 * len(check_text("duplicate_id", duplicate_id, MAX_DUPLICATE_ID_CHARACTERS))
        if not duplicate_id.isprintable():
            raise invalid("duplicate_id holds characters that do not print", "use for example a UUID", "invalid-argument")
    fields: list[Any] = [body, held, priority, durable, ttl_ms, delay_ms, duplicate_id]
    while fields[-1] == _DEFAULTS[len(fields) - 1] and len(fields) > 1:
        fields.pop()
    return fields, size


_DEFAULTS: Final = (None, None, 4, True, 0, 0, None)
