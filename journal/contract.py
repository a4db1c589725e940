"""What goes into the journal and comes out of it. Plain records; nothing here knows the broker.

Times are broker milliseconds since 1970 UTC. ``sequence`` names one message's queue entry and is unique over the
whole journal; together with the priority it is also the order within the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, Final, Literal, NamedTuple, NotRequired, Protocol, TypeAlias, TypedDict, TypeVar, cast

from .declarations import DeclarationRecord, QueueOptions
from .properties import Properties, weight_of

Record = TypeVar("Record")


class _Make(Protocol):
    def __call__(self, record: type[Record], fields: Sequence[Any], /) -> Record: ...


#: A record (named tuple) from all its fields in their order: half the time of calling its class, where that is done for every message.
make: Final = cast(_Make, tuple.__new__)


#: What follows from a failure.
Decision: TypeAlias = Literal["redeliver", "dead-letter", "drop"]
#: How a delivery ended that failed.
AttemptOutcome: TypeAlias = Literal[
    "nack",
    "listener",
    "recover",
    "rollback",
    "error",
    "poison",
    "rejected",
    "connection-lost",
    "closed",
    "timeout",
    "expired",
    "acknowledged",
]
#: Why a message is dead-lettered.
Death: TypeAlias = Literal["delivery_limit", "poison", "not-retryable", "expired", "maxlen", "rejected"]
#: How a queue entry ends.
Outcome: TypeAlias = Literal["succeeded", "dead-lettered", "expired", "dropped", "purged", "redriven", "moved", "edited"]


class ReferenceState(IntFlag):
    """Bits of ``reference.state``."""

    READY = 0
    PARKED = 1
    SUSPECT = 2


#: The due time of what is on hold: it waits until it is released. The last that a calendar has (the broker's core says the same).
ON_HOLD_MS: Final = 253_402_300_799_999

#: Why a message may be dead-lettered, by its number in ``cause``; "": it was not.
DEATHS: Final[tuple[Death | Literal[""], ...]] = ("", "delivery_limit", "poison", "not-retryable", "expired", "maxlen", "rejected")
DEATH_BITS: Final = 7
#: It was sent back once, after it had been dead-lettered.
SENT_BACK: Final = 8


def cause(fault_id: int, death: str, sent_back: int = 0) -> int:
    """Why a message is in trouble, in one number: its fault group, why it was dead-lettered, and ``sent_back`` (SENT_BACK or 0)."""
    return fault_id << 4 | sent_back | DEATHS.index(death)


def fault_of(cause: int) -> int:
    """The fault group in it."""
    return cause >> 4


#: The fault group that too many others are folded into; messages keep the number of the one that is gone.
OTHER_FAULT: Final = 1


class FaultStat(IntEnum):
    """Places in the row of increments that ``FaultChanges.counts`` hands out: the columns of table ``fault_count`` after its key."""

    FAILURES = 0
    #: Messages that failed so last and are to be tried again; goes down, too.
    WAITING = 1
    SUCCEEDED = 2
    DIED = 3
    REDRIVEN = 4
    #: Of those sent back: they succeeded, or were dead-lettered again.
    BACK_SUCCEEDED = 5
    BACK_DIED = 6


class QueueStat(IntEnum):
    """Places in the row of increments that ``WriteBatch.counts`` hands out: the columns of table ``minute`` after its key."""

    SENT = 0
    MOVED_IN = 1
    DELIVERED = 2
    SUCCEEDED = 3
    FIRST_TRY = 4
    FAILED = 5
    DEAD_LETTERED = 6
    EXPIRED = 7
    DROPPED = 8
    PURGED = 9
    MOVED_OUT = 10
    FAILED_FIRST = 11
    FAILED_MS = 12
    # Of the first eleven, in the same order, those of messages that were not durable then.
    TRANSIENT_SENT = 13
    TRANSIENT_MOVED_IN = 14
    TRANSIENT_DELIVERED = 15
    TRANSIENT_SUCCEEDED = 16
    TRANSIENT_FIRST_TRY = 17
    TRANSIENT_FAILED = 18
    TRANSIENT_DEAD_LETTERED = 19
    TRANSIENT_EXPIRED = 20
    TRANSIENT_DROPPED = 21
    TRANSIENT_PURGED = 22
    TRANSIENT_MOVED_OUT = 23
    #: Transient messages that were durable from then on.
    KEPT = 24
    #: Transient messages that a crash took, or a stop that did not keep them.
    LOST = 25


#: What is added to a column of QueueStat up to MOVED_OUT for the same of transient messages.
OF_TRANSIENT: Final = QueueStat.TRANSIENT_SENT - QueueStat.SENT


class MessageRecord(NamedTuple):
    """A message as it was sent; it never changes afterwards."""

    message_id: int
    address: str
    body: bytes
    properties: Properties | None
    priority: int
    sent_at_ms: int
    expires_at_ms: int | None
    #: client_id/producer of the sender, "" where unknown.
    producer: str
    durable: bool = True  # its sender wanted it kept; it may be kept without

    @property
    def weight(self) -> int:
        """What it takes in memory, in bytes: its body, and its properties."""
        return len(self.body) + (weight_of(self.properties) if self.properties else 0)


class HopDetail(TypedDict):
    """What is said of a queue entry that ended; one for all that ended alike, which never changes. It is stored as it is."""

    reason: str
    queue: str
    address: str
    routing_type: str
    at_ms: int
    #: Deliveries that failed.
    attempts: int
    delivery_count: int
    expires_at_ms: int | None
    #: Of a temporary queue that shares its dead-letter queue with others: that queue.
    shared_queue: NotRequired[str]
    # Through a dead-letter exchange: how it had come in, how it went on, how often it was dead-lettered so, and when first.
    exchange: NotRequired[str]
    #: Bytes: a key that is not UTF-8.
    routing_keys: NotRequired[list[str | bytes]]
    to_exchange: NotRequired[str]
    to_keys: NotRequired[list[str | bytes]]
    to_hidden: NotRequired[list[str | bytes]]
    count: NotRequired[int]
    first_ms: NotRequired[int]
    keys_replaced: NotRequired[bool]


#: (sequence of a queue entry that ended, what is said of that)
HopRecord = tuple[int, HopDetail]


class Program(TypedDict, total=False):
    """What a consumer's client said of itself."""

    client_id: str
    host: str
    version: str


class Fault(TypedDict, total=False):
    """What a failure looked like, redacted and capped."""

    reason: str
    task: str
    error_type: str
    #: The classes that it is one of beside its own, the nearest first.
    bases: list[str]
    error_text: str
    traceback: str
    #: Of the program that was run for the message.
    exit_status: int
    fingerprint: str


class ReferenceRecord(NamedTuple):
    """One message in one queue, with everything that must survive a crash."""

    queue_id: int
    priority: int
    sequence: int
    delivery_count: int
    failed: int
    assigned: int
    state: int
    due_at_ms: int | None
    expires_at_ms: int | None
    #: See ``cause``; 0: it has not failed.
    cause: int
    #: The redrive job that sent it back, negative once it has failed again as before; 0: none.
    redrive: int
    entered_at_ms: int
    #: Newest first (see broker.core.message.Hop); None before the first move.
    hops: Sequence[HopRecord] | None
    message: MessageRecord
    #: The message stands in a row of its own because several references share it.
    shared: bool
    spilled: bool = False  # it is not durable, and on disk for want of memory: gone after a crash


class Arrival(Protocol):
    """A reference that has just come, as whoever keeps it knows it. Its record is made when it is written; most are not (batch.py). What
    the record is made of may not change.
    """

    @property
    def message(self) -> Weighed: ...

    @property
    def shared(self) -> bool:
        """As in ReferenceRecord."""


class Weighed(Protocol):
    @property
    def message_id(self) -> int: ...

    @property
    def weight(self) -> int:
        """As in its MessageRecord."""


class ReferenceCounts(NamedTuple):
    """What changes of a reference while it stays where it is. Messages that fail together very often share one."""

    delivery_count: int
    failed: int
    assigned: int
    state: int
    due_at_ms: int | None
    expires_at_ms: int | None
    #: As in ReferenceRecord.
    cause: int = 0
    redrive: int = 0


class QueueRecord(NamedTuple):
    queue_id: int
    name: str
    address: str
    routing_type: str
    selector: str | None
    durable: bool
    auto_created: bool
    paused: bool
    options: QueueOptions
    created_at_ms: int
    deleted_at_ms: int | None = None
    #: The policy that held for it last, where that is not sure to be found out again in time (broker/core/patterns.py).
    policy: str | None = None


class AddressRecord(NamedTuple):
    name: str
    routing_types: int
    auto_created: bool
    created_at_ms: int


class AttemptDetail(NamedTuple):
    """What messages that failed together have in common, very often."""

    original_address: str
    outcome: AttemptOutcome
    consumer: str
    connection: str
    assigned_at_ms: int
    given_at_ms: int | None
    delivery_count: int
    failed: int
    delay_ms: int | None
    due_at_ms: int | None
    #: What was decided.
    decision: Decision
    #: Short hash of the policy in force, see PolicyRecord.
    policy: str
    fault: Fault | None
    #: What the property that the settings name said: messages of one key belong together. None: no key.
    message_key: str | None = None
    client: Program | None = None
    producer: str | None = None
    #: The queue of the message's first death, where that is another one.
    home: str | None = None
    #: The name of the rule that had a say in what was decided.
    rule: str | None = None


class Attempts(NamedTuple):
    """Deliveries of one queue that ended badly, all alike; one of each of ``entries``."""

    queue_id: int
    attempt: int
    at_ms: int
    detail: AttemptDetail
    #: (message_id, sequence)
    entries: list[tuple[int, int]]


#: (message_id, sequence, sent_at_ms, entered_at_ms) of a queue entry that ended; None: not known.
EndedEntry = tuple[int, int, int | None, int | None]


class OutcomeDetail(NamedTuple):
    """What entries that ended alike have in common. None: not known, or there is none."""

    address: str | None
    #: Deliveries that failed.
    attempts: int
    delivery_count: int
    reason: str | None = None
    #: Where dead-lettering, expiry or redrive put the message.
    target_queues: tuple[str, ...] = ()
    #: As in AttemptDetail; ``client`` of the consumer that acknowledged it.
    key: str | None = None
    client: Program | None = None
    producer: str | None = None
    home: str | None = None


class Outcomes(NamedTuple):
    """How entries in a queue ended, all alike."""

    queue_id: int
    at_ms: int
    outcome: Outcome
    detail: OutcomeDetail
    entries: list[EndedEntry]


class EditRecord(NamedTuple):
    """A message took the place of another."""

    message_id: int
    original: int
    #: Where it went.
    queue_id: int
    at_ms: int


class FaultRecord(NamedTuple):
    """Failures of one queue that look alike. Its counts stand apart (FaultStat), and so do text and traceback of the first of them."""

    fault_id: int
    fingerprint: str
    queue: str
    error_class: str
    first_ms: int
    last_ms: int
    #: Of the latest ones, oldest first. Like the times, of a minute before a crash at worst.
    message_ids: list[int]
    #: Who met it: client_id, host, version, when first and when last.
    programs: list[tuple[str, str, str, int, int]]
    muted: bool = False
    #: It is said to be gone from this version on, and was back at that time.
    fixed_in: str | None = None
    fixed_ms: int | None = None
    regressed_ms: int | None = None


class ConsumerPolicyInForce(TypedDict, total=False):
    """The fields of broker.core.redelivery.ConsumerPolicy."""

    maximum_redeliveries: int
    initial_redelivery_delay_ms: int
    redelivery_delay_ms: int
    use_exponential_back_off: bool
    back_off_multiplier: float
    maximum_redelivery_delay_ms: int
    use_collision_avoidance: bool
    collision_avoidance_factor: float


class FaultLife(NamedTuple):
    """What is counted of a fault group: see FaultStat; of its failures those of the last hour and day; of those waiting the transient."""

    failures: int = 0
    waiting: int = 0
    succeeded: int = 0
    died: int = 0
    redriven: int = 0
    back_succeeded: int = 0
    back_died: int = 0
    last_hour: int = 0
    last_day: int = 0
    transient: int = 0


class DeadLetters(NamedTuple):
    """Those in one queue that share a cause, and when they came; all of them are gone with the process, or none."""

    queue_id: int
    #: OTHER_FAULT, where its group was folded.
    fault_id: int
    #: The queue that they came from; None: not known.
    source: str | None
    reason: str
    sent_back: bool
    messages: int
    oldest_ms: int
    newest_ms: int
    transient: bool = False


class FaultDescription(NamedTuple):
    #: Of the first of its groups that has them.
    text: str
    traceback: str
    #: Failures of the last 24, oldest first.
    hours: list[int]


class PolicyInForce(TypedDict, total=False):
    """Everything that a decision depended on: settings by field name, and the consumer's policy; older ones lack what came later."""

    redelivery_delay_ms: int
    redelivery_delay_multiplier: float
    redelivery_collision_avoidance_factor: float
    max_redelivery_delay_ms: int | None
    redelivery_back_off: str
    redelivery_delays_ms: list[int]
    max_delivery_attempts: int
    max_nack_delay_ms: int
    allow_consumer_policy: bool
    dead_letter_address: str | None
    consumer_policy: ConsumerPolicyInForce | None


#: Pattern -> settings as people have them, those of the whole broker under "". For people to read, and for a start that says what an update
#: changed; nothing depends on them.
SettingsInForce = dict[str, dict[str, Any]]


class PolicyRecord(NamedTuple):
    policy: str
    from_ms: int
    settings: PolicyInForce


class Failed(NamedTuple):
    """Deliveries that failed together and alike, as they are read again."""

    #: Its name and address, even if it is gone.
    queue: str
    address: str
    number: int
    detail: AttemptDetail
    #: Empty: what decided is not on record any more.
    in_force: PolicyInForce


class OnDisk(NamedTuple):
    """What of one queue was counted and not read at the start."""

    queue_id: int
    #: priority -> messages without a due time
    ready: dict[int, int]
    #: Messages with a due time, past or to come, and the earliest of them.
    due: int
    first_due_ms: int | None
    first_expiry_ms: int | None
    #: What one message is reckoned at.
    mean_bytes: int
    #: Of those with a due time, on hold.
    on_hold: int = 0


class RecoveredFault(NamedTuple):
    record: FaultRecord
    #: The beginning of it.
    text: str
    #: Whether messages were dead-lettered for it.
    dead_lettered: bool
    #: Failures since the hour of the clock began.
    in_hour: int
    #: Durable messages that failed so last and wait.
    waiting: int


class Recovered(NamedTuple):
    """Everything a broker needs to go on after a stop of any kind."""

    broker_id: str
    clean_stop: bool
    clock_ms: int
    addresses: list[AddressRecord]
    #: Live queues only.
    queues: list[QueueRecord]
    next_queue_id: int
    #: In (queue, priority, sequence) order: all, or, where ``on_disk`` has the rest, those that are parked or suspect.
    references: list[ReferenceRecord]
    #: producer -> (high watermark, at_ms)
    producers: dict[str, tuple[int, int]]
    #: address -> duplicate ids, oldest first
    duplicates: dict[str, list[str]]
    committed: dict[str, int]
    #: One sentence for each row that was set aside because it failed its checksum (``on_damage="quarantine"`` only).
    quarantined: list[str]
    #: In (kind, name) order.
    declarations: tuple[DeclarationRecord, ...] = ()
    #: The least recent first.
    faults: Sequence[RecoveredFault] = ()
    #: Empty where everything was read.
    on_disk: Sequence[OnDisk] = ()
    #: Dead letters, read or not: (queue, cause, how many); of faults that were folded, the cause of one of OTHER_FAULT.
    dead: Sequence[tuple[int, int, int]] = ()
    #: Those in force last; None where none are on record.
    settings: SettingsInForce | None = None
    #: Queue, story, message and failures so far; the least recent first.
    stories: Sequence[tuple[str, str, int, int]] = ()
