"""Fault groups: failures that look alike, by queue; what became of their messages; muted, or said to be fixed."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from homing.journal.contract import FaultLife

from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.rights import Right
from ..errors import Refused
from . import arguments as read
from .counting import fault_lives
from .host import Host, in_thread, in_turns
from .pages import Shown

_MOST: Final = 250
_PROGRAM: Final = ("client_id", "host", "version", "first_ms", "last_ms")


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """A page of all groups, of one queue or of all, those with the most messages dead or waiting first. ``after``: ``next`` of the page
    before. ``since_ms``: met since then; ``new``: and not before, or back since then."""
    read.only(arguments, "queue", "limit", "after", "since_ms", "new", "contains")
    since_ms, new = read.number(arguments, "since_ms", 0, 0, read.MOST), read.flag(arguments, "new")
    limit, after = read.number(arguments, "limit", 100, 1, _MOST), read.number(arguments, "after", 0, 0, read.MOST)
    only = read.text(arguments, "queue") if arguments.get("queue") is not None else None
    shown = Shown(broker, who, Right.BROWSE, "faults")
    groups = [group for group, place in broker.places_of_faults() if (only is None or group.queue == only) and shown(place)]
    known = bool(groups)
    groups = [each for each in groups if (max(each.first_ms, each.regressed_ms or 0) if new else each.last_ms) >= since_ms]
    if only is not None and not known:
        shown(queue_place(read.queue(broker, arguments)))
    shown.check()
    meant = read.contained(arguments)
    groups = [each for each in groups if meant(f"{each.error_class}: {each.text}")]
    counts = broker.fault_groups
    in_trouble = {each: counts.graves.number(each) + counts.waits(each) for each in groups}
    groups.sort(key=lambda each: (-in_trouble[each], -each.last_ms, each.fingerprint))
    page = groups[after : after + limit]
    hours = await in_thread(lambda: host.fault_hours([each.fault_id for each in page]))
    items = [{**said, "hours": hours[each.fault_id]} for each, said in zip(page, await _described(broker, host, page), strict=True)]
    return {"items": items, "next": after + limit if len(groups) > after + limit else None, "left_out": shown.left_out()}


@shown_only(Right.BROWSE)
async def one(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """One fault, in every queue that met it: its groups, text and traceback of the first failure, failures by hour."""
    read.only(arguments, "fault")
    groups = found(broker, who, arguments, "fault")
    stored = await in_thread(lambda: host.describe_fault([each.fault_id for each in groups]))
    first = groups[0]
    return {
        "fault": first.fingerprint,
        "error_class": first.error_class,
        **stored._asdict(),
        "groups": await _described(broker, host, groups),
    }


@asks("mute_fault")
def mute(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    """Nothing more is reported of the fault, or again with ``muted`` false; it is counted as ever."""
    read.only(arguments, "fault", "muted")
    groups, muted = _named(broker, who, arguments, "mute-fault"), read.flag({"muted": True, **arguments}, "muted")
    broker.mute_fault(who, groups, muted)
    return {"fault": groups[0].fingerprint, "muted": muted}


@asks("fault_fixed")
def fixed(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    """The fault is fixed in ``version``, of the programs that met it, or without one from now on; should it come back, that is reported.
    With ``fixed`` false that is taken back."""
    read.only(arguments, "fault", "version", "fixed")
    groups = _named(broker, who, arguments, "fault-fixed")
    version: str | None = read.text(arguments, "version") if arguments.get("version") is not None else ""
    if not read.flag({"fixed": True, **arguments}, "fixed"):
        version = None
    broker.fault_fixed(who, groups, version)
    return {"fault": groups[0].fingerprint, "fixed_in": version}


def _named(broker: Broker, who: Who, arguments: dict[str, Any], verb: str) -> list[FaultGroup]:
    """``found``, of a fault that something may be said of."""
    groups = found(broker, who, arguments, verb)
    if not groups[0].queue:
        raise Refused("invalid-argument", "many faults were folded into this one", "name one that is still told apart")
    return groups


def found(broker: Broker, who: Who, arguments: dict[str, Any], verb: str) -> list[FaultGroup]:
    """The groups of the one fault that ``fault`` names, by its fingerprint or the beginning of that. Raises Refused."""
    name = read.text(arguments, "fault")
    shown = Shown(broker, who, Right.BROWSE, verb)
    groups = [group for group, place in broker.places_of_faults() if group.is_called(name) and shown(place)]
    shown.check()
    prints = sorted({each.fingerprint for each in groups})
    if not prints:
        raise Refused("no-such-fault", f"there is no fault {name}", "homing faults lists them")
    if len(prints) > 1:
        raise Refused("invalid-argument", f"{len(prints)} faults begin with {name}: {', '.join(prints[:5])}", "write more of it")
    return groups


async def _described(broker: Broker, host: Host, groups: list[FaultGroup]) -> list[dict[str, Any]]:
    lives = await fault_lives(broker, host, [each.fault_id for each in groups])
    transient = Counter[int]()
    for each in await in_turns(broker, broker.dead_in_memory()):
        transient[each.fault_id] += each.messages
    return [_describe(broker, each, lives[each.fault_id], transient[each.fault_id]) for each in groups]


def _describe(broker: Broker, group: FaultGroup, life: FaultLife, transient: int) -> dict[str, Any]:
    """``transient``: of its dead letters."""
    dead = broker.fault_groups.graves.of(group)
    return {
        "fault": group.fingerprint,
        "queue": group.queue,
        "error_class": group.error_class,
        "text": group.text,
        "first_ms": group.first_ms,
        "last_ms": group.last_ms,
        **life._asdict(),
        "dead": sum(each.messages for each in dead),
        "transient": transient + life.transient,
        "dead_in": sorted({each.queue.name for each in dead}),
        "message_ids": list(dict.fromkeys(group.message_ids)),  # one that failed again stands in them again
        "programs": [dict(zip(_PROGRAM, (*program, *times), strict=True)) for program, times in group.programs.items()],
        "muted": group.muted,
        "fixed_in": group.fixed_in,
        "fixed_ms": group.fixed_ms,
        "regressed_ms": group.regressed_ms,
    }
