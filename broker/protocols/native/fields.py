"""Reading the fields of native frames: everything is checked here, before anything of it reaches the broker.

A frame whose *shape* is wrong is a ProtocolError (the connection ends); a message or option the broker cannot take is Refused (it goes on).
"""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

import msgpack

from ...core.consumer import Client, ConsumerOptions, Library
from ...core.fault import AttemptOutcome
from ...core.message import DEFAULT_PRIORITY, Message
from ...core.redelivery import ConsumerPolicy
from ...core.settings.units import MAX_DURATION_MS
from ...errors import Refused
from ...properties import checked
from .codec import MESSAGE_OVERHEAD_BYTES, PROPERTY_OVERHEAD_BYTES, Frame, ProtocolError

MAX_NESTING: Final = 16
MAX_PROPERTIES_BYTES: Final = 64 * 1024
MAX_DUPLICATE_ID: Final = 256
MAX_CLIENT_ID: Final = 256
#: The last number a message may have: leaves room for any frame below what the journal can hold.
MAX_SEQUENCE: Final = 1 << 62
MAX_SESSION: Final = 1 << 31
_MAX_WORDS: Final = 1000


def malformed(message: str) -> ProtocolError:
    return ProtocolError("malformed-frame", message, "see docs/protocol.md")


class Unsigned(NamedTuple):
    """A whole number from ``lowest`` to ``highest``, as an error calls it."""

    name: str
    highest: int = (1 << 63) - 1
    lowest: int = 0


REQUEST: Final = Unsigned("request")
CONSUMER: Final = Unsigned("consumer", 1 << 31, 1)
PRODUCER: Final = Unsigned("producer", 65_535, 1)
FIRST_SEQUENCE: Final = Unsigned("first_sequence", MAX_SEQUENCE, 1)
SESSION: Final = Unsigned("session", MAX_SESSION, 1)
TIMEOUT_MS: Final = Unsigned("timeout_ms", MAX_DURATION_MS, -1)


def take(frame: Frame, name: str, *types: type | Unsigned, defaults: tuple[object, ...] = ()) -> list[Any]:
    """The fields of a frame, typed; trailing ones may be left out where there are defaults. ``bool`` is not taken for ``int``."""
    fields = frame[1:]
    least = len(types) - len(defaults)
    if not least <= len(fields) <= len(types):
        raise malformed(f"{name} has {len(fields)} fields, expected {least} to {len(types)}")
    fields += defaults[len(fields) - least :]
    for number, (field, kind) in enumerate(zip(fields, types, strict=True), 1):
        wanted = int if isinstance(kind, Unsigned) else kind
        if wanted is not object and type(field) is not wanted:
            raise malformed(f"field {number} of {name} must be {wanted.__name__}, not {type(field).__name__}")
        if isinstance(kind, Unsigned):
            unsigned(field, *kind)
    return fields


def unsigned(value: int, name: str, highest: int = (1 << 63) - 1, lowest: int = 0) -> int:
    if not lowest <= value <= highest:
        raise malformed(f"{name} must be from {lowest} to {highest}, not {value}")
    return value


def nested(value: object, levels: int = MAX_NESTING - 1, most: int = MAX_NESTING) -> None:
    """Refuses maps and arrays nested deeper than ``most``, the frame's own array included, and timestamps, which msgpack lets through.

    Used where a field is a free map."""
    if type(value) is dict:
        value = value.values()
    elif type(value) is msgpack.Timestamp:
        raise malformed("extension type -1 is not part of the protocol")
    elif type(value) is not list:
        return
    if levels <= 0:
        raise ProtocolError("nested-too-deep", f"values are nested deeper than {most} levels", "flatten them, or send them as a body")
    for each in value:
        nested(each, levels - 1, most)


def shown(text: str) -> str:
    """What an error says is for people; what it quotes came from a client and may be long."""
    return text if len(text) <= _MAX_WORDS else text[: _MAX_WORDS - 1] + "…"


def checked_client_id(value: str | None) -> str:
    """A HELLO's client_id; a new one for a client without, so that nobody is ever taken for an earlier connection."""
    if not value:
        return uuid.uuid4().hex
    if len(value) > MAX_CLIENT_ID or not value.isprintable():
        raise malformed(f"a client_id is 1 to {MAX_CLIENT_ID} printable characters")
    return value


def client(options: dict[str, Any]) -> Client:
    """What a HELLO tells of the program, as people and exports are shown it: a made-up client_id, which is the client's secret, by its
    beginning; the rest cut short.
    """
    name: str = options["client_id"]
    made_up = len(name) in (32, 36) and all(letter in "0123456789abcdef-" for letter in name)
    return Client(name[:8] if made_up else name, shown(options.get("host") or ""), shown(options.get("version") or ""))


def library(options: dict[str, Any]) -> Library:
    return Library(*(shown(options.get(name) or "") for name in ("product", "product_version")))


def messages(
    items: list[Any], address: str, producer: str, now_ms: int, max_properties: int = MAX_PROPERTIES_BYTES
) -> tuple[list[Message], int, Refused | None]:
    """(messages, cost in bytes, refusal) of a SEND; with a refusal, the list holds what came before the refused one."""
    read: list[Message] = []
    cost = 0
    for item in items:
        if type(item) is not list or not 1 <= (number := len(item)) <= 7 or type(body := item[0]) is not bytes:
            raise malformed("a message must be an array of 1 to 7 fields that begins with its body as binary")
        cost += len(body) + MESSAGE_OVERHEAD_BYTES
        if number == 1:
            read.append(Message(0, address, body, None, DEFAULT_PRIORITY, True, now_ms, None, producer))
            continue
        try:
            message = _message(item, address, producer, now_ms, max_properties)
        except Refused as refusal:
            return read, cost, refusal
        if message.properties is not None:
            cost += message.properties_size + PROPERTY_OVERHEAD_BYTES * len(message.properties)
        read.append(message)
    return read, cost, None


def messages_alike(
    said: list[Any], bodies: list[Any], address: str, producer: str, now_ms: int
) -> tuple[list[Message], int, Refused | None]:
    """Messages of a SEND_BODIES: ``said`` holds priority, durable, ttl and delay of each. Properties would be stored with each."""
    if len(said) > 4:
        raise malformed("bodies share priority, durable, ttl and delay, and nothing else")
    if not {*map(type, bodies)} <= {bytes}:
        raise malformed("bodies must be binary")
    cost = MESSAGE_OVERHEAD_BYTES * len(bodies) + sum(map(len, bodies))
    try:
        _, _, priority, durable, expires_at_ms, delay_ms, _ = _said([b"", None, *said], now_ms)
    except Refused as refusal:
        return [], cost, refusal
    read = [Message(0, address, body, None, priority, durable, now_ms, expires_at_ms, producer, None, delay_ms) for body in bodies]
    return read, cost, None


def _said(item: list[Any], now_ms: int) -> tuple[bytes, object, int, bool, int | None, int, str | None]:
    """Of a message: body, properties (not checked), priority, durable, when it expires, delay, duplicate_id."""
    defaults: tuple[Any, ...] = (None, DEFAULT_PRIORITY, True, 0, 0, None)
    body, properties, priority, durable, ttl_ms, delay_ms, duplicate_id = (*item, *defaults[len(item) - 1 :])
    if type(priority) is not int or type(durable) is not bool or type(ttl_ms) is not int or type(delay_ms) is not int:
        raise malformed("priority, ttl and delay must be integers and durable a boolean")
    if not 0 <= priority <= 9:
        raise Refused("invalid-message", f"priority must be 0 to 9, not {priority}", "use 0 to 9; 4 is the default")
    if not (0 <= ttl_ms <= MAX_DURATION_MS and 0 <= delay_ms <= MAX_DURATION_MS):
        raise Refused("invalid-message", "ttl and delay must be 0 or more, and at most 10 years", "give milliseconds")
    if duplicate_id is not None and (
        type(duplicate_id) is not str or not 0 < len(duplicate_id) <= MAX_DUPLICATE_ID or not duplicate_id.isprintable()
    ):
        raise Refused("invalid-message", f"a duplicate_id is 1 to {MAX_DUPLICATE_ID} printable characters", "use for example a UUID")
    return body, properties, priority, durable, now_ms + ttl_ms if ttl_ms else None, delay_ms, duplicate_id


def _message(item: list[Any], address: str, producer: str, now_ms: int, max_properties: int) -> Message:
    body, properties, priority, durable, expires_at_ms, delay_ms, duplicate_id = _said(item, now_ms)
    size = extra = 0
    if properties is not None:
        if type(properties) is not dict:
            raise malformed("properties must be a map")
        properties, size, extra = checked(properties, max_properties)
    return Message(0, address, body, properties, priority, durable, now_ms, expires_at_ms, producer, duplicate_id, delay_ms, size, extra)


def up_to_oversize(messages: list[Message], most: int) -> tuple[list[Message], Refused | None]:
    """The messages before the first that has more than ``most`` bytes, and why that one is refused."""
    for number, message in enumerate(messages):
        if message.size > most:
            why = f"the message takes {message.size} bytes, the largest that can be delivered has {most}"
            fix = "send less at once, or raise limits.max-frame-bytes and limits.max-message-bytes"
            return messages[:number], Refused("message-too-large", why, fix)
    return messages, None


#: Ways in which a failed delivery comes back.
OUTCOMES: Final[tuple[AttemptOutcome, ...]] = ("nack", "listener", "recover", "error", "rollback")
_CONSUMER_OPTIONS: Final[dict[str, type]] = {
    "prefetch": int,
    "selector": str,
    "redelivery_policy": dict,
    "session": int,
    "transacted": bool,
    "priority": int,
}
_MOST_PRIORITY: Final = (1 << 31) - 1


def consumer_options(options: dict[str, Any]) -> ConsumerOptions:
    """SUBSCRIBE's options, checked. Raises Refused and RedeliveryPolicyError."""
    read = {name: value for name, value in options.items() if value is not None}
    for name, value in read.items():
        kind = _CONSUMER_OPTIONS.get(name)
        if kind is None:
            raise Refused("invalid-argument", f"a consumer has no option {name!r}", "options: " + ", ".join(_CONSUMER_OPTIONS))
        if type(value) is not kind:
            raise Refused("invalid-argument", f"{name} must be {kind.__name__}, not {type(value).__name__}", "see docs/protocol.md, 2.3")
    if not 0 <= read.get("prefetch", 0) <= 100_000 or not 0 <= read.get("session", 0) <= MAX_SESSION:
        raise Refused("invalid-argument", "prefetch must be 0 to 100000 and session 0 to 2^31", "see docs/protocol.md, 2.3")
    if not -_MOST_PRIORITY - 1 <= read.get("priority", 0) <= _MOST_PRIORITY:
        raise Refused("invalid-argument", "priority must be -2^31 to 2^31-1", "see docs/protocol.md, 2.3")
    policy = read.pop("redelivery_policy", None)
    return ConsumerOptions(policy=None if policy is None else ConsumerPolicy.from_map(policy), **read)
