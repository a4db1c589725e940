"""What an operator wants to hear of: the events there are, what each means, and the command that follows. Pure."""

from __future__ import annotations

import shlex
from typing import Any, Final, NamedTuple


class Kind(NamedTuple):
    """``when`` there is one; ``meaning`` and ``command`` have the event's fields filled in; ``most``: of one queue in ten minutes."""

    when: str
    meaning: str
    command: str
    most: int = 1


FAULT_NEW: Final = "fault.new"
FAULT_GROWING: Final = "fault.growing"
FAULT_REGRESSED: Final = "fault.regressed"
FIRST_DEAD: Final = "dead-letters.first"
MANY_DEAD: Final = "dead-letters.threshold"
DEAD_REMOVED: Final = "dead-letters.removed"
PARKED: Final = "dead-letters.parked"
QUEUE_STAYS: Final = "queue.stays"
REDRIVE_DONE: Final = "redrive.done"
REDRIVE_STOPPED: Final = "redrive.stopped"
QUEUE_FULL: Final = "queue.full"
CONSUMER_SLOW: Final = "consumer.slow"
DISK_LOW: Final = "disk.low"
FAILED_OVER: Final = "cluster.failed-over"
STANDBY_BEHIND: Final = "cluster.standby-behind"
LOG_AWAY: Final = "cluster.log-away"

_SHOW: Final = "homing faults show {fault}"
_STATUS: Final = "homing redrives status {redrive}"
_CLUSTER: Final = "homing cluster status"
KINDS: Final = {
    FAULT_NEW: Kind(
        "deliveries of a queue fail as none of it did before",
        "deliveries of queue {queue} fail as none did before: {error}",
        _SHOW,
        10,
    ),
    FAULT_GROWING: Kind(
        "10, 100, 1,000 … failures of one fault within an hour",
        "{failures} deliveries of queue {queue} failed alike this hour: {error}",
        _SHOW,
        10,
    ),
    FAULT_REGRESSED: Kind(
        "a fault that was said to be fixed is back",
        "said to be fixed in {fixed_in}, and back in queue {queue}: {error}",
        _SHOW,
        10,
    ),
    FIRST_DEAD: Kind(
        "a queue's messages are dead-lettered into a queue that was empty",
        "messages of queue {queue} are dead-lettered ({reason}); the first ones are in {dead_in}",
        "homing faults {queue}",
    ),
    MANY_DEAD: Kind(
        "they come to dead-letters-threshold there",
        "{dead_in} has come to {number}, which is dead-letters-threshold of queue {queue} or more",
        "homing faults {queue}",
    ),
    DEAD_REMOVED: Kind(
        "dead letters were removed by dead-letter-retention or dead-letter-quota",
        "dead letters of queue {queue} were removed from {dead_in} by {why}: {number}",
        "homing explain {queue}",
    ),
    PARKED: Kind(
        "dead letters of a queue find no place and stay in it, parked",
        "dead letters of queue {queue} stay in it, parked: {why}",
        "homing explain {queue}",
    ),
    QUEUE_STAYS: Kind(
        "a queue was to end and stays, for what is parked in it has nowhere to go",
        "queue {queue} was to end and stays: {number} parked in it have nowhere to go",
        "homing explain {queue}",
    ),
    REDRIVE_DONE: Kind(
        "a job has sent back all that it was to",
        "redrive {redrive} of queue {queue} is done, {sent} sent",
        _STATUS,
        10,
    ),
    REDRIVE_STOPPED: Kind(
        "a job has stopped by itself",
        "redrive {redrive} of queue {queue} has stopped: {why}",
        _STATUS,
        10,
    ),
    QUEUE_FULL: Kind(
        "what is sent to a queue is refused, or its producers wait, for it is full",
        "queue {queue} is full, with {number} ready: what is sent is refused, or producers wait",
        "homing consumers {queue}",
    ),
    CONSUMER_SLOW: Kind(
        "a consumer is slow by `slow-consumer-threshold` or `slow-consumer-age`",
        "consumer {consumer} of queue {queue} is slow: {why}",
        "homing consumers {queue}",
        10,
    ),
    DISK_LOW: Kind(
        "free disk space is down to the reserve",
        "free disk space is down to the reserve: producers wait until there is more",
        "homing status",
    ),
    FAILED_OVER: Kind(
        "a node of a cluster leads, as the one before was taken for gone",
        "node {node} leads since {before} was taken for gone; nobody was served for {gap_s} s",
        _CLUSTER,
        10,
    ),
    STANDBY_BEHIND: Kind(
        "a standby has lacked entries for 30 s, or was not seen for so long",
        "node {node} is behind by {behind} entries, and has been for {behind_s} s",
        _CLUSTER,
        10,
    ),
    LOG_AWAY: Kind(
        "the database that keeps the log of a cluster does not answer",
        "the replicated log does not answer, and nothing is confirmed until it does: {why}",
        _CLUSTER,
    ),
}
#: Within this long ``most`` events of one kind are made of a queue.
WINDOW_MS: Final = 600_000
_MOST_WINDOWS: Final = 10_000


class Rates:
    """How many events of a kind were made of a queue lately; those of more queues than anybody watches are forgotten."""

    def __init__(self) -> None:
        #: When a window began, and how many were made in it.
        self._made: dict[tuple[str, str], tuple[int, int]] = {}

    def allow(self, name: str, queue: str, now_ms: int) -> bool:
        """Whether another one may be made, and counts it then."""
        began_ms, number = self._made.get((name, queue), (now_ms, 0))
        if now_ms - began_ms >= WINDOW_MS:
            began_ms, number = now_ms, 0
        if number >= KINDS[name].most:
            return False
        if len(self._made) >= _MOST_WINDOWS:
            self._made.clear()
        self._made[name, queue] = began_ms, number + 1
        return True


def describe(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """What the fields mean, and the command that follows."""
    kind = KINDS[name]
    quoted = {key: shlex.quote(str(value)) for key, value in fields.items()}
    return {"meaning": kind.meaning.format_map(fields), "command": kind.command.format_map(quoted)}
