"""Redrive jobs: started, or first only reckoned with; watched, paused, resumed, cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import ceil, floor
from typing import Annotated, Final, cast

from homing.journal.contract import FaultLife
from homing.journal.declarations import FilterContent

from ..answers.failures import PlannedPart, Redrive, RedrivePlan, Sample
from ..answers.parts import NumberedPage
from ..auth.access import Who, asks, needs, place_named, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.likely import likely
from ..core.message import MessageReference
from ..core.queue import Queue
from ..core.redrive_job import STOP_ABOVE, RedriveJob
from ..core.rights import Place, Right
from ..delivery.chosen import PAGES
from ..delivery.redriving import Redriving
from ..delivery.transfer import would_go_back
from ..errors import Refused
from . import arguments as read
from .counting import count_chosen, fault_lives
from .filters import Content, made
from .pages import AskedByNumber, Shown, whole
from .process import Process, in_steps

_MOST: Final = 1_000_000_000
_SAMPLES: Final = 5


def _per_cent(broker: Broker, name: str, value: object) -> int | None:
    return None if value is None else read.number(0, 100)(broker, name, value)


def describe(broker: Broker, job: RedriveJob) -> Redrive:
    """``sent_per_s``: from its start to its end or to now."""
    took_ms = max(1, (broker.now_ms() if job.ended_ms is None else job.ended_ms) - job.started_ms)
    return cast(Redrive, {**job.describe(), "waiting": job.waiting, "sent_per_s": round(1000 * job.sent / took_ms, 1)})


def _job(broker: Broker, who: Who, number: int, verb: str) -> RedriveJob:
    for job, places in broker.redriving.with_places():
        if job.job_id == number:
            broker.access.check(who, Right.BROWSE, *places, verb=verb)
            return job
    raise Refused("no-such-redrive", f"there is no redrive {number}", "homing redrives lists them")


@shown_only(Right.BROWSE)
def list_all(broker: Broker, who: Who, *, page: AskedByNumber) -> NumberedPage[Redrive] | list[Redrive]:
    """Those at work, and the last that have ended, the latest first."""
    shown = Shown(broker, who, Right.BROWSE, "redrives")
    jobs = [job for job, places in reversed(broker.redriving.with_places()) if all(map(shown, places))]
    return whole(page, jobs, shown, partial(describe, broker))


@shown_only(Right.BROWSE)
def one(broker: Broker, who: Who, *, redrive: read.MessageNumber = 0) -> Redrive:
    return describe(broker, _job(broker, who, redrive, "redrive-status"))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    queue: read.Queue
    filter: Content = field(default_factory=FilterContent)
    to: read.Queue | None = None
    rate: Annotated[int, read.number(0, _MOST)] = 0
    limit: Annotated[int, read.number(0, _MOST)] = 0
    newest_first: read.Flag = False
    canary: Annotated[int, read.number(0, _MOST)] = 0
    stop_above: Annotated[int | None, _per_cent] = STOP_ABOVE


@asks(Redriving.start)
def start(broker: Broker, who: Who, *, asked: _Asked) -> Redrive:
    """It works on by itself."""
    return describe(broker, broker.redriving.start(who, asked.queue, asked.to, _read(broker, who, asked)))


def _by(verb: Callable[[Redriving, Who, RedriveJob], None]) -> Callable[..., Redrive]:
    """Does this to the job that is named, and describes it."""

    @asks(verb)
    def handler(broker: Broker, who: Who, *, redrive: read.MessageNumber = 0) -> Redrive:
        job = _job(broker, who, redrive, f"{verb.__name__}-redrive")
        verb(broker.redriving, who, job)
        return describe(broker, job)

    return handler


pause, resume, cancel = map(_by, (Redriving.pause, Redriving.resume, Redriving.cancel))


def _read(broker: Broker, who: Who, asked: _Asked) -> RedriveJob:
    """As a job."""
    if asked.to is asked.queue:
        raise Refused("invalid-argument", f"the messages are in queue {asked.queue.name} already", "name another one, or none")
    made(broker, asked.filter)
    to = asked.to.name if asked.to is not None else None
    how = (asked.rate, asked.limit, asked.newest_first, asked.canary, asked.stop_above)
    return RedriveJob(0, asked.queue.name, who.user, to, asked.filter, *how)


def _of_queue(asked: _Asked) -> tuple[Place]:
    return (queue_place(asked.queue),)


# -- a dry run -----------------------------------------------------------------------------------------------------------


@needs((Right.BROWSE, _of_queue), action="reckon-redrive")
async def reckon(broker: Broker, who: Who, *, process: Process, asked: _Asked) -> RedrivePlan:
    """What a job would do: how many, from where to where, some of them, what at most so many would lose, and what would most likely come
    back, by why. Nothing is changed.

    Where each message has to be looked at, ``messages`` is how many there are to look at, and ``exact`` false. With a limit each of the
    parts is at most that.
    """
    queue, target, job, wanted = asked.queue, asked.to, _read(broker, who, asked), made(broker, asked.filter)
    counts, transient = await count_chosen(broker, process, queue, wanted)
    lives = await fault_lives(broker, process, {fault_id for fault_id, _ in counts if fault_id})
    groups = {each.fault_id: each for each in broker.faults.shown_to(who)}
    parts: Counter[tuple[str | None, str | None]] = Counter()
    fared: dict[tuple[str | None, str | None], list[FaultLife]] = {}
    bounces: Counter[tuple[str, str | None, str | None]] = Counter()
    if target is None:
        # What is no dead letter stays, but for what could not leave its queue.
        alive = counts.pop((0, None), 0)
        parked = min(alive, len(queue.parked))
        counts += Counter({(0, None): parked})
        transient.pop((0, None), None)
        bounces["not-dead", queue.name, None] = alive - parked
    for (fault_id, died_in), number in counts.items():
        group = groups.get(fault_id)
        to = target.name if target is not None else died_in
        fault = group.fingerprint if group is not None else None
        number = min(number, job.limit or number)
        parts[to, fault] += number
        fared.setdefault((to, fault), []).append(lives.get(fault_id, FaultLife()))
        if group is not None and group.muted:
            bounces["fault-muted", to, fault] += number
        # Of those that were folded into one it is not known of each.
        if group is not None and group.queue and not (fault_id in lives and lives[fault_id].succeeded):
            bounces["never-succeeded-since", to, fault] += number
    # Of each message it is not known before it is read.
    size = -(-queue.ready_bytes // max(1, queue.ready))
    of_each: Counter[str] = Counter()
    for (to, _), number in parts.items():
        if to is not None:
            of_each[to] += number
    for to, together in of_each.items():
        bounces.update(
            {(code, to, None): number for code, number in _in_the_way(broker, who, to, min(together, job.limit or together), size).items()}
        )
    found, _, _ = await in_steps(
        broker, broker.chosen.browse(who, queue, wanted, 0, min(_SAMPLES, job.limit or _SAMPLES), job.newest_first, PAGES)
    )
    total = min(counts.total(), job.limit or counts.total())
    if not broker.access.may(who, Right.CONSUME, queue_place(queue)):
        bounces["consume-refused", queue.name, None] = total
    # To another queue go messages that are not dead, too; what was sent with a delay keeps that.
    delayed = min(total, queue.waiting - queue.held_back) if target is not None else 0
    return {
        "queue": queue.name,
        "messages": total,
        "transient": min(total, transient.total()),
        "exact": not wanted.scans,
        "to": [_part(*where, number, fared[where]) for where, number in parts.most_common()],
        "samples": [_sample(each, target, broker.faults.of(who, each)) for each in found if target is not None or would_go_back(each)],
        "drops": [{"code": "redelivery-delay", "messages": delayed}] if delayed else [],
        "would_bounce": [
            {"code": code, "queue": to, "fault": fault, "messages": number} for (code, to, fault), number in bounces.most_common() if number
        ],
    }


def _part(to: str | None, fault: str | None, messages: int, lives: list[FaultLife]) -> PlannedPart:
    """With what became of those of the fault that were sent back before, and how many can be expected to succeed; nil: none was."""
    succeeded, died = sum(each.back_succeeded for each in lives), sum(each.back_died for each in lives)
    low, high = (share * messages for share in likely(succeeded, succeeded + died)) if succeeded + died else (None, None)
    least, most = None if low is None else floor(low), None if high is None else ceil(high)
    return {
        "queue": to,
        "fault": fault,
        "messages": messages,
        "back_succeeded": succeeded,
        "back_died": died,
        "least": least,
        "most": most,
    }


def _sample(reference: MessageReference, target: Queue | None, group: FaultGroup | None) -> Sample:
    """``died_in``: first; None: nowhere yet, and where it goes is where it is."""
    died_in = reference.hops[-1].detail["queue"] if reference.hops else None
    return {
        "message_id": reference.message.message_id,
        "died_in": died_in,
        "to": target.name if target is not None else died_in or reference.queue.name,
        "reason": reference.hops[0].detail["reason"] if reference.hops else None,
        "fault": group.fingerprint if group is not None else None,
        "transient": reference.in_memory_only,
        "entered_at_ms": reference.entered_at_ms,
    }


def _in_the_way(broker: Broker, who: Who, target: str, number: int, size: int) -> dict[str, int]:
    queue = broker.post_office.find_queue(target)
    allowed = broker.access.may(who, Right.SEND, place_named(target, queue.address if queue is not None else target))
    return broker.hand.in_the_way(target, number, size) | ({} if allowed else {"access-refused": number})
