"""Dead letters: which there are, from where and why; and those that a filter takes: shown, deleted, moved.

What a filter has to look at, message by message, it does for a while: the answer says how many were looked at and where to go on.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ..auth.access import Who, asks, queue_place, shown_only
from ..broker import Broker
from ..core.fault import Dead, FaultGroup
from ..core.queue import Queue
from ..core.rights import Right
from ..delivery.chosen import PAGES
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .filters import cursor, read_filter
from .host import Host, in_thread, in_turns
from .messages import describe, describe_cause
from .pages import Shown, on_page, whole

_MAX_PAGE: Final = 1_000
_SOURCES: Final = 20


@shown_only(Right.BROWSE)
async def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any] | list[dict[str, Any]]:
    """One for each queue that has dead letters, or where some are parked, the fullest first."""
    read.only(arguments, "limit", "after")
    groups = {each.fault_id: each for each in broker.faults(who)}
    shown = Shown(broker, who, Right.BROWSE, "dead-letters")
    queues = [each for each in broker.post_office.queues.values() if (each.dead or each.parked) and shown(queue_place(each))]
    fullest = sorted(queues, key=lambda each: (-(each.dead or len(each.parked)), each.name))
    page, _ = on_page(arguments, fullest)
    # Now, for they may leave while the rest is looked up.
    parked = {each: _of_parked(each) for each in page if not each.dead}
    dead: dict[Queue, list[Dead]] = {}
    for each in broker.fault_groups.graves.within(set(page)):
        dead.setdefault(each.queue, []).append(each)
    times: dict[int, tuple[int, int]] = await in_thread(lambda: host.dead_since([each.queue_id for each in page]))
    transient = Counter[int]()
    for part in await in_turns(broker, broker.dead_in_memory()):
        oldest_ms, newest_ms = times.get(part.queue_id, (part.oldest_ms, part.newest_ms))
        times[part.queue_id] = min(oldest_ms, part.oldest_ms), max(newest_ms, part.newest_ms)
        transient[part.queue_id] += part.messages
    just_now = (broker.now_ms(),) * 2

    def describe(queue: Queue) -> dict[str, Any]:
        if queue in parked:
            return parked[queue]
        oldest_ms, newest_ms = times.get(queue.queue_id, just_now)
        came = {"transient": transient[queue.queue_id], "oldest_ms": oldest_ms, "newest_ms": newest_ms}
        return {"queue": queue.name, **came, **_of_dead(broker, dead[queue], groups)}

    return whole(arguments, fullest, shown, describe)


def _of_dead(broker: Broker, parts: list[Dead], groups: dict[int, FaultGroup]) -> dict[str, Any]:
    by_fault: dict[int, int] = {}
    reasons: dict[str, int] = {}
    for each in parts:
        by_fault[each.fault_id] = by_fault.get(each.fault_id, 0) + each.messages
        reasons[each.reason] = reasons.get(each.reason, 0) + each.messages
    top = groups.get(max(by_fault, key=lambda fault_id: by_fault[fault_id]))
    sources = sorted({each.source for each in parts if each.fault_id in groups and each.source})[:_SOURCES]
    settings = [broker.settings_of(source) for source in sources]
    return {
        "messages": sum(by_fault.values()),
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
