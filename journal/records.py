"""What goes into the journal and comes out of it. Plain records; nothing here knows the broker.

Times are broker milliseconds since 1970 UTC. ``sequence`` names one message's stay in one queue and is unique over the
whole journal; together with the priority it is also the order within the queue.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any, NamedTuple

PropertyValue = str | int | float | bool | bytes | None
Properties = dict[str, PropertyValue]


class ReferenceState(IntFlag):
    """Bits of ``reference.state``."""

    READY = 0
    PARKED = 1
    SUSPECT = 2


class MessageRecord(NamedTuple):
    """A message as it was sent; it never changes afterwards."""

    message_id: int
    address: str
    body: bytes
    properties: Properties | None
    priority: int
    sent_at_ms: int
    expires_at_ms: int | None
    #: client_id/producer of the sender, "" where unknown.
    producer: str


class ReferenceRecord(NamedTuple):
    """One message in one queue, with everything that must survive a crash."""

    queue_id: int
    priority: int
    sequence: int
    delivery_count: int
    failed: int
    assigned: int
    state: int
    due_at_ms: int | None
    expires_at_ms: int | None
    entered_at_ms: int
    #: Hops, newest first, each a map (see broker.core.dead_letter); None before the first move.
    hops: list[dict[str, Any]] | None
    message: MessageRecord
    #: The message stands in a row of its own because several references share it.
    shared: bool


class ReferenceChange(NamedTuple):
    """The changed part of a reference that is on disk already: counts, due time and state, set in place."""

    queue_id: int
    priority: int
    sequence: int
    delivery_count: int
    failed: int
    assigned: int
    state: int
    due_at_ms: int | None
    expires_at_ms: int | None


class QueueRecord(NamedTuple):
    queue_id: int
    name: str
    address: str
    routing_type: str
    selector: str | None
    durable: bool
    auto_created: bool
    paused: bool
    options: dict[str, Any]
    created_at_ms: int
    deleted_at_ms: int | None = None


class AddressRecord(NamedTuple):
    name: str
    routing_types: int
    auto_created: bool
    created_at_ms: int


class AttemptRecord(NamedTuple):
    """One delivery that ended badly. ``fault`` carries error_type, error_text, reason, traceback, fingerprint where known."""

    message_id: int
    sequence: int
    attempt: int
    queue_id: int
    at_ms: int
    original_address: str
    #: nack | listener | recover | rollback | poison | connection-lost | timeout | error | expired
    outcome: str
    consumer: str
    connection: str
    assigned_at_ms: int
    given_at_ms: int | None
    delivery_count: int
    failed: int
    delay_ms: int | None
    due_at_ms: int | None
    #: What was decided: redeliver | dead-letter
    decision: str
    #: Short hash of the policy in force, see PolicyRecord.
    policy: str
    fault: dict[str, Any] | None


class OutcomeRecord(NamedTuple):
    """How a stay in a queue ended. ``detail`` carries address, sent_at_ms, entered_at_ms, attempts, delivery_count, reason, target queues."""

    message_id: int
    sequence: int
    queue_id: int
    at_ms: int
    #: succeeded | dead-lettered | expired | dropped | purged | redriven
    outcome: str
    detail: dict[str, Any]


class PolicyRecord(NamedTuple):
    policy: str
    from_ms: int
    settings: dict[str, Any]


class Recovered(NamedTuple):
    """Everything a broker needs to go on after a stop of any kind."""

    broker_id: str
    clean_stop: bool
    clock_ms: int
    addresses: list[AddressRecord]
    #: Live queues only.
    queues: list[QueueRecord]
    next_queue_id: int
    #: In (queue, priority, sequence) order.
    references: list[ReferenceRecord]
    #: producer -> (mark, at_ms)
    producers: dict[str, tuple[int, int]]
    #: address -> duplicate ids, oldest first
    duplicates: dict[str, list[str]]
    committed: dict[str, int]
