"""What failed and waits to be tried again: what it is, when it goes, and other times for it; and a calendar of all that is due."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

from ..answers.failures import Awaited, Due, DueRow, RepeatedSends, Retried, RetryingMessage, RetryingMessages, RetryingQueue
from ..answers.parts import NumberedPage
from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.message import ON_HOLD_MS, MessageReference, Where
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.redelivery import MAX_DELAY_MS, attempts_allowed, under
from ..core.rights import Right
from ..delivery.retrying import Retrying
from ..errors import Refused
from ..steps import LOOK_STEP, Steps
from . import arguments as read
from .filters import ALL, wanted
from .messages import describe, describe_fault
from .one_message import awaited_by
from .pages import AskedByNumber, Shown, whole
from .process import Process, in_thread

_MAX_PAGE: Final = 250
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
#: Faults of a queue that are named.
_FAULTS: Final = 3
#: Where a page of them begins.
_Cursor = Annotated[tuple[int, int], read.cursor(0, read.MOST)]
_FROM_THE_BEGINNING: Final = (0, 0)


def _living(broker: Broker, name: str, given: object) -> Filter:
    found = wanted(broker, name, given)
    if found.reason is not None:
        raise Refused("invalid-argument", "a reason is what a dead letter has, and these are not dead", "say which by fault or error_type")
    return found


_Living = Annotated[Filter, _living]


@asks(Retrying.retry)
def retry(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue,
    filter_: _Living = ALL,
    after: _Cursor = _FROM_THE_BEGINNING,
    at_ms: read.Number | None = None,
    now: read.Flag = False,
    hold: read.Flag = False,
    release: read.Flag = False,
) -> Steps[Retried]:
    """Of what waits to be tried again, ``now``, at ``at_ms``, or ``hold``: not before ``release``, which lets go what is on hold.

    ``on_hold``: how many of the queue were so before.
    """
    ways = now + hold + release + (at_ms is not None)
    if ways != 1:
        raise Refused("invalid-argument", f"{ways} of now, at_ms, hold and release are given", "give one of them")
    due_at_ms = ON_HOLD_MS if hold else 0
    if at_ms is not None:
        now_ms = broker.now_ms()
        # A time that has come is now.
        due_at_ms = max(at_ms, now_ms + 1)
        if due_at_ms > now_ms + MAX_DELAY_MS:
            raise Refused("invalid-argument", "that is more than ten years away", "name an earlier time, or hold them")
    on_hold = queue.held_back
    messages, looked_at, end = yield from broker.retrying.retry(who, queue, filter_, due_at_ms, release, after)
    return {"messages": messages, "looked_at": looked_at, "next": None if end is None else [*end], "on_hold": on_hold}


@asks(Retrying.browse)
def peek(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue,
    filter_: _Living = ALL,
    limit: Annotated[int, read.number(1, _MAX_PAGE)] = 20,
    after: _Cursor = _FROM_THE_BEGINNING,
) -> Steps[RetryingMessages]:
    """A page of what waits to be tried again, in the order in which it goes, what is on hold last."""
    found, looked_at, end = yield from broker.retrying.browse(who, queue, filter_, after, limit)
    waits_for = awaited_by(queue, broker.now_ms())
    messages = [_describe(reference, group, waits_for if reference.suspect else None) for reference, group in found]
    return {"messages": messages, "looked_at": looked_at, "next": None if end is None else [*end]}


def _describe(reference: MessageReference, group: FaultGroup | None, waits_for: Awaited | None) -> RetryingMessage:
    described = describe(reference)
    del described["body"]
    settings = reference.queue.settings
    allowed = attempts_allowed(settings, None)
    by_rule = {rule.name: attempts_allowed(under(rule, settings, None).settings, None) for rule in settings.rules}
    return {
        **described,
        "sequence": reference.sequence,
        "attempts_allowed": allowed,
        "attempts_allowed_by_rule": by_rule,
        "fault": describe_fault(group),
        "waits_for": waits_for,
    }


@asks(Retrying.repeated)
def repeated(broker: Broker, who: Who, *, queue: read.Queue, after: _Cursor = _FROM_THE_BEGINNING) -> Steps[RepeatedSends]:
    """A page of what is to come again, in the order in which it goes. The next page may have more of one send."""
    found, looked_at, end = yield from broker.retrying.repeated(who, queue, after)
    sends: list[Any] = [dataclasses.asdict(each) for each in found]
    return {"repeated": sends, "looked_at": looked_at, "next": None if end is None else [*end]}


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, *, process: Process, page: AskedByNumber) -> NumberedPage[RetryingQueue] | list[RetryingQueue]:
    """One for each queue in which something waits: how much, sent with a delay too, suspects, which wait for a consumer of their own, when
    the first and the last go, and what most of what is to be tried again failed of, what is ready included.

    How many of each fault wait for their time only the rows know: to count a million takes most of a second, where they are in memory.
    """
    shown = Shown(broker, who, Right.BROWSE, "retrying")
    waiting_in = [queue for queue in broker.post_office.queues.values() if queue.waiting or queue.suspects]
    queues = {queue.queue_id: queue for queue in waiting_in if shown(queue_place(queue))}
    times = await in_thread(lambda: process.past().first_and_last([*queues], broker.now_ms()))
    for queue_id, queue in queues.items():
        due = [*times.get(queue_id, ()), *await _in_memory_only(queue, broker.now_ms())]
        times |= {queue_id: (min(due), max(due))} if due else {}
    groups: dict[str, list[tuple[int, FaultGroup]]] = {}
    for group in broker.faults.shown_to(who):
        if (number := broker.fault_groups.waits(group)) > 0:
            groups.setdefault(group.queue, []).append((number, group))
    items: list[RetryingQueue] = [
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
    return whole(page, items, shown, lambda each: each)


@shown_only(Right.MONITOR)
async def due(broker: Broker, who: Who, *, process: Process, queue: read.Queue | None = None) -> Due:
    """How many messages are due when, of one queue or of all, whether sent with a delay or to be tried again: by the minute up to the end
    of the next hour, then by the hour for two days, then by the day."""
    shown = Shown(broker, who, Right.MONITOR, "due")
    queues = [each for each in ([queue] if queue is not None else broker.post_office.queues.values()) if shown(queue_place(each))]
    shown.check()
    now_ms = broker.now_ms()
    parts = ((_next(now_ms, _HOUR_MS, 2), _MINUTE_MS), (_next(now_ms, _DAY_MS, 3), _HOUR_MS), (ON_HOLD_MS, _DAY_MS))
    found = Counter(await in_thread(lambda: process.past().calendar([each.queue_id for each in queues if each.waiting], now_ms, parts)))
    for each in queues:
        for due_at_ms in await _in_memory_only(each, now_ms):
            found[due_at_ms - due_at_ms % _width(due_at_ms, parts)] += 1
    rows: list[DueRow] = [
        {"from_ms": at_ms, "until_ms": at_ms + _width(at_ms, parts), "messages": number} for at_ms, number in sorted(found.items())
    ]
    return {"now_ms": now_ms, "due": rows, "on_hold": sum(each.held_back for each in queues), "left_out": shown.left_out()}


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
