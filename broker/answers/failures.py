"""What failed: faults, what waits to be tried again, dead letters, and what sends them back."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from .parts import ErrorOfFault, LeftOut, Ms, Properties, Said


class Hop(TypedDict):
    """How an entry of a message in a queue ended; those after it are in ``hops`` before it."""

    reason: str
    queue: str
    address: str
    routing_type: str
    at_ms: Ms
    attempts: int
    delivery_count: int
    expires_at_ms: Ms | None
    message_id: int
    sequence: int


class BodilessMessage(TypedDict):
    message_id: int
    amqp_message_id: str | None
    app_id: str | None
    address: str
    state: str
    properties: Properties
    priority: int
    durable: bool
    transient: bool
    sent_at_ms: Ms
    entered_at_ms: Ms
    expires_at_ms: Ms | None
    due_at_ms: Ms | None
    failed: int
    delivery_count: int
    assigned: int
    suspect: bool
    hops: list[Hop]
    fault: NotRequired[Annotated[ErrorOfFault | None, Said("What it failed of.")]]
    refused: NotRequired[Annotated[str | None, Said("The right without which that is not told.")]]
    signed_by: NotRequired[list[str]]


class Message(BodilessMessage):
    body: NotRequired[bytes]


class Messages(TypedDict):
    messages: list[Message]
    looked_at: NotRequired[int]
    next: object


class Done(TypedDict):
    messages: int
    looked_at: int
    next: int | list[int] | None


class Retried(Done):
    """``on_hold``: how many of the queue were so before."""

    on_hold: int


class Awaited(TypedDict):
    """What a suspect waits for: a connection, how much of the queue its consumers hold, and whether that is a suspect."""

    connection: str
    unsettled: int
    has_suspect: bool


class RetryingMessage(Message):
    sequence: int
    attempts_allowed: int | None
    attempts_allowed_by_rule: dict[str, int | None]
    waits_for: Awaited | None


class RetryingMessages(TypedDict):
    messages: list[RetryingMessage]
    looked_at: int
    next: list[int] | None


class RepeatedSend(TypedDict):
    """What waits of one send that is to come again: ``message_id`` is the next, due at ``due_at_ms``."""

    job: Annotated[str, Said("The property scheduledJobId of all of them.")]
    period_ms: int
    messages: int
    message_id: int
    due_at_ms: Ms


class RepeatedSends(TypedDict):
    repeated: list[RepeatedSend]
    looked_at: int
    next: list[int] | None


class FaultOfQueue(ErrorOfFault):
    waiting: int


class RetryingQueue(TypedDict):
    queue: str
    scheduled: int
    on_hold: int
    suspects: int
    first_ms: Ms | None
    last_ms: Ms | None
    faults: list[FaultOfQueue]


class DueRow(TypedDict):
    from_ms: Ms
    until_ms: Ms
    messages: int


class Due(TypedDict):
    now_ms: Ms
    due: list[DueRow]
    on_hold: int
    left_out: LeftOut | None


class DeadQueue(TypedDict):
    queue: str
    messages: int
    oldest_ms: Ms
    newest_ms: Ms
    faults: int
    top_fault: ErrorOfFault | None
    top_messages: int
    reasons: dict[str, int]
    sources: list[str]
    refused: Annotated[str | None, Said("The right without which not all of them are told.")]
    owners: list[str]
    runbooks: list[str]
    sent_back: int
    transient: int


class Program(TypedDict):
    """Who met a fault."""

    client_id: str
    host: str
    version: str
    first_ms: Ms
    last_ms: Ms


class FaultGroup(ErrorOfFault):
    queue: str
    first_ms: Ms
    last_ms: Ms
    failures: int
    last_hour: int
    last_day: int
    waiting: int
    dead: int
    transient: int
    dead_in: list[str]
    succeeded: int
    died: int
    redriven: int
    back_succeeded: int
    back_died: int
    message_ids: list[int]
    programs: list[Program]
    muted: bool
    fixed_in: str | None
    fixed_ms: Ms | None
    regressed_ms: Ms | None


class FaultOfList(FaultGroup):
    hours: Annotated[list[int], Said("Failures of each of the last 24 hours.")]


class Fault(ErrorOfFault):
    traceback: str | None
    hours: Annotated[list[int], Said("Failures of each of the last 24 hours.")]
    groups: list[FaultGroup]


class Muted(TypedDict):
    fault: str
    muted: bool


class SaidFixed(TypedDict):
    fault: str
    fixed_in: str | None


class Redrive(TypedDict):
    job_id: int
    queue: str
    user: str
    target: str | None
    wanted: Annotated[Properties, Said("Its filter.")]
    rate: int
    limit: int
    newest_first: bool
    canary: int
    stop_above: int | None
    state: Literal["running", "paused", "done", "stopped", "cancelled"]
    why: str
    sent: int
    sent_per_s: float
    succeeded: int
    waiting: int
    transient: int
    died: int
    gone: int
    bounced: int
    left: int
    started_ms: Ms
    ended_ms: Ms | None
    waits_for: Annotated[str, Said("The queue in which it waits for room.")]


class PlannedPart(TypedDict):
    """Of those of the fault that were sent back before, what became of them; ``least``, ``most``: of these so many will succeed."""

    queue: str | None
    fault: str | None
    messages: int
    back_succeeded: int
    back_died: int
    least: int | None
    most: int | None


class Sample(TypedDict):
    message_id: int
    died_in: str | None
    to: str
    reason: str | None
    fault: str | None
    transient: bool
    entered_at_ms: Ms


class Drop(TypedDict):
    code: str
    messages: int


class Bounce(Drop):
    queue: str | None
    fault: str | None


class RedrivePlan(TypedDict):
    queue: str
    messages: int
    transient: int
    exact: bool
    to: list[PlannedPart]
    samples: list[Sample]
    drops: list[Drop]
    would_bounce: list[Bounce]
