"""What is answered, as models. They are open: a newer broker tells more."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel

Ms = Annotated[int, Field(description="Milliseconds since 1970.")]
#: A text; or what is none, as base64.
Body = Annotated[str | dict[str, str], Field(description='The text; what is not UTF-8 is {"base64": …}.')]


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class LeftOut(Answer):
    queues: int
    right: str


class ErrorOfFault(Answer):
    fault: str
    error_class: str
    text: str


class Finding(Answer):
    level: Literal["stopped", "failing", "waiting", "note"]
    sentence: str
    since_ms: Ms | None
    page: Annotated[str | None, Field(description="Where the console shows it.")]
    command: str


class Overview(Answer):
    findings: list[Finding]
    untold: Annotated[list[str], Field(description="What the user may not see.")]
    looked_at_queues: bool


class Statistics(Answer):
    messages: dict[str, Any]
    queues: int
    connections: int
    producers: int
    consumers: int
    producers_wait: list[dict[str, Any]]
    limits: dict[str, Any]
    memory: dict[str, int]
    disk: dict[str, Any]
    journal: dict[str, Any]
    version: str


class Queue(Answer):
    queue: str
    address: str
    virtual_host: str
    durable: bool
    paused: bool
    messages: int
    pending: int
    delivering: int
    scheduled: int
    on_hold: int
    parked: int
    dead: int
    consumers: int
    rates: dict[str, float] | None = None


class Queues(Answer):
    items: list[Queue]
    next: str | None
    left_out: LeftOut | None = None


class Counts(Answer):
    now_ms: Ms
    since_ms: Ms
    width_minutes: int
    parts: Annotated[list[dict[str, int]], Field(description="Those in which something was; `at_ms`: when each begins.")]


class Entries(Answer):
    items: list[dict[str, Any]]
    next: str | None
    left_out: LeftOut | None = None


class DeadQueue(Answer):
    queue: str
    messages: int
    oldest_ms: Ms
    newest_ms: Ms
    faults: int
    top_fault: ErrorOfFault | None
    top_messages: int | None
    reasons: dict[str, int]
    sources: list[str] | None
    sent_back: int
    transient: int


class DeadQueues(Answer):
    items: list[DeadQueue]
    next: int | None
    left_out: LeftOut | None


class Death(Answer):
    reason: str
    queue: str
    address: str
    attempts: int
    died_at_ms: Ms
    fault: str | None
    error: str | None
    said: str | None


class Message(Answer):
    message_id: int
    address: str
    state: str
    body: Body
    properties: dict[str, JsonValue] | None
    priority: int
    durable: bool
    transient: bool
    sent_at_ms: Ms
    entered_at_ms: Ms
    failed: int
    delivery_count: int
    fault: ErrorOfFault | None
    dead_letter: Death | None


class MessagePage(Answer):
    messages: list[Message]
    looked_at: int
    next: int | None


class Done(Answer):
    messages: int
    looked_at: int
    next: int | list[int] | None


class Attempt(Answer):
    sequence: int
    attempt: int
    queue: str | None
    at_ms: Ms
    outcome: str
    decision: str
    delay_ms: int | None
    due_at_ms: Ms | None
    fault: dict[str, Any] | None


class Outcome(Answer):
    sequence: int
    queue: str | None
    at_ms: Ms
    outcome: str
    reason: str | None = None


class Event(Answer):
    at_ms: Ms | None
    title: str
    details: list[str]


class Source(Answer):
    lies_in: str
    queue: str
    address: str
    chances: str


class Life(Answer):
    message_id: int
    message: Annotated[dict[str, Any] | None, Field(description="null: it is gone, and its history is here for a while.")]
    references: list[dict[str, Any]]
    attempts: list[Attempt]
    outcomes: list[Outcome]
    edits: list[dict[str, Any]]
    life: list[Event]
    if_sent_back: list[Source]
    verdict: str | None


class Why(Answer):
    message_id: int
    places: list[dict[str, Any]]


class DeletedMessage(Answer):
    message_id: int
    messages: int
    queues: list[str]


class MovedMessage(Answer):
    message_id: int
    source: str
    queue: str


class EditedMessage(Answer):
    message_id: int
    edited: Annotated[int | None, Field(description="The number of what takes its place; null after a dry run.")]
    difference: Annotated[list[str], Field(description="Line by line, as diff shows it.")]


class FaultGroup(ErrorOfFault):
    queue: str | None
    first_ms: Ms
    last_ms: Ms
    failures: int
    last_hour: int
    last_day: int
    waiting: int
    dead: int
    dead_in: list[str]
    succeeded: int
    message_ids: list[int]
    programs: list[dict[str, Any]]
    muted: bool
    fixed_in: str | None
    regressed_ms: Ms | None


class FaultOfList(FaultGroup):
    hours: Annotated[list[int], Field(description="Failures of each of the last 24 hours.")]


class Faults(Answer):
    items: list[FaultOfList]
    next: int | None
    left_out: LeftOut | None = None


class Fault(ErrorOfFault):
    traceback: str | None
    hours: Annotated[list[int], Field(description="Failures of each of the last 24 hours.")]
    groups: list[FaultGroup]


class Muted(Answer):
    fault: str
    muted: bool


class SaidFixed(Answer):
    fault: str
    fixed_in: str | None


class Retried(Answer):
    queues: Annotated[dict[str, int], Field(description="How many messages of each queue are due now.")]


class Redrive(Answer):
    job_id: int
    queue: str
    state: Literal["running", "paused", "done", "stopped", "cancelled"]
    why: str | None
    sent: int
    succeeded: int
    waiting: int
    died: int
    gone: int
    bounced: int
    left: int
    started_ms: Ms
    ended_ms: Ms | None


class Redrives(Answer):
    items: list[Redrive]


class Doubt(Answer):
    code: str
    messages: int
    verdict: str
    why: str
    which: str


class RedrivePlan(Answer):
    queue: str
    messages: int
    exact: bool
    to: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    against: Annotated[list[Doubt], Field(description="What would bounce, wait or stay, and why.")]


class Retrying(Answer):
    items: list[dict[str, Any]]


class Due(Answer):
    now_ms: Ms
    due: list[dict[str, int]]
    on_hold: int


class BrokerEvent(Answer):
    number: int
    event: str
    time: str


class Events(Answer):
    items: list[BrokerEvent]
    next: int | None


class Explained(Answer):
    address: str
    queues: list[str] | None
    settings: list[dict[str, Any]]


class Removed(Answer):
    messages: int


class ClosedConnection(Answer):
    connection: str
    given_back: Annotated[int, Field(description="Messages that it held.")]


class ChangedSettings(Answer):
    dry_run: bool
    set: Annotated[dict[str, dict[str, Any]], Field(description="By pattern, what commands have set then.")]
    queues: Annotated[int, Field(description="For how many something else holds.")]
    touched: list[dict[str, Any]]
    warnings: list[str]


class PreviewedSettings(Answer):
    since_ms: Ms
    failures: int
    rows: list[dict[str, Any]]


class Policy(Answer):
    name: str
    virtual_host: str
    pattern: str
    apply_to: str
    priority: int
    definition: dict[str, Any]
    source: str


class Named(Answer):
    name: str


class User(Named):
    grants: list[dict[str, Any]]
    source: str
    ends_ms: Ms | None = None


class VirtualHost(Named):
    queues: int
    messages: int
    connections: int


class RemovedVirtualHost(Answer):
    queues: int
    messages: int


class Backup(Answer):
    path: str
    messages: int
    bytes: int


class Export(Answer):
    state: Annotated[str, Field(description="none, running, done or failed.")]
    name: str | None
    started_ms: Ms | None
    ended_ms: Ms | None
    table: Annotated[str | None, Field(description="What it is at.")]
    rows: Annotated[int, Field(description="Of that table so far; in the end of all.")]
    bytes: Annotated[int | None, Field(description="Of the file.")]
    why: Annotated[str | None, Field(description="It has failed.")]


class Report(Answer):
    name: str
    at_ms: Ms
    bytes: int


class Reports(Answer):
    directory: Annotated[str, Field(description="Where they stand, on the broker's machine.")]
    items: list[Report]


class File(RootModel[str]):
    """Bytes."""


class Problem(BaseModel):
    """RFC 9457; `code` is the broker's, and never changes its meaning."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str
