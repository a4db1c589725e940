"""What there is: queues, who consumes, who is connected, exchanges, virtual hosts; and all of it in figures."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from .parts import Client, Ms, Properties, Said, Waiting


class States(TypedDict):
    """How many messages stand somewhere now, by state."""

    pending: int
    delivering: int
    scheduled: int
    on_hold: int
    parked: int


class Counted(TypedDict):
    """What became of messages since the broker started, and how many a second of late."""

    sent: int
    moved_in: int
    delivered: int
    succeeded: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    dropped: int
    purged: int
    moved_out: int
    edited: int
    rates: dict[str, float]


class BriefQueue(States):
    """As who makes or pauses it is answered."""

    queue: str
    name: str
    queue_id: int
    virtual_host: str
    address: str
    routing_type: str
    selector: str | None
    durable: bool
    auto_created: bool
    paused: bool
    options: Properties
    ignored_arguments: list[str]
    messages: int
    dead: int
    suspects: int
    pending_bytes: int
    memory_bytes: int
    consumers: int
    slow_consumers: int
    created_at_ms: Ms
    dead_letter_address: str | None
    owner: str | None
    runbook: str | None
    policy: str | None
    effective_policy_definition: Properties


class Queue(BriefQueue, Counted):
    blocked: Annotated[str | None, Said("Why it takes nothing more for now.")]


class Counts(TypedDict):
    now_ms: Ms
    since_ms: Ms
    width_minutes: int
    parts: Annotated[list[dict[str, int]], Said("Those in which something was; `at_ms`: when each begins.")]


class Consumer(Client):
    consumer: str
    connection: str
    protocol: str | None
    consumer_tag: str | None
    blocked: Annotated[str | None, Said("Why it is given nothing whatever waits.")]
    queue: str
    prefetch: int
    credit: int
    priority: Annotated[int, Said("Of the consumers of its queue that want messages the higher ones are served first.")]
    sends: Annotated[Literal["persistent", "transient", "both"] | None, Said("What is sent to its queue.")]
    queue_keeps: Annotated[Literal["all", "persistent", "none"], Said("What is on disk before it fails.")]
    settled_when_given: bool
    reports: Annotated[dict[str, int], Said("Of how many failures it told the reason: `before`, and `after_acknowledgement`.")]
    unsettled: int
    holds_since_ms: Ms | None
    held_bytes: int
    given: int
    selector: str | None
    slow: bool
    too_large: int
    ignored_arguments: list[str]
    redelivery_policy: Annotated[Properties | None, Said("Its own, as its client brought it; null: the settings of the queue hold.")]


class Connection(Client):
    """Sizes in bytes; ``memory_bytes``: all that is held for it."""

    connection: str
    protocol: str | None
    peer: str | None
    user: str
    virtual_host: str
    connected_at_ms: Ms
    producers: int
    consumers: int
    own_policies: Annotated[int, Said("Consumers that brought a redelivery policy.")]
    slow_consumers: int
    blocked: Annotated[Waiting | None, Said("How many of its producers wait; of the longest of these since when, and why.")]
    unsettled: int
    transactions: int
    held_bytes: int
    transaction_bytes: int
    unsent_bytes: int
    memory_bytes: int


class ClosedConnection(TypedDict):
    connection: str
    given_back: Annotated[int, Said("Messages that it held.")]


class Exchange(TypedDict):
    exchange: str
    virtual_host: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    alternate: str | None
    arguments: Properties
    bindings: int


class Binding(TypedDict):
    exchange: str
    destination: str
    is_queue: bool
    key: str
    arguments: Properties


class VirtualHost(TypedDict):
    name: str
    prefix: str
    queues: int
    messages: int
    connections: int


class RemovedVirtualHost(TypedDict):
    queues: int
    messages: int


class AllMessages(States, Counted):
    dead: int
    since_ms: Ms


class Level(TypedDict):
    """In bytes; ``limit`` None: there is none."""

    used: int
    limit: int | None


class Disk(TypedDict):
    free_bytes: int
    reserve_bytes: int
    low: bool
    waits_ms: int


class Open(TypedDict):
    queues: int
    connections: int
    producers: int
    consumers: int


class ProcessStatistics(TypedDict):
    """What the journal has done since the start, and what stands in memory and in files."""

    memory: dict[str, int]
    memory_bytes: int
    durable_bytes: int
    transient_bytes: int
    spilled_bytes: int
    failed_not_kept: int
    disk: Disk
    journal: Properties
    log_bytes: int | None
    events: dict[str, dict[str, int]]
    queues_staying: int
    slow_policies: NotRequired[list[str]]
    version: str


class Statistics(Open, ProcessStatistics):
    messages: AllMessages
    producers_wait: list[Waiting]
    limits: dict[str, Level]
