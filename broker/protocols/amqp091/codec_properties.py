"""The properties of AMQP content: read to route and store a message, kept as they came, written anew where a header changes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .codec_methods import short_string
from .codec_tables import TableError, split_table, write_fields

#: (name, bit, kind): s short string, t table, o octet, q 64 bits; in the order they stand on the wire.
_PROPERTIES: Final = (
    ("content_type", 15, "s"),
    ("content_encoding", 14, "s"),
    ("headers", 13, "t"),
    ("delivery_mode", 12, "o"),
    ("priority", 11, "o"),
    ("correlation_id", 10, "s"),
    ("reply_to", 9, "s"),
    ("expiration", 8, "s"),
    ("message_id", 7, "s"),
    ("timestamp", 6, "q"),
    ("type", 5, "s"),
    ("user_id", 4, "s"),
    ("app_id", 3, "s"),
    ("cluster_id", 2, "s"),
)
_FIXED_BYTES: Final = {"o": 1, "q": 8}


class ContentProperties(NamedTuple):
    """The fourteen properties. ``headers`` is the table's content as it came, without its length; None where one is not there."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: bytes | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


NOTHING: Final = ContentProperties()


def read_properties(raw: bytes) -> ContentProperties:
    """Flags and property list, as they follow the body size in a header frame. Raises TableError; headers are checked too."""
    if len(raw) < 2:
        raise TableError("the property flags are cut off")
    flags = int.from_bytes(raw[:2], "big")
    if flags & 3:
        raise TableError("there are no properties beyond the fourteenth")
    at, end = 2, len(raw)
    found: dict[str, Any] = {}
    for name, bit, kind in _PROPERTIES:
        if not flags & 1 << bit:
            continue
        if kind == "s":
            start = at + 1
            stop = start + (raw[at] if at < end else 0)
        elif kind == "t":
            start = at + 4
            stop = start + int.from_bytes(raw[at:start], "big")
        else:
            start, stop = at, at + _FIXED_BYTES[kind]
        if start > end or stop > end:
            raise TableError(f"the property {name} is cut off")
        value = raw[start:stop]
        found[name] = value if kind == "t" else value.decode("utf-8", "surrogateescape") if kind == "s" else int.from_bytes(value, "big")
        at = stop
    if at != end:
        raise TableError(f"the properties have {end - at} bytes too many")
    if found.get("headers"):
        split_table(found["headers"])
    return ContentProperties(**found)


def write_properties(properties: ContentProperties) -> bytes:
    """The inverse of read_properties."""
    flags = 0
    parts: list[bytes] = []
    for (_, bit, kind), value in zip(_PROPERTIES, properties, strict=True):
        if value is None:
            continue
        flags |= 1 << bit
        if kind == "s":
            parts.append(short_string(str(value)))
        elif kind == "t":
            content = value if isinstance(value, bytes) else write_fields({})
            parts.append(len(content).to_bytes(4, "big") + content)
        else:
            parts.append(int(value).to_bytes(_FIXED_BYTES[kind], "big"))
    return flags.to_bytes(2, "big") + b"".join(parts)
