"""Rows of the journal as the messages they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homing.journal.contract import MessageRecord, ReferenceRecord, ReferenceState

from ..core.message import Hop, Message, MessageReference
from ..properties import size_of

if TYPE_CHECKING:
    from ..core.queue import Queue

_SUSPECT: Final = int(ReferenceState.SUSPECT)


def reference_of(queue: Queue, record: ReferenceRecord) -> MessageReference:
    """A row of the journal as it stood there, in no state and in no queue's contents yet."""
    _, priority, sequence, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms, entered_at_ms, hops, message, _ = record
    reference = MessageReference(message_of(message), queue, sequence, entered_at_ms)
    reference.priority = min(priority, len(queue.pending.on_disk) - 1)
    reference.delivery_count = delivery_count
    reference.failed = failed
    reference.assigned = assigned
    reference.due_at_ms = due_at_ms
    reference.expires_at_ms = expires_at_ms
    reference.hops = None if hops is None else [Hop(*hop) for hop in hops]
    reference.suspect = state & _SUSPECT != 0
    return reference


def message_of(record: MessageRecord) -> Message:
    message_id, address, body, properties, priority, sent_at_ms, expires_at_ms, producer = record
    message = Message(message_id, address, body, properties, priority, True, sent_at_ms, expires_at_ms, producer)
    if properties:
        message.size += size_of(properties)
    return message
