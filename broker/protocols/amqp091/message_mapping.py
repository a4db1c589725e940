"""Messages between AMQP 0-9-1 and the broker: what a publish comes to, and what a delivery says.

The sender's properties are kept in its own bytes (broker/core/amqp/origin.py). Beside them stand the headers as properties of the
message, so that selectors and other protocols see them; docs/interoperability.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...core.amqp.keys import is_text, key_of
from ...core.amqp.origin import MOST_KEYS, Way, last_way, packed, unpacked
from ...core.amqp.vhost import REPLY_TO, local_name
from ...core.message import AMQP_ORIGIN as ORIGIN
from ...core.message import DEFAULT_PRIORITY, Hop, Message, MessageReference, Properties, PropertyValue
from ...core.settings.units import MAX_DURATION_MS
from ...properties import RESERVED
from .codec_cache import SHARED
from .codec_methods import short_string
from .codec_properties import ContentProperties, read_properties, write_properties
from .codec_tables import Fields, compared, join_table, long_value, read_value, split_table, write_value
from .death_headers import as_fits, death_headers
from .errors import precondition_failed

#: Property of the message -> AMQP's content property, for those that other protocols know by a name of their own.
NAMES: Final = {"JMSCorrelationID": "correlation_id", "JMSType": "type", "JMSReplyTo": "reply_to"}
_INT64: Final = 1 << 63
_LONGEST_NAME: Final = 255
#: The longest time to live, 100 years: more is a mistake.
_PERSISTENT_ONLY: Final = b"\x10\x00\x02"
_NOTHING: Final = b"\x00\x00"
#: Origins up to this length are often the same for many messages.
_SHORT_ORIGIN: Final = 512


def ttl_of(properties: ContentProperties) -> int | None:
    """``expiration`` in ms. Raises AmqpError as RabbitMQ does for what is no whole number of milliseconds."""
    text = properties.expiration
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > MAX_DURATION_MS:
        raise precondition_failed(f"invalid expiration '{text[:32]}': not a whole number of milliseconds up to 10 years")
    return int(text)


def headers_of(properties: ContentProperties) -> dict[str, Any]:
    """The headers, read. Raises TableError."""
    content = properties.headers
    if not content:
        return {}
    headers: Fields = {}
    for name, raw in split_table(content).items():
        headers[name], _ = read_value(raw, 0, len(raw))
    return headers


def headers_compared(raw: bytes) -> Fields:
    """The headers of content properties, as a headers exchange compares them. Raises TableError."""
    return compared(split_table(read_properties(raw).headers or b""))


def key_list(headers: Fields, name: str) -> list[str]:
    """CC or BCC: a list of routing keys; what is none in it is passed over. Raises AmqpError as RabbitMQ does for anything else."""
    if name not in headers:
        return []
    keys = headers[name]
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise precondition_failed(f"invalid {name} header: a list of routing keys is expected")
    return [key_of(key) for key in keys if isinstance(key, str | bytes)]


def without_bcc(properties: ContentProperties) -> bytes:
    """The properties as bytes with the BCC header taken out."""
    fields = split_table(properties.headers or b"")
    fields.pop("BCC", None)
    return write_properties(properties._replace(headers=join_table(fields)))


def with_reply_to(raw: bytes, queue: str) -> bytes:
    """The properties with ``amq.rabbitmq.reply-to`` replaced by the queue it stands for. Raises AmqpError where there is none."""
    properties = read_properties(raw)
    if properties.reply_to != REPLY_TO:
        return raw
    if not queue:
        raise precondition_failed("fast reply consumer does not exist")
    return write_properties(properties._replace(reply_to=queue))


def message_properties(
    exchange: str,
    key: str,
    cc: list[str],
    bcc: list[str],
    raw: bytes,
    properties: ContentProperties,
    headers: dict[str, Any],
    durable: bool,
    priority: int,
) -> Properties | None:
    """What is kept beside the body. Nothing at all where the message says no more than its address, priority and durability do."""
    if priority == DEFAULT_PRIORITY and not exchange and not cc and not bcc and raw == (_PERSISTENT_ONLY if durable else _NOTHING):
        return None
    kept: Properties = {}
    for name, value in headers.items():
        if type(value) in (str, int, float, bool, bytes) and name and not name.startswith(RESERVED) and is_text(name) and _storable(value):
            kept[name] = value
    for name, field in NAMES.items():
        value = getattr(properties, field)
        if value is not None:
            kept[name] = _clean(value)
    kept[ORIGIN] = packed(exchange, key, cc, raw, bcc)
    return kept


def rewritten(origin: bytes, changes: Mapping[str, PropertyValue], expires: bool) -> bytes:
    """The origin of a message that takes the place of another: with these headers, those without a value being gone. ``expires``: with its
    expiration."""
    raw = unpacked(origin)[1]
    if not raw:
        return origin
    properties = read_properties(raw)
    fields, own = split_table(properties.headers or b""), dict[str, Any]()
    for name, value in changes.items():
        if name in NAMES:
            own[NAMES[name]] = None if value is None else str(value)
        elif value is None:
            fields.pop(name, None)
        elif len(name.encode()) <= _LONGEST_NAME:
            fields[name] = write_value(value)
    headers = join_table(fields) if fields else None
    return origin[: len(origin) - len(raw)] + write_properties(
        properties._replace(headers=headers, expiration=properties.expiration if expires else None, **own)
    )


def _storable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -_INT64 <= value < _INT64


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


# -- out -----------------------------------------------------------------------------------------------------------------


class View(NamedTuple):
    """How messages are shown on a connection."""

    #: Bytes that content properties may take: they go in one frame.
    most: int
    #: x-death that a program has sent is counted on, as RabbitMQ 3 does; else it gives way to ours, as in RabbitMQ 4.
    goes_on: bool
    #: Something that we add to its headers did not fit.
    left_out: Callable[[MessageReference], None]


def wire_of(reference: MessageReference, counting: bool, view: View) -> tuple[bytes, bytes]:
    """(exchange and routing key as short strings, content properties) of a delivery. ``counting``: its queue tells how often it failed."""
    failed = reference.failed if counting else 0
    if reference.hops:
        return _changed(reference, failed, view)
    message = reference.message
    kept = message.properties
    if kept is None:
        return _plain_wire(message.address, message.durable, message.priority, failed)
    unchanged = _kept_wire(message, kept)
    if not failed:
        return unchanged
    counted = (_counted if len(unchanged[1]) <= _SHORT_ORIGIN else _with_count)(*unchanged, failed)
    if len(counted[1]) > view.most:
        view.left_out(reference)
        return unchanged
    return counted


def _kept_wire(message: Message, kept: Properties) -> tuple[bytes, bytes]:
    origin = kept.get(ORIGIN)
    if not isinstance(origin, bytes):
        return b"\x00" + short_string(local_name(message.address)), _from_native(message)
    target, raw = (_wire_of_origin if len(origin) <= _SHORT_ORIGIN else _cut)(origin)
    return target, raw or _from_native(message)


def _with_count(target: bytes, raw: bytes, failed: int) -> tuple[bytes, bytes]:
    """Target and properties of a message that came back to a queue that counts: the number of failed deliveries is added."""
    properties = read_properties(raw)
    fields = split_table(properties.headers or b"")
    fields["x-delivery-count"] = long_value(failed)
    return target, write_properties(properties._replace(headers=join_table(fields)))


_counted = SHARED.remembers(_with_count)


@SHARED.remembers
def _plain_wire(address: str, durable: bool, priority: int, failed: int) -> tuple[bytes, bytes]:
    target, raw = b"\x00" + short_string(local_name(address)), _plain(durable, priority)
    return _counted(target, raw, failed) if failed else (target, raw)


def _cut(origin: bytes) -> tuple[bytes, bytes]:
    end = origin[0] + 1
    end += origin[end] + 1
    if origin[end]:
        return origin[:end], unpacked(origin)[1]
    return origin[:end], origin[end + 1 :]


_wire_of_origin = SHARED.remembers(_cut)


def _plain(durable: bool, priority: int) -> bytes:
    if priority == DEFAULT_PRIORITY:
        return _PERSISTENT_ONLY if durable else _NOTHING
    return write_properties(ContentProperties(delivery_mode=2 if durable else None, priority=priority))


def _native_properties(message: Message) -> ContentProperties:
    """A message that came another way, as an AMQP client sees it."""
    known = message.properties or {}
    headers = {name: value for name, value in known.items() if name not in NAMES and name != ORIGIN and len(name.encode()) <= _LONGEST_NAME}
    own = {field: str(known[name]) for name, field in NAMES.items() if known.get(name) is not None}
    return ContentProperties(
        headers=join_table({name: write_value(value) for name, value in headers.items()}) if headers else None,
        delivery_mode=2 if message.durable else 1,
        priority=message.priority if message.priority != DEFAULT_PRIORITY else None,
        timestamp=message.sent_at_ms // 1000,
        message_id=str(message.message_id),
        **own,
    )


def _from_native(message: Message) -> bytes:
    return write_properties(_native_properties(message))


def headers_seen(goes_on: bool, message: Message, hops: list[Hop]) -> Fields:
    """What a headers exchange compares of a message that has died so: all that whoever gets it will be view."""
    _, own, added = _died(message, hops, goes_on)
    return compared(own | added)


def _changed(reference: MessageReference, failed: int, view: View) -> tuple[bytes, bytes]:
    """A message that was dead-lettered before, with what is added to it as far as it fits; x-delivery-count where its queue says so."""
    properties, own, added = _died(reference.message, reference.hops or [], view.goes_on)
    if failed:
        added["x-delivery-count"] = long_value(failed)
    way: Way = last_way(reference)
    target = short_string(way.exchange) + short_string(way.keys[0])
    written = write_properties(properties._replace(headers=join_table(own | added)))
    if len(written) > view.most:
        view.left_out(reference)
        room = view.most - len(write_properties(properties._replace(headers=join_table(own))))
        written = write_properties(properties._replace(headers=join_table(own | as_fits(added, room))))
    return target, written


def _died(message: Message, hops: list[Hop], goes_on: bool) -> tuple[ContentProperties, dict[str, bytes], dict[str, bytes]]:
    """Properties, headers it was sent with, and those added, of a message with these hops. The expiration is taken off."""
    kept = message.properties
    origin = kept.get(ORIGIN) if kept is not None else None
    if isinstance(origin, bytes) and (raw := unpacked(origin)[1]):
        properties = read_properties(raw)
    elif kept is None:
        properties = read_properties(_plain(message.durable, message.priority))
    else:
        properties = _native_properties(message)
    own = split_table(properties.headers or b"")
    added = death_headers(hops, message.message_id, properties.expiration, own, goes_on)
    gone = {*added, "CC"} if any(hop.detail.get("keys_replaced") for hop in hops) else added.keys()
    own = {name: value for name, value in own.items() if name not in gone}
    return properties._replace(expiration=None), own, added
