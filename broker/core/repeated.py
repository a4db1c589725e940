"""What one send had repeated: each is a message of its own, and they have a name in common, as with ActiveMQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .message import MessageReference, Where

#: Properties of each of them: the name that those of one send have in common; how far apart they are, in ms.
JOB: Final = "scheduledJobId"
PERIOD: Final = "AMQ_SCHEDULED_PERIOD"


@dataclass
class Repeated:
    """What still waits of one send: how many, and number and due time of the next one. Times in ms."""

    job: str
    period_ms: int
    messages: int
    message_id: int
    due_at_ms: int


def add(found: dict[str, Repeated], reference: MessageReference) -> None:
    """Counts it where it is repeated and waits for its time. They are to come in the order of their times; ``found``: by their names."""
    properties, due_at_ms = reference.message.properties or {}, reference.due_at_ms
    job, period_ms = properties.get(JOB), properties.get(PERIOD)
    if type(job) is not str or type(period_ms) is not int or due_at_ms is None:
        return
    if reference.where is not Where.SCHEDULED or reference.failed or reference.on_hold:
        return
    if job in found:
        found[job].messages += 1
    else:
        found[job] = Repeated(job, period_ms, 1, reference.message.message_id, due_at_ms)
