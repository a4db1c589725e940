"""The rule for properties that clients send, the same for every front end: checked before a message joins anything."""

from __future__ import annotations

from typing import Any, Final

from homing.journal.properties import Properties, check_properties, measure

from .errors import Refused

#: Names that begin so are the broker's own.
RESERVED: Final = ("_AMQ_", "JMSX", "_HOMING_")


def measured(properties: Properties | None) -> tuple[int, int]:
    """(What properties hold, in bytes, as they are counted for limits; what they take in memory beyond that.)"""
    if not properties:
        return 0, 0
    size, weight = measure(properties)
    return size, weight - size


def checked(properties: dict[Any, Any], max_bytes: int) -> tuple[Properties | None, int, int]:
    """(properties, None for none; as ``measured``); raises Refused for a name or value that cannot be kept, or too much of them."""
    try:
        check_properties(properties)
    except ValueError as error:
        raise Refused("invalid-property", str(error), "see docs/protocol.md, 2.2") from None
    for name in properties:
        if name.startswith(RESERVED):
            raise Refused(
                "invalid-property", f"names that begin with {', '.join(RESERVED)} are the broker's own: {name[:64]}", "use another name"
            )
    size, extra = measured(properties)
    if size > max_bytes:
        raise Refused("properties-too-large", f"the properties hold {size} bytes, the limit is {max_bytes}", "put large data into the body")
    return properties or None, size, extra
