"""Messages between AMQP 0-9-1 and the broker: what a publish comes to, and what a delivery says.

The sender's properties are kept in its own bytes (broker/core/amqp/origin.py). Beside them stand the headers as properties of the
message, so that selectors and other protocols see them; docs/interoperability.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...core.amqp.keys import is_text, key_of
from ...core.amqp.origin import MOST_KEYS, Way, last_way, packed, unpacked
from ...core.amqp.vhost import REPLY_TO, local_name
from ...core.amqp.x_death import Death, deaths
from ...core.message import AMQP_ORIGIN as ORIGIN
from ...core.message import DEFAULT_PRIORITY, Hop, Message, MessageReference, Properties, PropertyValue, overlay
from ...core.settings.units import MAX_DURATION_MS
from ...properties import RESERVED
from .codec_cache import SHARED
from .codec_methods import short_string
from .codec_properties import ContentProperties, read_properties, write_properties
from .codec_tables import Timestamp, compared, join_table, long_value, read_value, split_table, write_value
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
    headers: dict[str, Any] = {}
    for name, raw in split_table(content).items():
        headers[name], _ = read_value(raw, 0, len(raw))
    return headers


def headers_compared(raw: bytes) -> dict[str, Any]:
    """The headers of content properties, as a headers exchange compares them. Raises TableError."""
    return compared(split_table(read_properties(raw).headers or b""))


def key_list(headers: dict[str, Any], name: str) -> list[str]:
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


def _storable(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -_INT64 <= value < _INT64


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


# -- out -----------------------------------------------------------------------------------------------------------------


def wire_of(reference: MessageReference, counting: bool) -> tuple[bytes, bytes]:
    """(exchange and routing key as short strings, content properties) of a delivery. ``counting``: its queue tells how often it failed."""
    failed = reference.failed if counting else 0
    if reference.hops:
        return _changed(reference, failed)
    message = reference.message
    kept = message.properties
    if kept is None:
        return _plain_wire(message.address, message.durable, message.priority, failed)
    unchanged = _kept_wire(message, kept)
    if not failed:
        return unchanged
    return (_counted if len(unchanged[1]) <= _SHORT_ORIGIN else _with_count)(*unchanged, failed)


def _kept_wire(message: Message, kept: Properties) -> tuple[bytes, bytes]:
    origin = kept.get(ORIGIN)
    if not isinstance(origin, bytes):
        return b"\x00" + short_string(local_name(message.address)), _from_native(message)
    if len(origin) <= _SHORT_ORIGIN:
        return _wire_of_origin(origin)
    return _cut(origin)


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
    headers = {name: value for name, value in known.items() if name not in NAMES and len(name.encode()) <= _LONGEST_NAME}
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


def headers_seen(message: Message, hops: list[Hop]) -> dict[str, Any]:
    """What a headers exchange compares of a message that has died so: all that whoever gets it will be shown."""
    return compared(_died(message, hops)[1])


def _changed(reference: MessageReference, failed: int) -> tuple[bytes, bytes]:
    """A message that was dead-lettered before; x-delivery-count where its queue says so."""
    properties, fields = _died(reference.message, reference.hops or [])
    if failed:
        fields["x-delivery-count"] = long_value(failed)
    way: Way = last_way(reference)
    target = short_string(way.exchange) + short_string(way.keys[0])
    return target, write_properties(properties._replace(headers=join_table(fields)))


def _died(message: Message, hops: list[Hop]) -> tuple[ContentProperties, dict[str, bytes]]:
    """Properties and headers of a message with these hops: x-death and its kin are there, the expiration is taken off."""
    kept = message.properties
    origin = kept.get(ORIGIN) if kept is not None else None
    if isinstance(origin, bytes):
        properties = read_properties(unpacked(origin)[1])
    elif kept is None:
        properties = read_properties(_plain(message.durable, message.priority))
    else:
        properties = _native_properties(message)
    fields = split_table(properties.headers or b"")
    if hops:
        entries = deaths(hops)
        fields.update(_death_headers(entries, properties.expiration))
        fields.update({name: write_value(value) for name, value in overlay(hops, message.message_id).items() if name.startswith("_AMQ_")})
        if any(hop.detail.get("keys_replaced") for hop in hops):
            fields.pop("CC", None)
        properties = properties._replace(expiration=None)
    return properties, fields


def _death_headers(entries: list[Death], expiration: str | None) -> dict[str, bytes]:
    first = min(entries, key=lambda death: death.time_ms)
    # Of deaths in one millisecond the one further back in the list came first.
    for death in reversed(entries):
        if death.time_ms == first.time_ms:
            first = death
            break
    last = entries[0]
    return {
        "x-death": _array(_entry(death, expiration if death is first else None) for death in entries),
        "x-first-death-queue": write_value(first.queue),
        "x-first-death-reason": write_value(first.reason),
        "x-first-death-exchange": write_value(first.exchange),
        "x-last-death-queue": write_value(last.queue),
        "x-last-death-reason": write_value(last.reason),
        "x-last-death-exchange": write_value(last.exchange),
    }


def _array(values: Iterable[bytes]) -> bytes:
    content = b"".join(values)
    return b"A" + len(content).to_bytes(4, "big") + content


def _entry(death: Death, expiration: str | None) -> bytes:
    fields = {
        "count": long_value(death.times),
        "reason": write_value(death.reason),
        "queue": write_value(death.queue),
        "time": write_value(Timestamp(death.time_ms // 1000)),
        "exchange": write_value(death.exchange),
        "routing-keys": write_value(death.routing_keys),
    }
    if expiration is not None:
        fields["original-expiration"] = write_value(expiration)
    content = join_table(fields)
    return b"F" + len(content).to_bytes(4, "big") + content
