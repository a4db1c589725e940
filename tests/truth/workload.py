"""Workloads as Hypothesis draws them: queues with settings of their own, messages that fail as planned, and what is done meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import Phase, given, seed, settings
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


@dataclass(frozen=True)
class Consume:
    """Until nothing is left in the queue."""

    queue: str


@dataclass(frozen=True)
class Redrive:
    queue: str


@dataclass(frozen=True)
class Restart:
    kill: bool


Step = Send | Consume | Redrive | Restart


@dataclass(frozen=True)
class QueueSettings:
    limit: int
    delay_ms: int
    records: int
    #: False: what dies is dropped
    keeps_dead: bool

    def as_yaml(self) -> dict[str, Any]:
        named = {"max-delivery-attempts": self.limit, "redelivery-delay": f"{self.delay_ms}ms", "max-redelivery-records": self.records}
        return named if self.keeps_dead else named | {"dead-letter-address": None, "without-dead-letter-address": "drop"}


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
    keeps_dead=st.sampled_from([True, True, True, False]),
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    queues = draw(st.dictionaries(st.sampled_from(["orders", "mails", "stock.eu"]), QUEUE_SETTINGS, min_size=1, max_size=3))
    steps: list[Step] = []
    for queue in queues:
        steps.append(Send(queue, tuple(draw(st.lists(PLANS, min_size=5, max_size=30)))))
        steps.append(Consume(queue))
        if draw(st.booleans()):
            steps.append(Restart(kill=draw(st.booleans())))
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
    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(workloads())
    def collect(workload: Workload) -> None:
        found.append(workload)

    collect()
    return found
