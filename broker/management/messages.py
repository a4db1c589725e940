"""Messages: peek without consuming, redrive, and what became of a transaction."""

from __future__ import annotations

from typing import Any, Final

from ..auth.access import Who, asks
from ..broker import Broker
from ..core.amqp.declared import MOST_PRIORITY
from ..core.amqp.origin import ids_in
from ..core.fault import FaultGroup
from ..core.message import MessageReference, describe_hops
from ..core.rights import Right
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .queues import state_of

#: The place before the first message of the highest priority there is.
_BEFORE_ALL: Final = -MOST_PRIORITY - 1
_MAX_PAGE: Final = 1000


def describe(reference: MessageReference) -> dict[str, Any]:
    message = reference.message
    return {
        "message_id": message.message_id,
        **ids_in(message.properties)._asdict(),
        "address": message.address,
        "state": state_of(reference),
        "body": message.body,
        "properties": reference.visible_properties() or {},
        "priority": reference.priority,
        "durable": message.durable,
        "transient": reference.in_memory_only,
        "sent_at_ms": message.sent_at_ms,
        "entered_at_ms": reference.entered_at_ms,
        "expires_at_ms": reference.expires_at_ms,
        "due_at_ms": None if reference.on_hold else reference.due_at_ms,
        "delivery_count": reference.delivery_count,
        "failed": reference.failed,
        "assigned": reference.dispatched,
        "suspect": reference.suspect,
        "hops": describe_hops(reference.hops or [], message.message_id),
    }


def describe_fault(group: FaultGroup | None) -> dict[str, Any] | None:
    """What a message failed of; ``text`` is that of the fault's first failure. None: it never failed, or that is not known."""
    return None if group is None else {"fault": group.fingerprint, "error_class": group.error_class, "text": group.text}


def describe_cause(broker: Broker, who: Who, reference: MessageReference) -> dict[str, Any]:
    """``fault``: what it failed of; ``refused``: the right, where it failed, for want of which that is not told, or None."""
    shown = broker.fault_shown(who, reference)
    hidden = shown is None and broker.fault_groups.group_of(reference.cause) is not None
    return {"fault": describe_fault(shown), "refused": str(Right.BROWSE) if hidden else None}


@asks("browse")
def peek(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """A page of a queue in delivery order, whatever state its messages are in. ``after``: ``next`` of the page before."""
    read.only(arguments, "queue", "limit", "after", "selector")
    queue = read.queue(broker, arguments)
    limit = read.number(arguments, "limit", 20, 1, _MAX_PAGE)
    after = _place(arguments)
    ordered = yield from broker.browse(who, queue, after or (_BEFORE_ALL, 0), limit + 1)
    found: list[dict[str, Any]] = []
    size, last = 0, list(after) if after else None
    for place, reference in ordered[:limit]:
        shown = {**describe(reference), **describe_cause(broker, who, reference)}
        size += reference.message.size + 2 * len(shown["properties"].get("_HOMING_HOPS", ""))
        size += len(shown["fault"]["error_class"]) + len(shown["fault"]["text"]) if shown["fault"] is not None else 0
        if found and size > broker.limits.answer_bytes:
            break
        found.append(shown)
        last = list(place)
    return {"messages": found, "next": last if len(found) < len(ordered) else None}


def _place(arguments: dict[str, Any]) -> tuple[int, int] | None:
    after = arguments.get("after")
    if after is None:
        return None
    if type(after) is list and len(after) == 2 and all(type(each) is int for each in after):
        rank, sequence = after
        if _BEFORE_ALL <= rank <= 0 <= sequence <= read.MOST:
            return rank, sequence
    raise Refused("invalid-argument", "after must be what next was", "leave it out for the first page")


@asks("redrive")
def redrive(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Dead letters go back to the queue of their first death, failed count at 0; their history stays."""
    read.only(arguments, "queue", "message_ids")
    wanted = arguments.get("message_ids")
    if wanted is not None and (type(wanted) is not list or any(type(each) is not int or not 0 <= each <= read.MOST for each in wanted)):
        raise Refused("invalid-argument", "message_ids must be a list of message numbers", "leave it out for all")
    sent = yield from broker.redrive(who, read.queue(broker, arguments), wanted)
    return {"messages": sent}
