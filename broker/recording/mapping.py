"""Messages and references as the journal's records, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from homing.journal.contract import DEATHS, Death, MessageRecord, ReferenceRecord, ReferenceState, make

from ..core.message import PARKED, Message, MessageReference, Properties
from ..properties import measured

_MAX_KEY_CHARS: Final = 256
#: Place of a park reason in the state's upper bits.
PARK_REASONS: Final = DEATHS
PARK_REASON_SHIFT: Final = 2


def state_bits(reference: MessageReference) -> int:
    """The ``state`` column: parked, suspect, and why a parked one was to be dead-lettered."""
    if not reference.suspect and reference.where is not PARKED and not reference.park_reason:
        return 0
    parked = ReferenceState.PARKED if reference.where is PARKED else 0
    suspect = ReferenceState.SUSPECT if reference.suspect else 0
    return int(parked | suspect) | PARK_REASONS.index(reference.park_reason) << PARK_REASON_SHIFT


def park_reason(state: int) -> Death | Literal[""]:
    """The inverse: why a parked reference was to be dead-lettered."""
    return PARK_REASONS[state >> PARK_REASON_SHIFT]


def home_of(reference: MessageReference) -> str | None:
    """The queue that the message was dead-lettered from first, unless it is there."""
    if not reference.hops:
        return None
    home: str = reference.hops[-1].detail["queue"]
    return None if home == reference.queue.name else home


def message_key(reference: MessageReference) -> str | None:
    """What the property that ``message-key-property`` names says. Cut short: it is kept with each attempt."""
    return key_in(reference.message.properties, reference.queue.settings.message_key_property)


def key_in(properties: Properties | None, name: str | None) -> str | None:
    """What property ``name`` says, cut short; None: nothing that may be a key."""
    value = properties.get(name) if name and properties else None
    if value is None:
        return None
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:_MAX_KEY_CHARS]


def message_record(message: Message) -> MessageRecord:
    values = (
        message.message_id,
        message.address,
        message.body,
        message.properties,
        message.priority,
        message.sent_at_ms,
        message.expires_at_ms,
        message.producer,
        message.durable,
    )
    return make(MessageRecord, values)


def arrival_record(reference: MessageReference, messages: Mapping[int, MessageRecord]) -> ReferenceRecord:
    """As it came: what has become of it since then is recorded apart. Called on the writer's thread. ``messages``: records of shared ones
    that are there already.
    """
    message = messages.get(reference.message.message_id) if reference.shared else None
    values = (
        reference.queue.queue_id,
        reference.priority,
        reference.sequence,
        0,
        0,
        0,
        0,
        None,
        reference.expires_at_ms,
        0,
        0,
        reference.entered_at_ms,
        None,
        message or message_record(reference.message),
        reference.shared,
        False,
    )
    return make(ReferenceRecord, values)


def reference_record(reference: MessageReference, message: MessageRecord) -> ReferenceRecord:
    values = (
        reference.queue.queue_id,
        reference.priority,
        reference.sequence,
        reference.delivery_count,
        reference.failed,
        reference.dispatched,
        state_bits(reference),
        reference.due_at_ms,
        reference.expires_at_ms,
        reference.cause,
        reference.redrive,
        reference.entered_at_ms,
        reference.hops,
        message,
        reference.message.shared,
        False,
    )
    return make(ReferenceRecord, values)


def message_of(record: MessageRecord) -> Message:
    message_id, address, body, properties, priority, sent_at_ms, expires_at_ms, producer, durable = record
    size, extra = measured(properties)
    return Message(
        message_id, address, body, properties, priority, durable, sent_at_ms, expires_at_ms, producer, properties_size=size, extra=extra
    )
