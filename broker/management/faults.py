"""Fault groups: failures that look alike, by queue; what became of their messages; muted, or said to be fixed."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from homing.journal.contract import FaultLife

from ..answers.failures import Fault, FaultOfList, Muted, Program, SaidFixed
from ..answers.failures import FaultGroup as DescribedGroup
from ..answers.parts import NumberedPage
from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.rights import Right
from ..delivery.faults import Faults
from ..errors import Refused
from . import arguments as read
from .counting import fault_lives
from .pages import Shown
from .process import Process, in_steps, in_thread

_MOST: Final = 250


@shown_only(Right.BROWSE)
async def list_all(
    broker: Broker,
    who: Who,
    *,
    process: Process,
    queue: read.Text | None = None,
    limit: Annotated[int, read.number(1, _MOST)] = 100,
    after: read.Number = 0,
    since_ms: read.Number = 0,
    new: read.Flag = False,
    contains: read.Contained = lambda text: True,
) -> NumberedPage[FaultOfList]:
    """A page of all groups, of one queue or of all, those with the most messages dead or waiting first. ``after``: ``next`` of the page
    before. ``since_ms``: met since then; ``new``: and not before, or back since then."""
    shown = Shown(broker, who, Right.BROWSE, "faults")
    groups = [group for group, place in broker.faults.with_places() if (queue is None or group.queue == queue) and shown(place)]
    known = bool(groups)
    groups = [each for each in groups if (max(each.first_ms, each.regressed_ms or 0) if new else each.last_ms) >= since_ms]
    if queue is not None and not known:
        shown(queue_place(read.queue_named(broker, queue)))
    shown.check()
    groups = [each for each in groups if contains(f"{each.error_class}: {each.text}")]
    counts = broker.fault_groups
    in_trouble = {each: counts.dead_letters.number(each) + counts.waits(each) for each in groups}
    groups.sort(key=lambda each: (-in_trouble[each], -each.last_ms, each.fingerprint))
    page = groups[after : after + limit]
    hours = await in_thread(lambda: process.past().fault_hours([each.fault_id for each in page], broker.now_ms()))
    described = await _described(broker, process, page)
    items: list[FaultOfList] = [{**said, "hours": hours[each.fault_id]} for each, said in zip(page, described, strict=True)]
    return {"items": items, "next": after + limit if len(groups) > after + limit else None, "left_out": shown.left_out()}


@shown_only(Right.BROWSE)
async def one(broker: Broker, who: Who, *, process: Process, fault: read.Text) -> Fault:
    """One fault, in every queue that met it: its groups, text and traceback of the first failure, failures by hour."""
    groups = found(broker, who, fault, "fault")
    stored = await in_thread(lambda: process.past().describe_fault([each.fault_id for each in groups], broker.now_ms()))
    first = groups[0]
    return {
        "fault": first.fingerprint,
        "error_class": first.error_class,
        "text": stored.text,
        "traceback": stored.traceback,
        "hours": stored.hours,
        "groups": await _described(broker, process, groups),
    }


@asks(Faults.mute)
def mute(broker: Broker, who: Who, *, fault: read.Text, muted: read.Flag = True) -> Muted:
    """Nothing more is reported of the fault, or again with ``muted`` false; it is counted as ever."""
    groups = _named(broker, who, fault, "mute-fault")
    broker.faults.mute(who, groups, muted)
    return {"fault": groups[0].fingerprint, "muted": muted}


@asks(Faults.fixed)
def fixed(broker: Broker, who: Who, *, fault: read.Text, version: read.Text = "", fixed: read.Flag = True) -> SaidFixed:
    """The fault is fixed in ``version``, of the programs that met it, or without one from now on; should it come back, that is reported.
    With ``fixed`` false that is taken back."""
    groups, fixed_in = _named(broker, who, fault, "fault-fixed"), version if fixed else None
    broker.faults.fixed(who, groups, fixed_in)
    return {"fault": groups[0].fingerprint, "fixed_in": fixed_in}


def _named(broker: Broker, who: Who, name: str, verb: str) -> list[FaultGroup]:
    """``found``, of a fault that something may be said of."""
    groups = found(broker, who, name, verb)
    if not groups[0].queue:
        raise Refused("invalid-argument", "many faults were folded into this one", "name one that is still told apart")
    return groups


def found(broker: Broker, who: Who, name: str, verb: str) -> list[FaultGroup]:
    """The groups of the one fault of that name, its fingerprint or the beginning of that. Raises Refused."""
    shown = Shown(broker, who, Right.BROWSE, verb)
    groups = [group for group, place in broker.faults.with_places() if group.is_called(name) and shown(place)]
    shown.check()
    prints = sorted({each.fingerprint for each in groups})
    if not prints:
        raise Refused("no-such-fault", f"there is no fault {name}", "homing faults lists them")
    if len(prints) > 1:
        raise Refused("invalid-argument", f"{len(prints)} faults begin with {name}: {', '.join(prints[:5])}", "write more of it")
    return groups


async def _described(broker: Broker, process: Process, groups: list[FaultGroup]) -> list[DescribedGroup]:
    lives = await fault_lives(broker, process, [each.fault_id for each in groups])
    transient = Counter[int]()
    for each in await in_steps(broker, broker.counting.dead_in_memory()):
        transient[each.fault_id] += each.messages
    return [_describe(broker, each, lives[each.fault_id], transient[each.fault_id]) for each in groups]


def _describe(broker: Broker, group: FaultGroup, life: FaultLife, transient: int) -> DescribedGroup:
    """``transient``: of its dead letters."""
    dead = broker.fault_groups.dead_letters.of(group)
    return {
        "fault": group.fingerprint,
        "queue": group.queue,
        "error_class": group.error_class,
        "text": group.text,
        "first_ms": group.first_ms,
        "last_ms": group.last_ms,
        "failures": life.failures,
        "waiting": life.waiting,
        "succeeded": life.succeeded,
        "died": life.died,
        "redriven": life.redriven,
        "back_succeeded": life.back_succeeded,
        "back_died": life.back_died,
        "last_hour": life.last_hour,
        "last_day": life.last_day,
        "transient": transient + life.transient,
        "dead": sum(each.messages for each in dead),
        "dead_in": sorted({each.queue.name for each in dead}),
        "message_ids": list(dict.fromkeys(group.message_ids)),  # one that failed again stands in them again
        "programs": [_program(*program, *times) for program, times in group.programs.items()],
        "muted": group.muted,
        "fixed_in": group.fixed_in,
        "fixed_ms": group.fixed_ms,
        "regressed_ms": group.regressed_ms,
    }


def _program(client_id: str, host: str, version: str, first_ms: int, last_ms: int) -> Program:
    return {"client_id": client_id, "host": host, "version": version, "first_ms": first_ms, "last_ms": last_ms}
