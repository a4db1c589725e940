"""What is wrong now, one sentence each, worst first, with its next step. Pure: it reads what the broker's calls have answered."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ..answers.failures import DeadQueue, FaultGroup, FaultOfList, Redrive, RetryingQueue
from ..answers.inventory import Queue, Statistics
from ..answers.parts import ErrorOfFault
from ..words.amounts import counted, size, span
from .asked import address

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MINUTE_MS: Final = 60_000
_GOES_ON_MS: Final = 3 * _MINUTE_MS


class Level(IntEnum):
    """How bad it is: messages cannot come in, or are lost; they fail; they wait for somebody; it is as well to know."""

    STOPPED = 0
    FAILING = 1
    WAITING = 2
    NOTE = 3


class Finding(NamedTuple):
    """``weight``: among those of one level the more the worse. ``step``: what to do next, which ``where`` leads to; nothing where only the
    ``command``, a line of words behind ``homing``, does it. ``since_ms``: when it began."""

    level: Level
    weight: int
    sentence: str
    since_ms: int | None
    step: str
    where: str
    command: tuple[str, ...]


class Answers(NamedTuple):
    """What the broker has said; None where whoever asks may not know."""

    statistics: Statistics | None
    faults: list[FaultOfList] | None
    dead: list[DeadQueue] | None
    retrying: list[RetryingQueue] | None
    redrives: list[Redrive] | None
    queues: list[Queue] | None


def findings(answers: Answers, now_ms: int) -> list[Finding]:
    """All there is, worst first."""
    found = [
        *_of_the_broker(answers.statistics),
        *(each for group in answers.faults or () for each in _of_fault(group, now_ms)),
        *(each for dead in answers.dead or () for each in _of_dead(dead)),
        *(each for queue in answers.queues or () for each in _of_queue(queue)),
        *(each for waiting in answers.retrying or () for each in _of_retrying(waiting)),
        *(each for job in answers.redrives or () for each in _of_redrive(job, now_ms)),
    ]
    return sorted(found, key=lambda each: (each.level, -each.weight))


def _of_the_broker(statistics: Statistics | None) -> Iterator[Finding]:
    if statistics is None:
        return
    status = ("status",)
    for each in statistics["producers_wait"]:
        number = each["producers"]
        who = f"{counted(number, 'producer')} {'waits' if number == 1 else 'wait'}" if number else "Whoever sends will wait"
        yield Finding(Level.STOPPED, 1 + number, f"{who}: {each['why'] or each['limit']}", each["since_ms"], "", "", status)
    disk = statistics["disk"]
    if disk["low"]:
        yield Finding(Level.STOPPED, 0, f"The disk is nearly full: {size(disk['free_bytes'])} are free", None, "", "", status)
    if disk["waits_ms"] >= 1000:
        yield Finding(Level.STOPPED, 0, f"The disk has not answered for {span(disk['waits_ms'])}", None, "", "", status)
    if number := statistics["failed_not_kept"]:
        sentence = f"{counted(number, 'message')} that no disk keeps failed and found no room"
        yield Finding(Level.STOPPED, number, sentence, None, "", "", status)


def _of_fault(group: FaultGroup, now_ms: int) -> Iterator[Finding]:
    """Muted ones are not reported; those that fail no more are told of with the dead letters that they left."""
    if group["muted"]:
        return
    error, queue = error_of(group), group["queue"] or "a queue that is gone"
    number, where = group["fault"], f"/faults/{group['fault']}"
    command = ("faults", "show", number)
    if group["regressed_ms"] is not None and now_ms - group["last_ms"] < _DAY_MS:
        of = f" in {group['fixed_in']}" if group["fixed_in"] else ""
        sentence = f"{queue}: {error} is back, and was said to be fixed{of}"
        yield Finding(Level.FAILING, _damage(group) + 1, sentence, group["regressed_ms"], "fault", where, command)
    elif group["last_hour"]:
        sentence = f"{queue}: {_how_often(group, now_ms)}, {error}{_releases(group)}"
        yield Finding(Level.FAILING, _damage(group), sentence, group["first_ms"], "fault", where, command)


def _damage(group: FaultGroup) -> int:
    return int(group["dead"]) + int(group["waiting"]) + int(group["last_hour"])


def _how_often(group: FaultGroup, now_ms: int) -> str:
    """Of the last hour, or of as much of it as there was; and whether it goes on."""
    number, quiet_ms = group["last_hour"], now_ms - group["last_ms"]
    if quiet_ms > _GOES_ON_MS:
        return f"{counted(number, 'failure')} within the hour, the last one {span(quiet_ms)} ago"
    over_ms = min(_HOUR_MS, max(now_ms - group["first_ms"], _MINUTE_MS))
    if number * _MINUTE_MS >= 2 * over_ms:
        return f"{counted(round(number * _MINUTE_MS / over_ms), 'failure')} a minute"
    return f"{counted(number, 'failure')} within the hour"


def _releases(group: FaultGroup) -> str:
    """Where only one release has met it."""
    versions = {each["version"] for each in group["programs"]}
    if len(versions) != 1 or not (version := versions.pop()):
        return ""
    return f", release {version} only"


def error_of(fault: ErrorOfFault) -> str:
    """In one line."""
    whole = " ".join(f"{fault['error_class']}: {fault['text']}".removesuffix(": ").split())
    return whole if len(whole) <= 120 else f"{whole[:119]}…"


def _of_dead(dead: DeadQueue) -> Iterator[Finding]:
    queue, number = dead["queue"], dead["messages"]
    where = address("/dead-letters", [("queue", queue)])
    if parked := dead["reasons"].get("parked", 0):
        verb = "stays" if parked == 1 else "stay"
        sentence = f"{queue}: {counted(parked, 'dead letter')} {verb} in it, parked, with nowhere to go"
        yield Finding(Level.WAITING, parked, sentence, dead["oldest_ms"], "dead letters", where, ("explain", queue))
    if parked == number:
        return
    why = f", most of {error_of(dead['top_fault'])}" if dead["top_fault"] is not None else ""
    sentence = f"{queue}: {counted(number - parked, 'dead letter')}{why}"
    yield Finding(Level.WAITING, number - parked, sentence, dead["oldest_ms"], "dead letters", where, ("dead", queue))


def _of_queue(queue: Queue) -> Iterator[Finding]:
    name, ready = queue["queue"], queue["pending"] - queue["dead"]
    where = address("/queue", [("queue", name)])
    if queue["paused"]:
        kept = f", with {counted(ready, 'message')} ready" if ready > 0 else ""
        yield Finding(Level.WAITING, max(0, ready), f"{name} is paused{kept}", None, "queue", where, ("queue", "resume", name))
    elif ready > 0 and not queue["consumers"]:
        sentence = f"{name}: nobody consumes, and {counted(ready, 'message')} {'waits' if ready == 1 else 'wait'}"
        yield Finding(Level.WAITING, ready, sentence, None, "queue", where, ("consumers", name))


def _of_retrying(waiting: RetryingQueue) -> Iterator[Finding]:
    queue = waiting["queue"]
    where = address("/waiting", [("queue", queue)])
    if number := waiting["suspects"]:
        sentence = (
            f"{queue}: {counted(number, 'message')} may have killed consumers, and {'waits' if number == 1 else 'wait'} for one alone"
        )
        yield Finding(Level.WAITING, number, sentence, None, "what waits", where, ("retrying", queue))
    if number := waiting["on_hold"]:
        sentence = f"{queue}: {counted(number, 'message')} on hold until released by hand"
        yield Finding(Level.NOTE, number, sentence, None, "what waits", where, ("retrying", queue))


def _of_redrive(job: Redrive, now_ms: int) -> Iterator[Finding]:
    number, queue = job["job_id"], job["queue"]
    where, command = f"/redrives/{number}", ("redrives", "status", str(number))
    if job["state"] == "stopped" and now_ms - (job["ended_ms"] or 0) < _HOUR_MS:
        sentence = f"Redrive {number} of {queue} has stopped: {job['why']}"
        yield Finding(Level.FAILING, job["left"], sentence, job["ended_ms"], "redrive", where, command)
    elif job["state"] in ("running", "paused"):
        sentence = f"Redrive {number} of {queue} is {job['state']}, {job['sent']:,} sent"
        yield Finding(Level.NOTE, job["sent"], sentence, job["started_ms"], "redrive", where, command)
