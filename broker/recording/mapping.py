"""Rows of the journal as the messages they were."""

from __future__ import annotations

from typing import Final

from homing.journal.contract import MessageRecord, ReferenceState

from ..core.message import Message
from ..properties import extra_of, size_of

_SUSPECT: Final = int(ReferenceState.SUSPECT)


def message_of(record: MessageRecord) -> Message:
    message_id, address, body, properties, priority, sent_at_ms, expires_at_ms, producer = record
    size = size_of(properties) if properties else 0
    extra = extra_of(properties, size) if properties else 0
    return Message(
        message_id, address, body, properties, priority, True, sent_at_ms, expires_at_ms, producer, properties_size=size, extra=extra
    )


def size_on_disk(record: MessageRecord) -> int:
    """The ``size`` that the message has in memory."""
    return len(record.body) + size_of(record.properties)
