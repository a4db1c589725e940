"""Reading the fields of native frames: everything is checked here, before anything of it reaches the broker.

A frame whose *shape* is wrong is a ProtocolError (the connection ends); a message or option the broker cannot take is Refused (it goes on).
"""

from __future__ import annotations

from typing import Any, Final

from broker.core.message import DEFAULT_PRIORITY, Message
from broker.errors import Refused
from broker.properties import checked
from broker.protocols.native.codec import MESSAGE_OVERHEAD_BYTES, Frame, ProtocolError

MAX_NESTING: Final = 16
MAX_PROPERTIES_BYTES: Final = 64 * 1024
MAX_DUPLICATE_ID: Final = 256
#: ttl and delay: more than this is a mistake (100 years).
MAX_DURATION_MS: Final = 100 * 365 * 86_400_000


def malformed(message: str) -> ProtocolError:
    return ProtocolError("malformed-frame", message, "see docs/protocol.md")


def take(frame: Frame, name: str, *types: type, defaults: tuple[Any, ...] = ()) -> list[Any]:
    """The fields of a frame, typed; trailing ones may be left out where there are defaults. ``bool`` is not taken for ``int``."""
    fields = frame[1:]
    least = len(types) - len(defaults)
    if not least <= len(fields) <= len(types):
        raise malformed(f"{name} has {len(fields)} fields, expected {least} to {len(types)}")
    fields += defaults[len(fields) - least :]
    for number, (field, kind) in enumerate(zip(fields, types, strict=True), 1):
        if kind is not object and type(field) is not kind:
            raise malformed(f"field {number} of {name} must be {kind.__name__}, not {type(field).__name__}")
    return fields


def unsigned(value: int, name: str, highest: int = (1 << 63) - 1, lowest: int = 0) -> int:
    if not lowest <= value <= highest:
        raise malformed(f"{name} must be from {lowest} to {highest}, not {value}")
    return value


def nested(value: Any, depth: int = 1) -> None:
    """Refuses maps and arrays nested deeper than MAX_NESTING; used where a field is a free map."""
    if depth > MAX_NESTING:
        raise malformed(f"values are nested deeper than {MAX_NESTING}")
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return
    for each in value:
        nested(each, depth + 1)


def messages(
    items: list[Any], address: str, producer: str, now_ms: int, max_properties: int = MAX_PROPERTIES_BYTES
) -> tuple[list[Message], int, Refused | None]:
    """(messages, cost in bytes, refusal) of a SEND; with a refusal, the list holds what came before the refused one."""
    read: list[Message] = []
    cost = 0
    for item in items:
        if type(item) is not list or not 1 <= len(item) <= 7 or type(item[0]) is not bytes:
            raise malformed("a message must be an array of 1 to 7 fields that begins with its body as binary")
        body = item[0]
        cost += len(body) + MESSAGE_OVERHEAD_BYTES
        if len(item) == 1:
            read.append(Message(0, address, body, None, DEFAULT_PRIORITY, True, now_ms, None, producer))
            continue
        try:
            read.append(_message(item, address, producer, now_ms, max_properties))
        except Refused as refusal:
            return read, cost, refusal
    return read, cost, None


def _message(item: list[Any], address: str, producer: str, now_ms: int, max_properties: int) -> Message:
    defaults: tuple[Any, ...] = (None, DEFAULT_PRIORITY, True, 0, 0, None)
    body, properties, priority, durable, ttl_ms, delay_ms, duplicate_id = (*item, *defaults[len(item) - 1 :])
    if type(priority) is not int or type(durable) is not bool or type(ttl_ms) is not int or type(delay_ms) is not int:
        raise malformed("priority, ttl and delay must be integers and durable a boolean")
    if not 0 <= priority <= 9:
        raise Refused("invalid-message", f"priority must be 0 to 9, not {priority}", "use 0 to 9; 4 is the default")
    if not (0 <= ttl_ms <= MAX_DURATION_MS and 0 <= delay_ms <= MAX_DURATION_MS):
        raise Refused("invalid-message", "ttl and delay must be 0 or more, and below 100 years", "give milliseconds")
    if duplicate_id is not None and (
        type(duplicate_id) is not str or not 0 < len(duplicate_id) <= MAX_DUPLICATE_ID or not duplicate_id.isprintable()
    ):
        raise Refused("invalid-message", f"a duplicate_id is 1 to {MAX_DUPLICATE_ID} printable characters", "use for example a UUID")
    if properties is not None:
        if type(properties) is not dict:
            raise malformed("properties must be a map")
        properties = checked(properties, max_properties)
    expires_at_ms = now_ms + ttl_ms if ttl_ms else None
    return Message(0, address, body, properties, priority, durable, now_ms, expires_at_ms, producer, duplicate_id, delay_ms)
