"""Workloads as Hypothesis draws them: queues with settings of their own, messages that fail as planned, and what is done meanwhile."""

from __future__ import annotations

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
#: The consumer says that trying again is of no use.
FINAL = "X"


@dataclass(frozen=True)
class Send:
    queue: str
    #: of each message, how its deliveries end one after the other, wherever it is; after that it is accepted
    plans: tuple[str, ...]
    #: 0: they do not expire
    ttl_ms: int = 0


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
    """Until nothing is left in the queue."""

    queue: str
    #: which release of the program
    version: str = "1.0"


@dataclass(frozen=True)
class Redrive:
    queue: str


@dataclass(frozen=True)
class Restart:
    kill: bool


Step = Send | Expire | Consume | Retune | Redrive | Restart


@dataclass(frozen=True)
class QueueSettings:
    limit: int
    delay_ms: int
    records: int
    #: what becomes of what dies: "keep", "drop", "park"
    dead: str
    #: 0: any number; else the oldest give way
    length: int = 0

    def as_yaml(self) -> dict[str, Any]:
        named = {"max-delivery-attempts": self.limit, "redelivery-delay": f"{self.delay_ms}ms", "max-redelivery-records": self.records}
        if self.length:
            named |= {"max-length": self.length, "overflow": "drop-head"}
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


PLANS = st.text(alphabet="TTTVK" + FINAL, max_size=6)
QUEUE_SETTINGS = st.builds(
    QueueSettings,
    limit=st.integers(1, 5),
    delay_ms=st.sampled_from([0, 5, 20]),
    records=st.sampled_from([0, 2, 10]),
    dead=st.sampled_from(["keep", "keep", "keep", "drop", "park"]),
    length=st.sampled_from([0, 0, 3]),
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    queues = draw(st.dictionaries(st.sampled_from(["orders", "mails", "stock.eu"]), QUEUE_SETTINGS, min_size=1, max_size=3))
    steps: list[Step] = []
    for queue in queues:
        steps.append(Send(queue, tuple(draw(st.lists(PLANS, min_size=5, max_size=30)))))
        steps.append(Consume(queue, draw(st.sampled_from(["1.0", "1.1"]))))
        if draw(st.booleans()):
            steps.append(Restart(kill=draw(st.booleans())))
        if draw(st.booleans()):
            # No more than find room: else it were a race between the time to live and the next arrival.
            number = draw(st.integers(1, queues[queue].length or 4))
            steps += [Send(queue, ("",) * number, ttl_ms=20), Expire(queue)]
        if draw(st.booleans()):
            steps += [
                Retune(queue, draw(st.integers(1, 5))),
                Send(queue, tuple(draw(st.lists(PLANS, min_size=1, max_size=8)))),
                Consume(queue),
            ]
        if queues[queue].keeps_dead:
            after = draw(st.sampled_from(["leave", "drain", "redrive"]))
            if after == "drain":
                steps.append(Consume(f"DLQ.{queue}"))
            elif after == "redrive":
                steps += [Redrive(f"DLQ.{queue}"), Consume(queue)]
    return Workload(queues, tuple(steps))


def drawn(count: int, number: int) -> list[Workload]:
    """So many workloads, the same for the same ``number``."""
    found: list[Workload] = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    @given(workloads())
    def collect(workload: Workload) -> None:
        found.append(workload)

    collect()
    return found
