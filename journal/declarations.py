"""What is declared, as the journal keeps it and the broker has it. The journal stores it as it is, and only the export looks into some."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NotRequired, Required, TypeAlias, TypedDict

from .properties import PropertyValue

#: A table of AMQP's, with whatever keys a client wrote.
Table: TypeAlias = dict[str, Any]


class AmqpDeclaration(TypedDict, total=False):
    """How a queue was declared over AMQP."""

    arguments: Table
    durable: bool
    auto_delete: bool
    exclusive: bool


class QueueOptions(TypedDict, total=False):
    """What a queue was declared with: flags, and of the settings those that a declaration may name (DECLARABLE_SETTINGS), as they were
    written: a time or a size may be text with a unit."""

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


class ExchangeContent(TypedDict):
    kind: str
    auto_delete: bool
    internal: bool
    arguments: Table


class BindingContent(TypedDict):
    source: str
    to: str
    #: ``to`` is one, not an exchange.
    queue: bool
    #: Bytes: one that is not UTF-8.
    key: str | bytes
    arguments: Table
    #: The same as AMQP writes them, where that tells types that ``arguments`` does not.
    fields: NotRequired[dict[str, bytes]]


class PolicyContent(TypedDict):
    """AMQP's."""

    name: str
    virtual_host: str
    pattern: str
    apply_to: str
    priority: int
    #: As the user wrote it, under RabbitMQ's keys; it is checked again when it is read.
    definition: dict[str, Any]


class GrantContent(TypedDict, total=False):
    """A grant as files and calls have it."""

    rights: Required[list[str]]
    pattern: str
    virtual_host: str
    keys: str


class UserContent(TypedDict):
    #: Of the password, argon2id.
    hash: str
    grants: list[GrantContent]
    #: From then on nobody comes in so.
    ends_ms: NotRequired[int]


class FilterContent(TypedDict, total=False):
    """Which dead letters are meant, as it was said: what is not in it does not matter."""

    fault: str
    error_type: str
    reason: str
    from_queue: str
    since_ms: int
    until_ms: int
    key: str
    amqp_message_id: str
    app_id: str
    message_ids: list[int]
    #: Of messages, which have what names they like.
    properties: dict[str, PropertyValue]
    where: str
    body_contains: bytes


JobState: TypeAlias = Literal["running", "paused", "done", "stopped", "cancelled"]


class RedriveContent(TypedDict):
    """A job: the fields of broker.core.redrive_job.RedriveJob."""

    job_id: int
    queue: str
    user: str
    target: str | None
    wanted: FilterContent
    rate: int
    limit: int
    newest_first: bool
    canary: int
    stop_above: int | None
    started_ms: int
    ended_ms: int | None
    state: JobState
    why: str
    after: int
    up_to: int
    sent: int
    left: int
    succeeded: int
    died: int
    gone: int
    bounced: int
    judged: int
    transient: int


class NoContent(TypedDict):
    """Of a virtual host, and of upkeep that is to be done: their names say it all."""


#: Setting -> value, of one address pattern, as a user set it. Which there are is for the broker to say, at each start anew: what it does
#: not know any more it leaves out.
SettingsLayer = dict[str, Any]

Content = ExchangeContent | BindingContent | PolicyContent | UserContent | RedriveContent | NoContent | SettingsLayer


class DeclarationRecord(NamedTuple):
    """Something a front end declared that is neither address nor queue. ``name`` is unique within ``kind``."""

    #: exchange | binding (of a virtual host: with its name) | policy | virtual-host | user | settings | redrive | upkeep
    kind: str
    name: str
    #: Of ``kind``'s own shape.
    content: Content
