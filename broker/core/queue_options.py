"""What a queue is declared with, natively or over AMQP 0-9-1."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

#: A table of AMQP's, with whatever keys a client wrote.
Table: TypeAlias = dict[str, Any]


class AmqpDeclaration(TypedDict, total=False):
    """How a queue was declared over AMQP."""

    arguments: Table
    durable: bool
    auto_delete: bool
    exclusive: bool


class QueueOptions(TypedDict, total=False):
    """Flags, and of the settings those that a declaration may name (DECLARABLE_SETTINGS), as they were written: a time or a size may be
    text with a unit. They are stored as they are (as in journal.declarations).
    """

    exclusive: bool
    max_consumers: int
    consumer_timeout_ms: int | str
    dead_letter_address: str
    expires_ms: int | str
    expiry_address: str
    max_delivery_attempts: int
    max_length: int
    max_length_bytes: int | str
    message_ttl_ms: int | str
    overflow: str
    redelivery_delay_ms: int | str
    amqp: AmqpDeclaration
