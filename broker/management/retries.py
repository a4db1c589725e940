"""What failed and waits to be tried again: what it is, when it goes, and other times for it; and a calendar of all that is due."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.letter_filter import Filter
from ..core.message import ON_HOLD_MS, MessageReference, Where
from ..core.queue import Queue
from ..core.redelivery import MAX_DELAY_MS, attempts_allowed, under
from ..core.rights import Right
from ..errors import Refused
from ..steps import LOOK_STEP, Steps
from . import arguments as read
from .filters import read_filter
from .host import Host, in_thread
from .messages import describe, describe_fault
from .pages import Shown, whole

_MAX_PAGE: Final = 250
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
#: Faults of a queue that are named.
_FAULTS: Final = 3
#: What is to become of them, by argument; or ``at_ms``.
_FLAGS: Final = ("now", "hold", "release")


@asks("retry")
def retry(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Of what waits to be tried again, ``now``, at ``at_ms``, or ``hold``: not before ``release``, which lets go what is on hold.

    ``on_hold``: how many of the queue were so before.
    """
    read.only(arguments, "queue", "filter", "after", "at_ms", *_FLAGS)
    queue, wanted = read.queue(broker, arguments), _filter(broker, arguments)
    ways = [name for name in _FLAGS if read.flag(arguments, name)] + ["at_ms"] * (arguments.get("at_ms") is not None)
    if len(ways) != 1:
        raise Refused("invalid-argument", f"{len(ways)} of now, at_ms, hold and release are given", "give one of them")
    due_at_ms = 0
    if ways == ["at_ms"]:
        now_ms = broker.now_ms()
        # A time that has come is now.
        due_at_ms = max(read.number(arguments, "at_ms", 0, 0, read.MOST), now_ms + 1)
        if due_at_ms > now_ms + MAX_DELAY_MS:
            raise Refused("invalid-argument", "that is more than ten years away", "name an earlier time, or hold them")
    elif ways == ["hold"]:
        due_at_ms = ON_HOLD_MS
    on_hold = queue.held_back
    done = yield from broker.retry(who, queue, wanted, due_at_ms, ways == ["release"], _place(arguments))
    return {**dict(zip(("messages", "looked_at", "next"), done, strict=True)), "on_hold": on_hold}


@asks("browse_retrying")
def peek(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """A page of what waits to be tried again, in the order in which it goes, what is on hold last."""
    read.only(arguments, "queue", "filter", "limit", "after")
    queue, limit = read.queue(broker, arguments), read.number(arguments, "limit", 20, 1, _MAX_PAGE)
    found, looked_at, after = yield from broker.browse_retrying(who, queue, _filter(broker, arguments), _place(arguments), limit)
    awaited = queue.awaited(broker.now_ms())
    waits_for = awaited._asdict() if awaited is not None else None
    messages = [{**_describe(*each), "waits_for": waits_for if each[0].suspect else None} for each in found]
    return {"messages": messages, "looked_at": looked_at, "next": after}


def _describe(reference: MessageReference, group: FaultGroup | None) -> dict[str, Any]:
    described = {name: value for name, value in describe(reference).items() if name != "body"}
    settings = reference.queue.settings
    allowed = attempts_allowed(settings, None)
    by_rule = {rule.name: attempts_allowed(under(rule, settings, None).settings, None) for rule in settings.rules}
    return {
        **described,
        "sequence": reference.sequence,
        "attempts_allowed": allowed,
        "attempts_allowed_by_rule": by_rule,
        "fault": describe_fault(group),
    }


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any] | list[dict[str, Any]]:
    """One for each queue in which something waits: how much, sent with a delay too, suspects, which wait for a consumer of their own, when
    the first and the last go, and what most of what is to be tried again failed of, what is ready included.

    How many of each fault wait for their time only the rows know: to count a million takes most of a second, where they are in memory.
    """
    read.only(arguments, "limit", "after")
    shown = Shown(broker, who, Right.BROWSE, "retrying")
    waiting_in = [queue for queue in broker.post_office.queues.values() if queue.waiting or queue.suspects]
    queues = {queue.queue_id: queue for queue in waiting_in if shown(queue_place(queue))}
    times: dict[int, tuple[int, int]] = await in_thread(lambda: host.first_and_last([*queues]))
    for queue_id, queue in queues.items():
        due = [*times.get(queue_id, ()), *await _in_memory_only(queue, broker.now_ms())]
        times |= {queue_id: (min(due), max(due))} if due else {}
    groups: dict[str, list[tuple[int, FaultGroup]]] = {}
    for group in broker.faults(who):
        if (number := broker.fault_groups.waits(group)) > 0:
            groups.setdefault(group.queue, []).append((number, group))
    items = [
        {
            "queue": queue.name,
            "scheduled": queue.waiting - queue.held_back,
            "on_hold": queue.held_back,
            "suspects": len(queue.suspects),
            "first_ms": times.get(queue_id, (None, None))[0],
            "last_ms": times.get(queue_id, (None, None))[1],
            "faults": [
                {"fault": group.fingerprint, "error_class": group.error_class, "text": group.text, "waiting": waiting}
                for waiting, group in sorted(groups.get(queue.name, ()), key=lambda each: -each[0])[:_FAULTS]
            ],
        }
        for queue_id, queue in sorted(queues.items(), key=lambda each: each[1].name)
    ]
    return whole(arguments, items, shown, dict)


@shown_only(Right.MONITOR)
async def due(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """How many messages are due when, of one queue or of all, whether sent with a delay or to be tried again: by the minute up to the end
    of the next hour, then by the hour for two days, then by the day."""
    read.only(arguments, "queue")
    only = read.queue(broker, arguments) if arguments.get("queue") is not None else None
    queues = [only] if only is not None else list(broker.post_office.queues.values())
    shown = Shown(broker, who, Right.MONITOR, "due")
    queues = [queue for queue in queues if shown(queue_place(queue))]
    shown.check()
    now_ms = broker.now_ms()
    parts = ((_next(now_ms, _HOUR_MS, 2), _MINUTE_MS), (_next(now_ms, _DAY_MS, 3), _HOUR_MS), (ON_HOLD_MS, _DAY_MS))
    found = Counter(await in_thread(lambda: host.calendar([queue.queue_id for queue in queues if queue.waiting], now_ms, parts)))
    for queue in queues:
        for due_at_ms in await _in_memory_only(queue, now_ms):
            found[due_at_ms - due_at_ms % _width(due_at_ms, parts)] += 1
    rows = [{"from_ms": at_ms, "until_ms": at_ms + _width(at_ms, parts), "messages": number} for at_ms, number in sorted(found.items())]
    return {"now_ms": now_ms, "due": rows, "on_hold": sum(queue.held_back for queue in queues), "left_out": shown.left_out()}


def _next(now_ms: int, size_ms: int, number: int) -> int:
    """When the next but so many of these begins."""
    return (now_ms // size_ms + number) * size_ms


def _width(at_ms: int, parts: Sequence[tuple[int, int]]) -> int:
    return next(width_ms for until_ms, width_ms in parts if at_ms < until_ms)


async def _in_memory_only(queue: Queue, now_ms: int) -> list[int]:
    """When those go that stand on no page."""
    found: list[int] = []
    references = list(queue.references.values()) if queue.scheduled else []
    for start in range(0, len(references), LOOK_STEP):
        if start:
            await asyncio.sleep(0)
        waiting = (each for each in references[start : start + LOOK_STEP] if each.where is Where.SCHEDULED and each.in_memory_only)
        found += [each.due_at_ms for each in waiting if each.due_at_ms is not None and now_ms < each.due_at_ms < ON_HOLD_MS]
    return found


def _filter(broker: Broker, arguments: dict[str, Any]) -> Filter:
    wanted = read_filter(broker, arguments)
    if wanted.reason is not None:
        raise Refused("invalid-argument", "a reason is what a dead letter has, and these are not dead", "say which by fault or error_type")
    return wanted


def _place(arguments: dict[str, Any]) -> tuple[int, int]:
    """``after``: ``next`` of the answer before."""
    after = arguments.get("after")
    if after is None:
        return 0, 0
    if type(after) is list and len(after) == 2 and all(type(each) is int and 0 <= each <= read.MOST for each in after):
        return after[0], after[1]
    raise Refused("invalid-argument", "after must be what next was", "leave it out for the first page")
