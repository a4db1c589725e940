"""One message: its life, why it is not delivered now, and what was done with it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, Required

from typing_extensions import TypedDict

from .failures import Awaited, Hop
from .parts import ErrorOfFault, Ms, Properties, Said

#: How an entry ended.
Ending = Literal["succeeded", "dead-lettered", "expired", "dropped", "purged", "redriven", "moved", "edited"]


class Failure(TypedDict, total=False):
    """What one looked like, redacted and capped; ``bases``: of the error's class; ``exit_status``: of a program run for the message."""

    reason: str
    task: str
    error_type: str
    bases: list[str]
    error_text: str
    traceback: str
    exit_status: int
    fingerprint: str


class Attempt(TypedDict):
    message_id: int
    sequence: int
    attempt: int
    queue_id: int
    queue: str | None
    at_ms: Ms
    original_address: NotRequired[str]
    outcome: str
    consumer: NotRequired[str]
    connection: NotRequired[str]
    assigned_at_ms: NotRequired[Ms]
    given_at_ms: NotRequired[Ms | None]
    delivery_count: NotRequired[int]
    failed: NotRequired[int]
    delay_ms: int | None
    due_at_ms: Ms | None
    decision: Literal["redeliver", "dead-letter", "drop"]
    policy: NotRequired[str]
    consumer_policy: NotRequired[Annotated[Properties | None, Said("The one that its consumer brought; null: the settings held.")]]
    fault: Failure | None
    message_key: NotRequired[str | None]
    client: NotRequired[dict[str, str] | None]
    producer: NotRequired[str | None]
    home: NotRequired[str | None]
    rule: NotRequired[str | None]


class RefusedAttempt(TypedDict):
    """In a queue where nothing of it may be known without that right."""

    queue: str | None
    refused: str


class Outcome(TypedDict):
    sequence: int
    queue_id: NotRequired[int]
    queue: str | None
    at_ms: Ms
    outcome: Ending
    sent_at_ms: NotRequired[Ms]
    entered_at_ms: NotRequired[Ms]
    address: NotRequired[str | None]
    attempts: NotRequired[int]
    delivery_count: NotRequired[int]
    reason: NotRequired[str | None]
    target_queues: NotRequired[list[str]]


class Entry(TypedDict):
    """Where it is now."""

    sequence: int
    queue_id: int
    queue: str
    priority: int
    delivery_count: int
    failed: int
    assigned: int
    state: Annotated[int, Said("1: parked; 2: suspect.")]
    due_at_ms: Ms | None
    on_hold: bool
    expires_at_ms: Ms | None
    entered_at_ms: Ms
    redrive: Annotated[int | None, Said("The job that sent it back.")]
    hops: list[Hop]
    transient: bool
    fault: NotRequired[ErrorOfFault | None]
    refused: NotRequired[str | None]


class Edited(TypedDict):
    """It was made of ``original``."""

    message_id: int
    original: int
    queue: str | None
    at_ms: Ms


class KeptBodiless(TypedDict):
    address: str
    properties: Properties | None
    priority: int
    sent_at_ms: Ms
    expires_at_ms: Ms | None
    producer: str | None


class KeptMessage(KeptBodiless):
    body: bytes


class Records(TypedDict):
    """What is on record of one message, each part oldest first."""

    message_id: int
    references: list[Entry]
    attempts: list[Attempt]
    outcomes: list[Outcome]
    edits: list[Edited]


class History(Records):
    """``message``: None once it has left every queue."""

    message: KeptMessage | None


class Histories(TypedDict):
    histories: list[History]
    looked_at: int
    next: int | None


class Reason(TypedDict, total=False):
    """One thing that keeps a message from being delivered; what else is told goes by the ``code``."""

    code: Required[str]
    at_ms: Ms | None
    reason: str
    exchange: str | None
    address: str | None
    its_own: bool
    consumer: str | None
    connection: str | None
    user: str | None
    since_ms: Ms | None
    given_at_ms: Ms | None
    in_transaction: bool
    own_policy: Annotated[bool, Said("Its consumer brought a redelivery policy.")]
    waits_for: Awaited | None
    messages: int
    at_least: bool
    first: int | None
    prefetch: int
    unsettled: int
    selector: str | None
    slow: bool


class Standing(TypedDict):
    queue: str
    address: str
    state: str
    transient: bool
    entered_at_ms: Ms
    failed: int
    delivery_count: int
    died: Annotated[Properties | None, Said("How it was dead-lettered last.")]
    reasons: list[Reason]


class Why(TypedDict):
    message_id: int
    places: list[Standing]
    ended: Outcome | None


class DeletedMessage(TypedDict):
    message_id: int
    messages: int
    queues: list[str]


class MovedMessage(TypedDict):
    message_id: int
    source: str
    queue: str


class EditOfMessage(TypedDict):
    """``edited``: the number of what takes its place; None: it was not edited, for this ``code``, ``message`` and ``fix``."""

    message_id: int
    edited: int | None
    code: NotRequired[str]
    message: NotRequired[str]
    fix: NotRequired[str]


class Edits(TypedDict):
    edits: list[EditOfMessage]


class RuleOf(TypedDict):
    name: str
    action: str


class Source(TypedDict):
    """Where a dead letter would be sent back to, and how it would fare there. ``life_ms``: at least and at most, None: without end;
    ``rule``: for such failures."""

    lies_in: str
    queue: str
    address: str
    attempts: NotRequired[int | None]
    life_ms: NotRequired[tuple[int, int] | None]
    rule: NotRequired[RuleOf | None]
    chances: NotRequired[str]
