"""What holds, who may do what, and what is kept in files."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from .parts import Ms, Properties, Said, Waiting


class Setting(TypedDict):
    """Of an address, and where it comes from; ``covers``: what the file says under the same pattern."""

    key: str
    value: object
    pattern: str
    line: int | None
    by_command: bool
    covers: Properties | None


class Explained(TypedDict):
    address: str
    queues: list[str] | None
    amqp_returns_at_once: bool
    dead_letter_queues: list[str]
    dead_letter_exchange: str | None
    dead_letter_routing_key: str | None
    settings: list[Setting]


class SetOfPattern(TypedDict):
    pattern: str
    settings: Properties


class TouchedQueue(TypedDict):
    """``changes``: by setting, before and after."""

    queue: str
    changes: dict[str, list[object]]


class ChangedSettings(TypedDict):
    dry_run: bool
    set: Annotated[dict[str, Properties], Said("By pattern, what commands have set then.")]
    queues: Annotated[int, Said("For how many something else holds.")]
    touched: list[TouchedQueue]
    warnings: list[str]


class PreviewRow(TypedDict):
    """``then``, ``now``: how many by what was decided, or would be; ``rule_then``, ``rule``: which had a say."""

    queue: str
    fault: str | None
    error_class: str
    text: str
    failures: int
    then: dict[str, int]
    rule_then: str | None
    now: dict[str, int]
    rule: str | None
    min_delay_ms: int | None
    max_delay_ms: int | None


class PreviewedSettings(TypedDict):
    since_ms: Ms
    failures: int
    rows: list[PreviewRow]
    more_rows: int
    whole: bool
    header_rules: list[str]


class Policy(TypedDict):
    name: str
    virtual_host: str
    pattern: str
    apply_to: str
    priority: int
    definition: Properties
    source: Literal["broker.yaml", "command"]
    slow: NotRequired[Annotated[bool, Said("Its pattern ran out of time on some name, and does not hold there.")]]


class Granted(TypedDict):
    rights: list[str]
    pattern: NotRequired[str]
    virtual_host: NotRequired[str]
    keys: NotRequired[str]


class User(TypedDict):
    name: str
    grants: list[Granted]
    source: Literal["broker.yaml", "command"]
    ends_ms: NotRequired[Ms]


class BrokerEvent(TypedDict):
    """What else there is goes by the event (docs/operations.md)."""

    number: int
    event: str
    time: str
    meaning: NotRequired[str]
    command: NotRequired[str]
    queue: NotRequired[str]
    fault: NotRequired[str]
    redrive: NotRequired[int]
    dead_in: NotRequired[str]


class Backup(TypedDict):
    path: str
    broker_id: str
    commits: int
    messages: int
    bytes: int


class Export(TypedDict):
    state: Literal["none", "running", "done", "failed"]
    name: str | None
    started_ms: Ms | None
    ended_ms: Ms | None
    table: Annotated[str | None, Said("What it is at.")]
    rows: Annotated[int, Said("Of that table so far; in the end of all.")]
    bytes: Annotated[int | None, Said("Of the file.")]
    why: Annotated[str | None, Said("It has failed.")]
    fix: str | None


class Report(TypedDict):
    name: str
    at_ms: Ms
    bytes: int


class Reports(TypedDict):
    directory: Annotated[str, Said("Where they stand, on the broker's machine.")]
    items: list[Report]


class Part(TypedDict):
    """Of a file; ``bytes``: how many there are in all."""

    data: bytes
    bytes: int
    next: int | None


class OutcomeOfTransaction(TypedDict):
    outcome: Literal["committed", "unknown"]


class ChangedValue(TypedDict):
    """Of the configuration; ``path``: of field names, dotted."""

    path: str
    before: object
    after: object
    needs_restart: bool


class Reloaded(TypedDict):
    changed: list[ChangedValue]


class ClusterHealth(TypedDict):
    """Who leads, None: nobody; how many entries of the log the node lacks, and for how long; ``hindrance``: why it had better not lead."""

    leader: str | None
    behind: int
    behind_ms: int
    hindrance: str | None


class Health(TypedDict):
    """``producers_wait``: None where whoever asks may not know. ``cluster``: of a node of one."""

    state: str
    degraded: list[str]
    producers_wait: list[Waiting] | None
    cluster: NotRequired[ClusterHealth]
