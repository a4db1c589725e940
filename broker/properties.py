"""The rule for properties that clients send, the same for every front end: checked before a message joins anything."""

from __future__ import annotations

from typing import Any, Final

from broker.errors import Refused
from journal.records import Properties, check_properties

#: Names that begin so are the broker's own.
RESERVED: Final = ("_AMQ_", "JMSX", "_HOMING_")


def checked(properties: dict[Any, Any], max_bytes: int) -> Properties | None:
    """The properties, None for none; raises Refused for a name or value that cannot be kept, or too much of them."""
    try:
        check_properties(properties)
    except ValueError as error:
        raise Refused("invalid-property", str(error), "see docs/protocol.md, 2.2") from None
    size = 0
    for name, value in properties.items():
        if name.startswith(RESERVED):
            raise Refused(
                "invalid-property", f"names that begin with {', '.join(RESERVED)} are the broker's own: {name[:64]}", "use another name"
            )
        size += len(name) + (len(value) if isinstance(value, str | bytes) else 9)
    if size > max_bytes:
        raise Refused("properties-too-large", f"the properties hold {size} bytes, the limit is {max_bytes}", "put large data into the body")
    return properties or None
