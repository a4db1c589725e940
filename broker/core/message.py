"""Message: what was sent, immutable. MessageReference: that message in one queue, with everything that changes.

What is true of *one message in one queue* (counters, due time, expiry, hops) stands on the reference; the message itself
never changes. Selectors and consumers see the reference's overlay over the message's own properties.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from homing.journal.contract import Death, HopDetail

if TYPE_CHECKING:
    from .consumer import Consumer
    from .queue import Queue

PropertyValue = str | int | float | bool | bytes | None
Properties = dict[str, PropertyValue]
#: Name -> value, as selectors ask for them.
Lookup = Callable[[str], PropertyValue]

DEFAULT_PRIORITY: Final = 4
#: The due time of what waits until it is released; as the journal has it (journal/contract.py).
ON_HOLD_MS: Final = 253_402_300_799_999
#: The part of ``cause`` that a dead letter has; as the journal has it.
DEATH_BITS: Final = 7
#: How an AMQP client published the message (origin.py); nobody else is shown it.
AMQP_ORIGIN: Final = "_HOMING_AMQP"
#: All hops, newest first, as JSON.
HOPS: Final = "_HOMING_HOPS"
#: The dead-letter queue that a temporary queue shares with others.
SHARED_QUEUE: Final = "_HOMING_SHARED_QUEUE"
#: What a message in one queue takes in memory beside its body and properties: less where it waits (tests/unit/test_memory.py).
REFERENCE_BYTES: Final = 650
#: And each of its hops.
HOP_BYTES: Final = 600
#: What a delivery may need beyond the frame its message came in: address, numbers, and where a dead letter has been.
_DELIVERY_BYTES: Final = 64 * 1024


def largest_message(max_frame_bytes: int) -> int:
    """Of body and properties, in bytes, what can be delivered in a frame."""
    return max_frame_bytes - min(_DELIVERY_BYTES, max_frame_bytes // 16)


class Trouble(NamedTuple):
    """What is counted of a reference that had failed before when it ends: see ``MessageReference``."""

    cause: int
    redrive: int


class DescribedHop(HopDetail):
    message_id: int
    sequence: int


class Hop(NamedTuple):
    """One step of a message's way: the queue entry (its sequence) that ended, and what is said of that."""

    sequence: int
    detail: HopDetail


class Where(IntEnum):
    """Where a reference stands. Exactly one of these at any time."""

    #: Waiting for the batch with its last change to be on disk; not dispatched meanwhile.
    IN_COMMIT = 0
    PENDING = 1
    DELIVERING = 2
    SCHEDULED = 3
    PARKED = 4
    GONE = 5


#: As names of this module, for what runs for every message: CPython 3.11 takes 100 ns to find a member in its enumeration.
IN_COMMIT, PENDING, DELIVERING, PARKED, GONE = Where.IN_COMMIT, Where.PENDING, Where.DELIVERING, Where.PARKED, Where.GONE


class Message:
    """A message as it was sent. ``size`` is body and properties in bytes; times are broker milliseconds since 1970 UTC."""

    __slots__ = (
        "address",
        "answers",
        "body",
        "delay_ms",
        "duplicate_id",
        "durable",
        "expires_at_ms",
        "kept",
        "message_id",
        "priority",
        "producer",
        "properties",
        "references",
        "sent_at_ms",
        "shared",
        "size",
        "stored",
        "weight",
    )

    def __init__(
        self,
        message_id: int,
        address: str,
        body: bytes,
        properties: Properties | None = None,
        priority: int = DEFAULT_PRIORITY,
        durable: bool = True,
        sent_at_ms: int = 0,
        expires_at_ms: int | None = None,
        producer: str = "",
        duplicate_id: str | None = None,
        delay_ms: int = 0,
        properties_size: int = 0,
        extra: int = 0,
    ) -> None:
        """``properties_size``: what the properties take in bytes, as they are sent; ``extra``: what they take in memory beyond that."""
        self.message_id = message_id
        self.address = address
        self.body = body
        self.properties = properties
        self.priority = priority
        self.durable = durable
        #: It is durable wherever it goes: its sender wants it, or a queue that keeps everything has it, or had.
        self.kept = durable
        self.sent_at_ms = sent_at_ms
        self.expires_at_ms: int | None = expires_at_ms
        self.producer = producer
        self.duplicate_id = duplicate_id
        #: The sender's wish: not to be delivered before this long after its arrival.
        self.delay_ms = delay_ms
        #: What the selectors of queues (by id) have said of it on its way in (post_office.Address.ask).
        self.answers: dict[int, bool] | None = None
        #: Body and properties in bytes; and what they take in memory, without any reference to them.
        self.size = self.weight = len(body)
        if properties:
            self.size += properties_size
            self.weight += properties_size + extra
        #: References alive in any queue; the body is given back with the last.
        self.references = 0
        #: Of those, the ones in the journal.
        self.stored = 0
        #: Stored once in a row of its own because several durable references point at it.
        self.shared = False

    @property
    def properties_size(self) -> int:
        """What the properties take, in bytes."""
        return self.size - len(self.body)


def is_durable(message: Message, queue: Queue) -> bool:
    """Whether a reference to it in that queue is."""
    return (message.kept or queue.keeps_all) and queue.durable


def none_is_durable(messages: list[Message], queue: Queue) -> bool:
    """Whether references to all of them in that queue are not."""
    return not queue.durable or not (queue.keeps_all or True in [message.kept for message in messages])


class MessageReference:
    """One message in one queue. ``sequence`` is its place: queue order within its priority."""

    __slots__ = (
        "cause",
        "consumer",
        "counted",
        "delivered_at_ms",
        "delivery_count",
        "dispatched",
        "dispatched_at_ms",
        "due_at_ms",
        "durable",
        "entered_at_ms",
        "expires_at_ms",
        "failed",
        "hops",
        "message",
        "park_reason",
        "priority",
        "queue",
        "redrive",
        "sequence",
        "shared",
        "suspect",
        "tag",
        "transaction",
        "where",
    )

    def __init__(self, message: Message, queue: Queue, sequence: int, now_ms: int, shared: bool = False) -> None:
        # From here to entered_at_ms nothing changes once it is recorded: its record may be made of it later (journal.contract.Arrival).
        #: It came together with others of its message, and the body was recorded apart from them.
        self.shared = shared
        self.message = message
        self.queue = queue
        self.sequence = sequence
        priority = message.priority
        if not queue.lowest_priority <= priority <= queue.highest_priority:
            priority = queue.lowest_priority if priority < queue.lowest_priority else queue.highest_priority
        self.priority = priority
        #: It is on disk, or about to be, and survives a crash.
        self.durable = message.kept and queue.durable
        self.expires_at_ms: int | None = message.expires_at_ms
        self.entered_at_ms = now_ms
        self.due_at_ms: int | None = None
        self.delivery_count: int = 0
        self.failed = 0
        self.dispatched = 0
        self.hops: list[Hop] | None = None
        self.suspect = False
        #: Why it is in trouble, and the job that sent it back (journal.contract.ReferenceRecord); 0: it is not, none did.
        self.cause = 0
        self.redrive = 0
        #: Parked: why it was to be dead-lettered and could not be; "" otherwise.
        self.park_reason: Death | Literal[""] = ""
        self.where = IN_COMMIT
        self.consumer: Consumer | None = None
        self.tag = 0
        self.dispatched_at_ms = 0
        self.delivered_at_ms: int | None = None
        #: This delivery is in delivery_count already (persist-delivery-count-before-delivery).
        self.counted = False
        #: Acknowledged in a transaction that has not committed yet.
        self.transaction: object | None = None

    def __lt__(self, other: MessageReference) -> bool:
        return self.sequence < other.sequence

    def __hash__(self) -> int:
        """Equal only to itself; said because a class that can be compared has no hash of its own once it is compiled."""
        return id(self)

    @property
    def in_memory_only(self) -> bool:
        """Whether it stands on no page of the journal, and is gone with the process."""
        return not self.durable

    @property
    def trouble(self) -> Trouble:
        return Trouble(self.cause, self.redrive)

    @property
    def on_hold(self) -> bool:
        """Whether it waits until it is released."""
        return self.due_at_ms == ON_HOLD_MS

    @property
    def is_dead(self) -> bool:
        """Whether it is a dead letter in its queue, and not back where it came from."""
        return bool(self.hops) and self.cause & DEATH_BITS > 0

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def now_or_never(self) -> bool:
        """A time to live of 0: a consumer that waits for it when it comes may have it, as with RabbitMQ; else the next sweep takes it."""
        return self.expires_at_ms is not None and self.expires_at_ms <= self.entered_at_ms and not self.dispatched

    def visible_properties(self) -> Properties | None:
        """The message's properties with the overlay of its last death on top; None when there are none."""
        properties = self.message.properties
        if properties is not None and AMQP_ORIGIN in properties:
            properties = {name: value for name, value in properties.items() if name != AMQP_ORIGIN} or None
        if not self.hops:
            return properties
        return {**(properties or {}), **overlay(self.hops, self.message.message_id)}

    def lookup(self) -> Lookup:
        """What a selector sees of this message in this queue."""
        return lookup(self.message, self.hops, self)


def lookup(message: Message, hops: list[Hop] | None = None, reference: MessageReference | None = None) -> Lookup:
    """What a selector sees: the overlay of ``hops``, the properties, JMS header names; None for what is not there."""
    properties, latest = message.properties or _NOTHING, _latest(hops, message.message_id) if hops else _NOTHING

    def value(name: str) -> PropertyValue:
        if name in latest:
            return latest[name]
        if name in properties:
            return properties[name]
        if name == HOPS and hops:
            return _as_text(hops, message.message_id)
        if name in _MESSAGE_HEADERS:
            return _MESSAGE_HEADERS[name](message)
        if reference is not None and name in _REFERENCE_HEADERS:
            return _REFERENCE_HEADERS[name](reference)
        return None

    return value


def overlay(hops: list[Hop], message_id: int) -> Properties:
    """Artemis's provenance properties, from the latest hop; plus the reason and all hops, newest first, as JSON."""
    return {**_latest(hops, message_id), HOPS: _as_text(hops, message_id)}


def describe_hops(hops: list[Hop], message_id: int) -> list[DescribedHop]:
    """The hops of a message as they are shown."""
    return [{**hop.detail, "message_id": message_id, "sequence": hop.sequence} for hop in hops]


def _as_text(hops: list[Hop], message_id: int) -> str:
    return json.dumps(describe_hops(hops, message_id), separators=(",", ":"), default=lambda key: {"base64": b64encode(key).decode()})


def _latest(hops: list[Hop], message_id: int) -> Properties:
    latest = hops[0].detail
    properties: Properties = {
        "_AMQ_ORIG_ADDRESS": latest["address"],
        "_AMQ_ORIG_QUEUE": latest["queue"],
        "_AMQ_ORIG_MESSAGE_ID": message_id,
        "_AMQ_ORIG_ROUTING_TYPE": latest["routing_type"],
        "_HOMING_REASON": latest["reason"],
    }
    if latest.get("shared_queue") is not None:
        properties[SHARED_QUEUE] = latest["shared_queue"]
    if latest.get("expires_at_ms") is not None:
        properties["_AMQ_ACTUAL_EXPIRY"] = latest["expires_at_ms"]
    return properties


_NOTHING: Final[Properties] = {}
_MESSAGE_HEADERS: Final[dict[str, Callable[[Message], PropertyValue]]] = {
    "JMSPriority": lambda message: message.priority,
    "JMSTimestamp": lambda message: message.sent_at_ms,
    "JMSMessageID": lambda message: str(message.message_id),
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.durable else "NON_PERSISTENT",
    "JMSDestination": lambda message: message.address,
    "AMQPriority": lambda message: message.priority,
    "AMQTimestamp": lambda message: message.sent_at_ms,
    "AMQDurable": lambda message: "DURABLE" if message.durable else "NON_DURABLE",
    "AMQSize": lambda message: message.size,
    "AMQAddress": lambda message: message.address,
}
_REFERENCE_HEADERS: Final[dict[str, Callable[[MessageReference], PropertyValue]]] = {
    "JMSExpiration": lambda reference: reference.expires_at_ms or 0,
    "AMQExpiration": lambda reference: reference.expires_at_ms or 0,
    "JMSXDeliveryCount": lambda reference: reference.delivery_count + 1,
    "JMSRedelivered": lambda reference: reference.delivery_count > 0,
}
