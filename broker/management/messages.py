"""Messages: peek without consuming, redrive, and what became of a transaction."""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from homing.journal.contract import ReferenceRecord

from ..broker import Broker
from ..core.message import MessageReference, Where, told
from ..core.queue import Queue
from ..delivery.steps import LOOK_STEP, Steps
from ..errors import Refused
from ..recording.mapping import reference_of
from ..topology.amqp.arguments import MOST_PRIORITY
from . import arguments as read
from .queues import STATE_OF

#: The place before the first message of the highest priority there is.
_BEFORE_ALL: Final = -MOST_PRIORITY - 1
_MAX_PAGE: Final = 1000


def describe(reference: MessageReference) -> dict[str, Any]:
    message = reference.message
    return {
        "message_id": message.message_id,
        "address": message.address,
        "state": STATE_OF[reference.where],
        "body": message.body,
        "properties": reference.visible_properties() or {},
        "priority": reference.priority,
        "durable": message.durable,
        "sent_at_ms": message.sent_at_ms,
        "entered_at_ms": reference.entered_at_ms,
        "expires_at_ms": reference.expires_at_ms,
        "due_at_ms": reference.due_at_ms,
        "delivery_count": reference.delivery_count,
        "failed": reference.failed,
        "assigned": reference.assigned,
        "suspect": reference.suspect,
        "hops": told(reference.hops or [], message.message_id),
    }


def peek(broker: Broker, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """A page of a queue in delivery order, whatever state its messages are in. ``after``: ``next`` of the page before."""
    read.only(arguments, "queue", "limit", "after", "selector")
    queue = read.queue(broker, arguments)
    limit = read.number(arguments, "limit", 20, 1, _MAX_PAGE)
    after = _place(arguments)
    ordered = yield from _first_after(list(queue.references.values()), after or [_BEFORE_ALL, 0], limit + 1)
    ordered = yield from _with_disk(broker, queue, ordered, after or [_BEFORE_ALL, 0], limit + 1)
    found: list[dict[str, Any]] = []
    size, last = 0, after
    for place, reference in ordered[:limit]:
        shown = describe(reference)
        size += reference.message.size + 2 * len(shown["properties"].get("_HOMING_HOPS", ""))
        if found and size > broker.limits.answer_bytes:
            break
        found.append(shown)
        last = list(place)
    while not broker.ledger.ids_reserved:
        yield True
    return {"messages": found, "next": last if len(found) < len(ordered) else None}


_Place = tuple[tuple[int, int], MessageReference]


def _place(arguments: dict[str, Any]) -> list[int] | None:
    after = arguments.get("after")
    if after is None:
        return None
    if type(after) is list and len(after) == 2 and all(type(each) is int for each in after):
        rank, sequence = after
        if _BEFORE_ALL <= rank <= 0 <= sequence <= read.MOST:
            return [rank, sequence]
    raise Refused("invalid-argument", "after must be what next was", "leave it out for the first page")


def _first_after(references: list[MessageReference], after: list[int], count: int) -> Steps[list[_Place]]:
    """The first so many in delivery order beyond a place, each with its own."""
    first: list[_Place] = []
    beyond = (after[0], after[1])
    for start in range(0, len(references), LOOK_STEP):
        if start:
            yield
        part = references[start : start + LOOK_STEP]
        places = ((place, each) for each in part if (place := (-each.priority, each.sequence)) > beyond)
        first = nsmallest(count, chain(first, places), key=itemgetter(0))
    return first


def _with_disk(broker: Broker, queue: Queue, ordered: list[_Place], after: list[int], count: int) -> Steps[list[_Place]]:
    """The same with what is only on disk."""
    first = ordered

    def look(records: list[ReferenceRecord]) -> bool:
        nonlocal first
        rows = [reference_of(queue, record) for record in records]
        for reference in rows:
            reference.where = Where.PENDING if reference.due_at_ms is None else Where.SCHEDULED
        places = (((-each.priority, each.sequence), each) for each in rows)
        first = nsmallest(count, chain(first, places), key=itemgetter(0))
        # Further ones would stand behind all of these.
        return len(first) < count or not rows or first[-1][0] > (-rows[-1].priority, rows[-1].sequence)

    if not _comes_before_disk(queue, first, after, count):
        yield from broker.state.pager.on_disk(queue, look, broker.ledger.next_id(), -after[0], after[1], min(count, _MAX_PAGE))
    return first


def _comes_before_disk(queue: Queue, first: list[_Place], after: list[int], count: int) -> bool:
    """Whether what is in memory is enough: nothing on disk stands before the last of it."""
    pending = queue.pending
    if len(first) < count or queue.due_on_disk:
        return False
    rank, sequence = first[-1][0]
    higher = any(pending.on_disk[priority] for priority in range(1 - rank, min(len(pending.on_disk), 1 - after[0])))
    return not higher and (not pending.on_disk[-rank] or sequence <= pending.cursor[-rank])


def redrive(broker: Broker, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Dead letters go back to the queue of their first death, failed count at 0; their history stays."""
    read.only(arguments, "queue", "message_ids")
    wanted = arguments.get("message_ids")
    if wanted is not None and (type(wanted) is not list or any(type(each) is not int or not 0 <= each <= read.MOST for each in wanted)):
        raise Refused("invalid-argument", "message_ids must be a list of message numbers", "leave it out for all")
    sent = yield from broker.office.redrive(read.queue(broker, arguments), None if wanted is None else set(wanted))
    return {"messages": sent}
