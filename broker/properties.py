"""The rule for properties that clients send, the same for every front end: checked before a message joins anything."""

from __future__ import annotations

from typing import Any, Final

from homing.journal.properties import Properties, check_properties, weight_of

from .errors import Refused

#: Names that begin so are the broker's own.
RESERVED: Final = ("_AMQ_", "JMSX", "_HOMING_")


def size_of(properties: Properties | None) -> int:
    """What properties take, in bytes: names and values, 9 for each that is not text or binary."""
    size = 0
    for name, value in (properties or {}).items():
        size += _bytes(name) + (_bytes(value) if isinstance(value, str | bytes) else 9)
    return size


def extra_of(properties: Properties | None, size: int) -> int:
    """What properties of so many bytes (``size_of``) take in memory beyond these."""
    return weight_of(properties) - size if properties else 0


def _bytes(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())


def checked(properties: dict[Any, Any], max_bytes: int) -> tuple[Properties | None, int]:
    """(properties, None for none; their bytes); raises Refused for a name or value that cannot be kept, or too much of them."""
    try:
        check_properties(properties)
    except ValueError as error:
        raise Refused("invalid-property", str(error), "see docs/protocol.md, 2.2") from None
    for name in properties:
        if name.startswith(RESERVED):
            raise Refused(
                "invalid-property", f"names that begin with {', '.join(RESERVED)} are the broker's own: {name[:64]}", "use another name"
            )
    size = size_of(properties)
    if size > max_bytes:
        raise Refused("properties-too-large", f"the properties hold {size} bytes, the limit is {max_bytes}", "put large data into the body")
    return properties or None, size
