"""Dead letters: which there are, from where and why; and those that a filter takes: shown, deleted, moved.

What a filter has to look at, message by message, it does for a while: the answer says how many were looked at and where to go on.
"""

from __future__ import annotations

from typing import Any, Final

from homing.journal.contract import DeadLetters

from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import FaultGroup
from ..core.queue import Queue
from ..core.rights import Right
from ..delivery.chosen import PAGES
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .counting import faults_now
from .filters import cursor, read_filter
from .host import Host
from .messages import describe, describe_cause
from .pages import Shown, whole

_MAX_PAGE: Final = 1_000
_SOURCES: Final = 20


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any] | list[dict[str, Any]]:
    """One for each queue that has dead letters, or where some are parked, the fullest first."""
    read.only(arguments, "limit", "after")
    groups = {each.fault_id: each for each in broker.faults(who)}
    by_queue: dict[int, list[DeadLetters]] = {}
    for each in (await faults_now(broker, host)).dead:
        by_queue.setdefault(each.queue_id, []).append(each)
    shown = Shown(broker, who, Right.BROWSE, "dead-letters")
    queues = [each for each in broker.post_office.queues.values() if each.queue_id in by_queue or each.parked]

    def number(queue: Queue) -> int:
        return sum(each.messages for each in by_queue.get(queue.queue_id, ())) or len(queue.parked)

    def describe(queue: Queue) -> dict[str, Any]:
        parts = by_queue.get(queue.queue_id)
        return _of_queue(broker, queue.name, parts, groups) if parts else _of_parked(queue)

    fullest = sorted((each for each in queues if shown(queue_place(each))), key=lambda each: (-number(each), each.name))
    return whole(arguments, fullest, shown, describe)


def _of_queue(broker: Broker, queue: str, parts: list[DeadLetters], groups: dict[int, FaultGroup]) -> dict[str, Any]:
    by_fault: dict[int, int] = {}
    reasons: dict[str, int] = {}
    for each in parts:
        by_fault[each.fault_id] = by_fault.get(each.fault_id, 0) + each.messages
        reasons[each.reason] = reasons.get(each.reason, 0) + each.messages
    top = groups.get(max(by_fault, key=lambda fault_id: by_fault[fault_id]))
    sources = sorted({each.source for each in parts if each.fault_id in groups and each.source})[:_SOURCES]
    settings = [broker.settings_of(source) for source in sources]
    return {
        "queue": queue,
        "messages": sum(by_fault.values()),
        "transient": sum(each.messages for each in parts if each.transient),
        "oldest_ms": min(each.oldest_ms for each in parts),
        "newest_ms": max(each.newest_ms for each in parts),
        "faults": len(by_fault),
        "top_fault": None if top is None else {"fault": top.fingerprint, "error_class": top.error_class, "text": top.text},
        "top_messages": max(by_fault.values()),
        "reasons": reasons,
        "sources": sources,
        "refused": str(Right.BROWSE) if any(each.fault_id and each.fault_id not in groups for each in parts) else None,
        "owners": sorted({each.owner for each in settings if each.owner}),
        "runbooks": sorted({each.runbook for each in settings if each.runbook}),
        "sent_back": sum(each.messages for each in parts if each.sent_back),
    }


def _of_parked(queue: Queue) -> dict[str, Any]:
    """Dead letters that found no place, and stay in the queue that they came from."""
    parked = list(queue.parked.values())
    came = [each.entered_at_ms for each in parked]
    nothing: dict[str, Any] = {"faults": 0, "top_fault": None, "sent_back": 0, "refused": None}
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
        **nothing,
    }


@asks("browse_chosen")
def peek(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """A page of what the filter takes, in the order in which it came."""
    read.only(arguments, "queue", "filter", "limit", "after", "newest_first", "pages")
    queue, limit = read.queue(broker, arguments), read.number(arguments, "limit", 20, 1, _MAX_PAGE)
    wanted, newest = read_filter(broker, arguments), read.flag(arguments, "newest_first")
    pages = read.number(arguments, "pages", PAGES, 1, PAGES)
    found, looked_at, after = yield from broker.browse_chosen(who, queue, wanted, cursor(arguments), limit, newest, pages)
    shown = [
        {**describe(each), **describe_cause(broker, who, each), "signed_by": broker.editing.signatures_of(each.message)} for each in found
    ]
    return {"messages": shown, "looked_at": looked_at, "next": after}


@asks("delete_chosen")
def delete(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Removes what the filter takes and nobody holds."""
    read.only(arguments, "queue", "filter", "after")
    _check_filter(arguments, "homing queue purge removes all of a queue")
    done = yield from broker.delete_chosen(who, read.queue(broker, arguments), read_filter(broker, arguments), cursor(arguments))
    return dict(zip(("messages", "looked_at", "next"), done, strict=True))


@asks("move_chosen")
def move(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Into queue ``to``, failures at 0."""
    read.only(arguments, "queue", "filter", "after", "to")
    _check_filter(arguments, "homing redrive QUEUE --to TARGET moves all of a queue")
    source, target = read.queue(broker, arguments), read.queue(broker, {"queue": arguments.get("to")})
    if source is target:
        raise Refused("invalid-argument", f"the messages are in queue {target.name} already", "name another queue")
    done = yield from broker.move_chosen(who, source, target, read_filter(broker, arguments), cursor(arguments))
    return dict(zip(("messages", "looked_at", "next"), done, strict=True))


def _check_filter(arguments: dict[str, Any], for_all: str) -> None:
    """``for_all``: what does it with all of a queue."""
    if not arguments.get("filter"):
        raise Refused("invalid-argument", "the filter is empty, and would take all", f"say which are meant; {for_all}")
