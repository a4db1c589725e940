"""Messages: peek without consuming, redrive, and what became of a transaction."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from broker.broker import Broker
from broker.core.message import MessageReference
from broker.errors import Refused
from broker.management import arguments as read
from broker.management.queues import STATE_OF

_MAX_PAGE: Final = 1000
_MAX_PAGE_BYTES: Final = 4 * 1024 * 1024


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
        "hops": reference.hops or [],
    }


def peek(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """A page of a queue in delivery order, whatever state its messages are in. ``after``: ``next`` of the page before."""
    read.only(arguments, "queue", "limit", "after", "selector")
    queue = read.queue(broker, arguments)
    limit = read.number(arguments, "limit", 20, 1, _MAX_PAGE)
    after = arguments.get("after")
    if after is not None and (type(after) is not list or len(after) != 2 or any(type(each) is not int for each in after)):
        raise Refused("invalid-argument", "after must be what next was", "leave it out for the first page")
    ordered = sorted(queue.references.values(), key=lambda reference: (-reference.priority, reference.sequence))
    rest = (reference for reference in ordered if after is None or [-reference.priority, reference.sequence] > after)
    found: list[dict[str, Any]] = []
    size, last = 0, None
    for reference in islice(rest, limit):
        found.append(describe(reference))
        last = [-reference.priority, reference.sequence]
        size += reference.message.size
        if size > _MAX_PAGE_BYTES:
            break
    more = last is not None and next(rest, None) is not None
    return {"messages": found, "next": last if more or size > _MAX_PAGE_BYTES else None}


def redrive(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """Dead letters go back to the queue of their first death, failed count at 0; their history stays."""
    read.only(arguments, "queue", "message_ids")
    wanted = arguments.get("message_ids")
    if wanted is not None and (type(wanted) is not list or any(type(each) is not int for each in wanted)):
        raise Refused("invalid-argument", "message_ids must be a list of message numbers", "leave it out for all")
    return {"messages": broker.office.redrive(read.queue(broker, arguments), None if wanted is None else set(wanted))}


def transaction_outcome(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "transaction_id")
    return {"outcome": broker.transactions.outcome(read.text(arguments, "transaction_id"))}
