"""Dead letters: which there are, from where and why; and those that a filter takes: shown, deleted, moved.

What a filter has to look at, message by message, it does for a while: the answer says how many were looked at and where to go on.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from ..answers.failures import DeadQueue, Done, Messages
from ..answers.parts import NumberedPage
from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import Dead, FaultGroup
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.rights import Right
from ..delivery.chosen import PAGES, Chosen
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .filters import ALL, Wanted
from .messages import describe_fault, describe_to
from .pages import AskedByNumber, Shown, whole
from .process import Process, in_steps, in_thread

_MAX_PAGE: Final = 1_000
_SOURCES: Final = 20


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, *, process: Process, page: AskedByNumber) -> NumberedPage[DeadQueue] | list[DeadQueue]:
    """One for each queue that has dead letters, or where some are parked, the fullest first."""
    groups = {each.fault_id: each for each in broker.faults.shown_to(who)}
    shown = Shown(broker, who, Right.BROWSE, "dead-letters")
    queues = [each for each in broker.post_office.queues.values() if (each.dead or each.parked) and shown(queue_place(each))]
    fullest = sorted(queues, key=lambda each: (-(each.dead or len(each.parked)), each.name))
    looked_up, _ = page.of(fullest)
    # Now, for they may leave while the rest is looked up.
    parked = {each: _of_parked(each) for each in looked_up if not each.dead}
    dead: dict[Queue, list[Dead]] = {}
    for each in broker.fault_groups.dead_letters.within(set(looked_up)):
        dead.setdefault(each.queue, []).append(each)
    times = await in_thread(lambda: process.past().dead_since([each.queue_id for each in looked_up]))
    transient = Counter[int]()
    for part in await in_steps(broker, broker.counting.dead_in_memory()):
        oldest_ms, newest_ms = times.get(part.queue_id, (part.oldest_ms, part.newest_ms))
        times[part.queue_id] = min(oldest_ms, part.oldest_ms), max(newest_ms, part.newest_ms)
        transient[part.queue_id] += part.messages
    just_now = (broker.now_ms(),) * 2

    def describe(queue: Queue) -> DeadQueue:
        came = times.get(queue.queue_id, just_now)
        return parked[queue] if queue in parked else _of_dead(broker, queue, dead[queue], groups, transient[queue.queue_id], came)

    return whole(page, fullest, shown, describe)


def _of_dead(
    broker: Broker, queue: Queue, parts: list[Dead], groups: dict[int, FaultGroup], transient: int, came: tuple[int, int]
) -> DeadQueue:
    by_fault: dict[int, int] = {}
    reasons: dict[str, int] = {}
    for each in parts:
        by_fault[each.fault_id] = by_fault.get(each.fault_id, 0) + each.messages
        reasons[each.reason] = reasons.get(each.reason, 0) + each.messages
    top = groups.get(max(by_fault, key=lambda fault_id: by_fault[fault_id]))
    sources = sorted({each.source for each in parts if each.fault_id in groups and each.source})[:_SOURCES]
    settings = [broker.in_force.of(source) for source in sources]
    return {
        "queue": queue.name,
        "transient": transient,
        "oldest_ms": came[0],
        "newest_ms": came[1],
        "messages": sum(by_fault.values()),
        "faults": len(by_fault),
        "top_fault": describe_fault(top),
        "top_messages": max(by_fault.values()),
        "reasons": reasons,
        "sources": sources,
        "refused": str(Right.BROWSE) if any(each.fault_id and each.fault_id not in groups for each in parts) else None,
        "owners": sorted({each.owner for each in settings if each.owner}),
        "runbooks": sorted({each.runbook for each in settings if each.runbook}),
        "sent_back": sum(each.messages for each in parts if each.sent_back),
    }


def _of_parked(queue: Queue) -> DeadQueue:
    """Dead letters that found no place, and stay in the queue that they came from."""
    parked = list(queue.parked.values())
    came = [each.entered_at_ms for each in parked]
    return {
        "queue": queue.name,
        "messages": len(parked),
        "transient": sum(not each.durable for each in parked),
        "oldest_ms": min(came),
        "newest_ms": max(came),
        "top_messages": len(parked),
        "reasons": {"parked": len(parked)},
        "sources": [queue.name],
        "owners": [queue.settings.owner] if queue.settings.owner else [],
        "runbooks": [queue.settings.runbook] if queue.settings.runbook else [],
        "faults": 0,
        "top_fault": None,
        "sent_back": 0,
        "refused": None,
    }


@asks(Chosen.browse)
def peek(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue,
    filter_: Wanted = ALL,
    limit: Annotated[int, read.number(1, _MAX_PAGE)] = 20,
    after: read.Number = 0,
    newest_first: read.Flag = False,
    pages: Annotated[int, read.number(1, PAGES)] = PAGES,
) -> Steps[Messages]:
    """A page of what the filter takes, in the order in which it came."""
    found, looked_at, end = yield from broker.chosen.browse(who, queue, filter_, after, limit, newest_first, pages)
    shown = [describe_to(broker, who, each) for each in found]
    for each, described in zip(found, shown, strict=True):
        described["signed_by"] = broker.editing.signatures_of(each.message)
    return {"messages": shown, "looked_at": looked_at, "next": end}


@asks(Chosen.delete)
def delete(
    broker: Broker, who: Who, *, queue: read.Queue, filter_: Wanted = ALL, after: read.Number = 0, living: read.Flag = False
) -> Steps[Done]:
    """Removes what is dead, or ``living``, of what the filter takes and nobody holds."""
    _check_filter(filter_, "homing queue purge removes all of a queue")
    messages, looked_at, end = yield from broker.chosen.delete(who, queue, filter_, after, living)
    return {"messages": messages, "looked_at": looked_at, "next": end}


@asks(Chosen.move)
def move(broker: Broker, who: Who, *, queue: read.Queue, filter_: Wanted = ALL, after: read.Number = 0, to: read.Queue) -> Steps[Done]:
    """Into queue ``to``, failures at 0."""
    _check_filter(filter_, "homing redrive QUEUE --to TARGET moves all of a queue")
    if queue is to:
        raise Refused("invalid-argument", f"the messages are in queue {to.name} already", "name another queue")
    messages, looked_at, end = yield from broker.chosen.move(who, queue, to, filter_, after)
    return {"messages": messages, "looked_at": looked_at, "next": end}


def _check_filter(wanted: Filter, for_all: str) -> None:
    """``for_all``: what does it with all of a queue."""
    if wanted == ALL:
        raise Refused("invalid-argument", "the filter is empty, and would take all", f"say which are meant; {for_all}")
