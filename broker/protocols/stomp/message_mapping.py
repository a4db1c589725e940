"""Messages between STOMP and the broker: what a SEND comes to, and what a MESSAGE says. docs/interoperability.md has the table."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ...core.message import DEFAULT_PRIORITY, Message, MessageReference, Properties
from ...core.repeated import JOB, PERIOD
from ...core.settings.units import MAX_DURATION_MS
from ...errors import Refused
from ...properties import RESERVED, checked
from ..failures import checked_report
from .codec import END, Headers, header_line
from .destinations import read_destination

#: Header -> the property that other protocols know by a name of their own.
_PROPERTY_OF: Final = {"correlation-id": "JMSCorrelationID", "type": "JMSType", "reply-to": "JMSReplyTo"}
_HEADER_OF: Final = {name: header for header, name in _PROPERTY_OF.items()}
#: Reserved, but for these, which are carried as they are.
_CARRIED: Final = ("JMSXGroupID", "JMSXGroupSeq")
#: Of a SEND: what is said of the frame or of the delivery, and what the broker has a place of its own for.
_NO_PROPERTIES: Final = frozenset(
    {
        *("destination", "receipt", "transaction", "content-length", "persistent", "priority", "expires", "expiration", "timestamp"),
        *("subscription", "message-id", "ack", "redelivered", "destination-type"),
        *("AMQ_SCHEDULED_DELAY", PERIOD, "AMQ_SCHEDULED_REPEAT"),
    }
)
#: Messages that one SEND may come to, one after the other.
_MOST_REPEATED: Final = 1000
#: Of what the client calls something of its own, in characters.
LONGEST_NAME: Final = 1024
_MOST_DUPLICATE_ID: Final = 256
#: Of a MESSAGE, the broker's own.
_OWN: Final = _NO_PROPERTIES | {"JMSXDeliveryCount"}
_MOST_MS: Final = (1 << 63) - 1


#: The destination of a MESSAGE.
Told = Callable[[MessageReference], str]


class Sent(NamedTuple):
    """What the headers of a SEND come to."""

    transaction: str
    properties: Properties | None
    properties_bytes: int
    #: See Message.extra.
    properties_extra: int
    priority: int
    durable: bool
    expires_at_ms: int | None
    #: RabbitMQ's: it lives for so long; None: as ``expires_at_ms`` says.
    ttl_ms: int | None
    #: Not before so long, or not before that time.
    delay_ms: int
    due_at_ms: int
    duplicate_id: str | None
    #: It comes so often in all, so far apart.
    times: int
    period_ms: int
    #: The client's name for a temporary queue that answers go to; "" none.
    reply_to: str

    def messages(self, address: str, name: str, bodies: list[bytes], now_ms: int) -> list[Message]:
        """One for each body; of one that is repeated, all of them. ``name``: of the producer."""
        _, properties, size, extra, priority, durable, expires_at_ms, ttl_ms, delay_ms, due_at_ms, duplicate_id, times, period_ms, _ = self
        if ttl_ms is not None:
            expires_at_ms = now_ms + ttl_ms
        delay_ms = max(delay_ms, due_at_ms - now_ms)
        return [
            Message(0, address, body, properties, priority, durable, now_ms, expires_at_ms, name, duplicate_id, after_ms, size, extra)
            for body in bodies
            for after_ms in [delay_ms + period_ms * number for number in range(times)]
        ]

    @property
    def alike(self) -> bool:
        """Whatever else is sent with these headers comes to the same."""
        return not (self.transaction or self.duplicate_id or self.reply_to or self.times > 1)


def read_send(headers: Headers, max_properties_bytes: int) -> Sent:
    """Raises Refused."""
    if "AMQ_SCHEDULED_CRON" in headers:
        raise Refused("not-supported", "AMQ_SCHEDULED_CRON: there is no calendar here", "have cron, or a timer, send each")
    kept: dict[Any, Any] = {}
    carried: Properties = {}
    for name, value in headers.items():
        if name in _CARRIED:
            carried[name] = value
        elif name not in _NO_PROPERTIES and not name.startswith(RESERVED):
            kept[_PROPERTY_OF.get(name, name)] = value
    delay_ms, period_ms, times = _repeated(headers)
    if times > 1:
        carried |= {JOB: secrets.token_hex(8), PERIOD: period_ms}
    properties, size, extra = checked(kept, max_properties_bytes)
    if carried:
        properties = {**(properties or {}), **carried}
        size += sum(len(name) + len(str(value)) for name, value in carried.items())
    duplicate_id = headers.get("_AMQ_DUPL_ID") or None
    if duplicate_id is not None and (len(duplicate_id) > _MOST_DUPLICATE_ID or not duplicate_id.isprintable()):
        raise Refused("invalid-header", f"_AMQ_DUPL_ID is up to {_MOST_DUPLICATE_ID} printable characters", "use for example a UUID")
    if times > 1 and duplicate_id is not None:
        raise Refused("invalid-header", "_AMQ_DUPL_ID is of one message, and AMQ_SCHEDULED_REPEAT asks for more", "leave one of them out")
    reply_to = headers.get("reply-to", "")
    temporary = read_destination(reply_to) if reply_to.startswith("/temp-") else None
    return Sent(
        headers.get("transaction", ""),
        properties,
        size,
        extra,
        number(headers, "priority", DEFAULT_PRIORITY, 255),
        headers.get("persistent", "").lower() == "true",
        number(headers, "expires", 0, _MOST_MS) or None,
        number(headers, "expiration", 0, MAX_DURATION_MS) if "expiration" in headers else None,
        delay_ms,
        number(headers, "_AMQ_SCHED_DELIVERY", 0, _MOST_MS),
        duplicate_id,
        times,
        period_ms,
        temporary.name if temporary is not None else "",
    )


def _repeated(headers: Headers) -> tuple[int, int, int]:
    """When it comes first, how far apart the others are, in ms, and how often it comes. Raises Refused."""
    delay_ms = number(headers, "AMQ_SCHEDULED_DELAY", 0, MAX_DURATION_MS)
    period_ms = number(headers, PERIOD, 0, MAX_DURATION_MS // _MOST_REPEATED)
    if headers.get("AMQ_SCHEDULED_REPEAT") == "-1":
        raise Refused("not-supported", "AMQ_SCHEDULED_REPEAT:-1: nothing is repeated for ever", "name how often, or send from a timer")
    times = 1 + number(headers, "AMQ_SCHEDULED_REPEAT", 0, _MOST_REPEATED - 1)
    return delay_ms or period_ms, period_ms, times


def number(headers: Headers, name: str, default: int, most: int, least: int = 0) -> int:
    """A whole number. Raises Refused."""
    text = headers.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 20 or not least <= int(text) <= most:
        raise Refused("invalid-header", f"{name}: {text[:32]!r} is no whole number from {least} to {most}", "correct it, or leave it out")
    return int(text)


def name_of(headers: Headers, header: str, needed: bool = False) -> str:
    """Raises Refused where it is missing or long."""
    name = headers.get(header, "")
    if needed and not name:
        raise Refused("missing-header", f"the header {header} is missing", "name the transaction")
    if len(name) > LONGEST_NAME:
        raise Refused("invalid-header", f"{header} is longer than {LONGEST_NAME} characters", "use a shorter one")
    return name


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


def says_the_same(reference: MessageReference, like: MessageReference) -> bool:
    """Whether it is sure that its header lines are those of the other."""
    message, other = reference.message, like.message
    return (
        message.properties is other.properties
        and message.address == other.address
        and message.sent_at_ms == other.sent_at_ms
        and message.durable is other.durable
        and reference.priority == like.priority
        and reference.expires_at_ms == like.expires_at_ms
        and reference.delivery_count - reference.counted == like.delivery_count - like.counted
        and not (reference.hops or like.hops)
    )


def message_headers(reference: MessageReference, version: str) -> bytes:
    """The header lines of a MESSAGE that are said of the message, but for its number, and not of the subscription."""
    message = reference.message
    times = reference.delivery_count + (not reference.counted)
    known = b"priority:%d\ntimestamp:%d\n" % (reference.priority, message.sent_at_ms)
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


def message_frames(lines: bytes, references: list[MessageReference], version: str, consumer: int | None, told: Told | None = None) -> bytes:
    """One MESSAGE each. ``lines``: what is said of the subscription; ``consumer``: the number of one that acknowledges by STOMP 1.2;
    ``told``: the destination, where it is each one's own.
    """
    parts: list[bytes] = []
    like, said = None, b""
    for reference in references:
        body = reference.message.body
        if like is None or not says_the_same(reference, like):
            like, said = reference, message_headers(reference, version)
            if told is not None:
                said += header_line("destination", told(reference), version)
        ack = b"" if consumer is None else b"ack:%d-%d\n" % (consumer, reference.tag)
        head = b"MESSAGE\n%s%smessage-id:%d\n%scontent-length:%d\n\n" % (lines, ack, reference.message.message_id, said, len(body))
        parts += (head, body, END)
    return b"".join(parts)


def _text(value: Any) -> str | None:
    """None: bytes, or nothing, which no header can say."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or isinstance(value, bytes) else str(value)
