"""Workloads as Hypothesis draws them: queues with settings of their own, messages that fail as planned, and what is done meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

#: letter of a plan -> the error that the consumer fails the delivery with
ERRORS: dict[str, tuple[type[Exception], str]] = {
    "T": (TimeoutError, "no answer from warehouse {} within 30 s"),
    "V": (ValueError, "order {} has no price"),
    "K": (KeyError, "customer {}"),
}
#: The same for failures that the settings have rules for: such a message is dead now, is dropped, or has another delay and limit.
RULED: dict[str, type[Exception]] = {"N": PermissionError, "D": FileNotFoundError, "L": BlockingIOError}
RULES: list[dict[str, Any]] = [
    {"name": "no", "error-type": "PermissionError", "action": "dead-letter"},
    {"name": "gone", "error-type": "FileNotFoundError", "action": "drop"},
    {"name": "busy", "error-type": "BlockingIOError", "redelivery-delay": "15ms", "max-delivery-attempts": 2},
]
#: The consumer says that trying again is of no use; or that it is of none before long; or it holds the message for a while.
FINAL, WAIT, HOLD = "X", "W", "H"
#: How producers and consumers speak to the broker.
SPEECHES = ("native", "native", "transacted", "amqp", "amqp-tx")


@dataclass(frozen=True)
class Send:
    queue: str
    #: of each message, how its deliveries end one after the other, wherever it is; after that it is accepted
    plans: tuple[str, ...]
    #: 0: they do not expire
    ttl_ms: int = 0
    by: str = "native"


@dataclass(frozen=True)
class Expire:
    """Until every message with a time to live is gone from the queue, which nobody consumes meanwhile."""

    queue: str


@dataclass(frozen=True)
class Retune:
    """Another limit from here on, by a reload."""

    queue: str
    limit: int


@dataclass(frozen=True)
class Consume:
    """Until nothing is left in the queue, by as many consumers as there are versions: which release each program is."""

    queue: str
    versions: tuple[str, ...] = ("1.0",)
    by: str = "native"


@dataclass(frozen=True)
class Kill:
    """A consumer has got a message, and is gone without a word; or the broker is."""

    queue: str
    by: str
    broker: bool = False


@dataclass(frozen=True)
class Redrive:
    queue: str
    #: as a job, or at once
    job: bool = False


@dataclass(frozen=True)
class Edit:
    """Each message of a dead-letter queue goes home edited; ``keep``: and stays where it is, too, so that what goes is another message."""

    queue: str
    keep: bool


@dataclass(frozen=True)
class Quota:
    """Only so many of what died in the queue are left, the latest; for a moment, so that clients know which those are."""

    queue: str
    most: int
    archive: bool


@dataclass(frozen=True)
class Retry:
    """What waits for long has another time by hand: "now", "at" (soon), "hold", or "release": on hold, and then not any more."""

    queue: str
    how: str


@dataclass(frozen=True)
class Restart:
    kill: bool


@dataclass(frozen=True)
class Pause:
    """The broker is down for hours: what it found old when it starts again, it has let go."""

    kill: bool
    #: an export was taken before
    export: bool


@dataclass(frozen=True)
class Circle:
    """AMQP's retry loop, with queues of its own: what is rejected waits in another queue until it expires there and comes back."""

    #: of each message, how often it is rejected before it is accepted
    rejections: tuple[int, ...]
    queue: str = "tries"

    @property
    def waiting(self) -> str:
        return f"{self.queue}.wait"


Step = Circle | Send | Expire | Consume | Retune | Kill | Redrive | Edit | Quota | Retry | Restart | Pause


@dataclass(frozen=True)
class QueueSettings:
    limit: int
    delay_ms: int
    records: int
    #: what becomes of what dies: "keep", "drop", "park"
    dead: str
    #: 0: any number; else the oldest give way
    length: int = 0
    #: what died so many hours ago is removed, and whether it is archived; 0: it stays
    dead_hours: int = 0
    archive: bool = False
    #: what expires is kept
    expired: bool = False
    #: the limit is the queue's own, which an AMQP client has declared it with
    declared: bool = False
    #: of a queue that is declared with it: where its dead go, and how it says so
    dead_queue: str | None = None
    arguments: Mapping[str, Any] | None = None

    def target(self, queue: str) -> str | None:
        """Where what dies goes."""
        return self.dead_queue or f"DLQ.{queue}" if self.keeps_dead else None

    def as_yaml(self) -> dict[str, Any]:
        named: dict[str, Any] = {"redelivery-delay": f"{self.delay_ms}ms", "max-redelivery-records": self.records, "rules": RULES}
        if not self.declared:
            named["max-delivery-attempts"] = self.limit
        if self.dead_hours:
            named |= {"dead-letter-retention": f"{self.dead_hours}h", "dead-letter-archive": self.archive}
        if self.length:
            named |= {"max-length": self.length, "overflow": "drop-head"}
        if self.expired:
            named |= {"expiry-address": "EXP", "auto-create-expiry-resources": True}
        if self.dead == "keep":
            return named | {"dead-letter-address": "DLA"}
        return named | {"dead-letter-address": None} | ({"without-dead-letter-address": "drop"} if self.dead == "drop" else {})

    @property
    def keeps_dead(self) -> bool:
        return self.dead == "keep"


@dataclass(frozen=True)
class Workload:
    queues: dict[str, QueueSettings]
    steps: tuple[Step, ...]
    #: for how long the broker keeps its history; 0: for longer than any workload takes
    history_hours: int = 0

    @property
    def takes_hours(self) -> bool:
        return any(isinstance(step, Pause) for step in self.steps)

    @property
    def both_kinds(self) -> bool:
        """Every other message is not durable: where the broker is killed, nobody knows what that takes of the last minute."""
        return not any(step.broker if isinstance(step, Kill) else isinstance(step, Restart | Pause) and step.kill for step in self.steps)


PLANS = st.text(alphabet="TTTTTVVKK" + FINAL + WAIT + HOLD + "".join(RULED), max_size=6)
QUEUE_SETTINGS = st.builds(
    QueueSettings,
    limit=st.integers(1, 5),
    delay_ms=st.sampled_from([0, 5, 20]),
    records=st.sampled_from([0, 2, 10]),
    dead=st.sampled_from(["keep", "keep", "keep", "drop", "park"]),
    length=st.sampled_from([0, 0, 3]),
    dead_hours=st.sampled_from([0, 0, 2]),
    archive=st.booleans(),
    expired=st.booleans(),
    declared=st.sampled_from([False, False, False, True]),
)
#: Of each message another one, or all of them fail together for a while and then succeed.
BATCHES = st.lists(PLANS, min_size=3, max_size=12) | st.builds(
    lambda plan, count: [plan] * count, st.sampled_from(["T", "TTT"]), st.integers(5, 15)
)
VERSIONS = st.lists(st.sampled_from(["1.0", "1.1"]), min_size=1, max_size=3).map(tuple)
BY = st.sampled_from(SPEECHES)
ONE_BY_ONE = st.sampled_from([name for name in SPEECHES if name != "transacted"])
#: Of workloads that take hours: what it did then lies in three times that are hours apart.
PAUSES = 2
#: What takes the time of a start.
SELDOM = st.sampled_from([False, False, False, True])


@st.composite
def workloads(draw: st.DrawFn, *, takes_hours: bool) -> Workload:
    queues = draw(st.dictionaries(st.sampled_from(["orders", "mails", "stock.eu"]), QUEUE_SETTINGS, min_size=1, max_size=3))
    steps: list[Step] = []
    for queue, own in queues.items():
        steps.append(Send(queue, tuple(draw(BATCHES)), by="amqp" if own.declared else draw(BY)))
        if draw(st.booleans()):
            steps.append(Kill(queue, draw(BY), broker=draw(SELDOM)))
        after = draw(st.sampled_from(["leave", "drain", "redrive", "edit", "cut"])) if own.keeps_dead else "leave"
        # Of messages that die together none is known to be the first: that a redrive has to leave room for is, and that a quota takes.
        by = ONE_BY_ONE if own.length or after == "cut" else BY
        steps.append(Consume(queue, draw(VERSIONS), draw(by)))
        # Whose place in the queue is what, when they come back, is not the clients' to know.
        if not own.length and draw(st.booleans()):
            steps += [Retry(queue, draw(st.sampled_from(["now", "at", "hold", "release"]))), Consume(queue, by=draw(by))]
        if draw(SELDOM):
            steps.append(Restart(kill=draw(st.booleans())))
        if draw(st.booleans()):
            # No more than find room: else it were a race between the time to live and the next arrival.
            number = draw(st.integers(1, own.length or 4))
            steps += [Send(queue, ("",) * number, ttl_ms=20), Expire(queue)]
            if own.expired and draw(st.booleans()):
                steps.append(Consume(f"EXP.{queue}"))
        if not own.declared and draw(st.booleans()):
            steps += [
                Retune(queue, draw(st.integers(1, 5))),
                Send(queue, tuple(draw(st.lists(PLANS, min_size=1, max_size=8))), by=draw(BY)),
                Consume(queue, by=draw(by)),
            ]
        if after == "drain":
            steps.append(Consume(f"DLQ.{queue}", by=draw(BY)))
        elif after == "edit":
            steps += [Edit(f"DLQ.{queue}", keep=draw(st.booleans())), Consume(queue, by=draw(by))]
        elif after == "redrive":
            # A job leaves what finds no room where it is: which that is depends on its pace.
            steps += [Redrive(f"DLQ.{queue}", job=not own.length and draw(st.booleans())), Consume(queue, by=draw(by))]
        elif after == "cut":
            steps.append(Quota(queue, draw(st.integers(1, 3)), archive=draw(SELDOM)))
    if draw(st.booleans()):
        steps.append(Circle(tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))))
    if not takes_hours:
        return Workload(queues, tuple(steps))
    # What expires soon does so before the broker is down.
    places = [place for place, before in enumerate([None, *steps]) if not (isinstance(before, Send) and before.ttl_ms)]
    for place in sorted(draw(st.lists(st.sampled_from(places), min_size=PAUSES, max_size=PAUSES)), reverse=True):
        steps.insert(place, Pause(kill=draw(st.booleans()), export=draw(st.booleans())))
    return Workload(queues, tuple(steps), history_hours=draw(st.sampled_from([2, 8, 2, 8, 0])))


def drawn(count: int, number: int) -> list[Workload]:
    """So many workloads, half of which take hours, the same for the same ``number``."""
    found: list[Workload] = []
    for takes_hours in (False, True):

        @seed(number)
        @settings(
            max_examples=(count + takes_hours) // 2,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(workloads(takes_hours=takes_hours))
        def collect(workload: Workload) -> None:
            found.append(workload)

        collect()
    return found


def telling(workloads: list[Workload], count: int) -> list[Workload]:
    """Of these so many that together have as many kinds of steps and settings as may be."""
    left, chosen, seen = list(workloads), list[Workload](), set[object]()
    for _ in range(count):
        best = max(left, key=lambda each: len(_kinds(each) - seen))
        left.remove(best)
        chosen.append(best)
        seen |= _kinds(best)
    return chosen


def _kinds(workload: Workload) -> set[object]:
    """What is in it: of each step and each queue's settings every choice among few, by name."""
    kinds: set[object] = {("takes hours", workload.history_hours) if workload.takes_hours else "takes none"}
    for each in (*workload.steps, *workload.queues.values()):
        chosen = {name: value for name, value in vars(each).items() if isinstance(value, bool) or name in ("by", "how", "dead")}
        kinds |= {(type(each), name, value) for name, value in chosen.items()} | {type(each)}
    return kinds | {letter for step in workload.steps if isinstance(step, Send) for plan in step.plans for letter in plan}
