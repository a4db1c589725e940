"""Messages between STOMP and the broker: what a SEND comes to, and what a MESSAGE says. docs/interoperability.md has the table."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...core.message import DEFAULT_PRIORITY, Message, MessageReference, Properties
from ...core.settings.units import MAX_DURATION_MS
from ...errors import Refused
from ...properties import RESERVED, checked
from ..failures import checked_report
from .codec import Headers, header_line

#: Header -> the property that other protocols know by a name of their own.
_PROPERTY_OF: Final = {"correlation-id": "JMSCorrelationID", "type": "JMSType", "reply-to": "JMSReplyTo"}
_HEADER_OF: Final = {name: header for header, name in _PROPERTY_OF.items()}
#: Reserved, but for these, which are carried as they are.
_CARRIED: Final = ("JMSXGroupID", "JMSXGroupSeq")
#: Of a SEND: what is said of the frame or of the delivery, and what the broker has a place of its own for.
_NO_PROPERTIES: Final = frozenset(
    {
        *("destination", "receipt", "transaction", "content-length", "persistent", "priority", "expires", "timestamp"),
        *("subscription", "message-id", "ack", "redelivered"),
    }
)
#: Of a MESSAGE, the broker's own.
_OWN: Final = _NO_PROPERTIES | {"JMSXDeliveryCount"}
_MOST_MS: Final = (1 << 63) - 1


class Sent(NamedTuple):
    """What the headers of a SEND come to."""

    destination: str
    receipt: str
    transaction: str
    properties: Properties | None
    properties_bytes: int
    #: See Message.extra.
    properties_extra: int
    priority: int
    durable: bool
    expires_at_ms: int | None

    def message(self, address: str, body: bytes, now_ms: int, producer: str) -> Message:
        return Message(
            0,
            address,
            body,
            self.properties,
            self.priority,
            self.durable,
            now_ms,
            self.expires_at_ms,
            producer,
            properties_size=self.properties_bytes,
            extra=self.properties_extra,
        )


def read_send(headers: Headers, max_properties_bytes: int) -> Sent:
    """Raises Refused."""
    destination = headers.get("destination", "")
    kept: dict[Any, Any] = {}
    carried: Properties = {}
    for name, value in headers.items():
        if name in _CARRIED:
            carried[name] = value
        elif name not in _NO_PROPERTIES and not name.startswith(RESERVED):
            kept[_PROPERTY_OF.get(name, name)] = value
    properties, size, extra = checked(kept, max_properties_bytes)
    if carried:
        properties = {**(properties or {}), **carried}
        size += sum(len(name) + len(str(value)) for name, value in carried.items())
    expires_at_ms = number(headers, "expires", 0, _MOST_MS)
    return Sent(
        destination,
        headers.get("receipt", ""),
        headers.get("transaction", ""),
        properties,
        size,
        extra,
        number(headers, "priority", DEFAULT_PRIORITY, 255),
        headers.get("persistent", "").lower() == "true",
        expires_at_ms or None,
    )


def number(headers: Headers, name: str, default: int, most: int) -> int:
    """A whole number from 0 on. Raises Refused."""
    text = headers.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) > most:
        raise Refused("invalid-header", f"{name}: {text[:32]!r} is no whole number from 0 to {most}", "correct it, or leave it out")
    return int(text)


def flag(headers: Headers, name: str, default: bool) -> bool:
    """Raises Refused for what is neither."""
    text = headers.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise Refused("invalid-header", f"{name}: {text[:32]!r} is neither true nor false", "correct it, or leave it out")
    return text.lower() == "true"


def read_nack(headers: Headers) -> Any:
    """What a NACK tells of the failure, as every protocol's report has it. Raises Refused."""
    told = {name.replace("-", "_"): headers.get(name) for name in ("reason", "error-type", "error-text", "traceback")}
    delay_ms = number(headers, "delay", 0, MAX_DURATION_MS) if "delay" in headers else None
    retryable = flag(headers, "retryable", flag(headers, "requeue", True))
    try:
        return checked_report({**told, "delay_ms": delay_ms, "retryable": None if retryable else False})
    except ValueError as error:
        raise Refused("invalid-header", f"the failure {error}", "correct it, or leave it out") from None


def message_headers(reference: MessageReference, version: str) -> bytes:
    """The header lines of a MESSAGE that are said of the message, not of the subscription, with its number first."""
    message = reference.message
    times = reference.delivery_count + (not reference.counted)
    known = b"message-id:%d\npriority:%d\ntimestamp:%d\n" % (message.message_id, reference.priority, message.sent_at_ms)
    if message.durable:
        known += b"persistent:true\n"
    if reference.expires_at_ms is not None:
        known += b"expires:%d\n" % reference.expires_at_ms
    if times > 1:
        known += b"redelivered:true\nJMSXDeliveryCount:%d\n" % times
    if message.properties is None and not reference.hops:
        return known
    lines = [known]
    for name, value in (reference.visible_properties() or {}).items():
        if (text := _text(value)) is not None and name not in _OWN:
            lines.append(header_line(_HEADER_OF.get(name, name), text, version))
    return b"".join(lines)


def _text(value: Any) -> str | None:
    """None: bytes, or nothing, which no header can say."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or isinstance(value, bytes) else str(value)
