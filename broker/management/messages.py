"""Messages: peek without consuming, redrive, and what became of a transaction."""

from __future__ import annotations

from typing import Annotated, Final

from ..answers.failures import Message, Messages
from ..answers.parts import ErrorOfFault, Removed
from ..auth.access import Who, asks
from ..broker import Broker
from ..core.amqp.declared import MOST_PRIORITY
from ..core.amqp.origin import ids_in
from ..core.fault import FaultGroup
from ..core.message import MessageReference, describe_hops
from ..core.rights import Right
from ..delivery.chosen import Chosen
from ..delivery.redriving import Redriving
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .queues import state_of

#: The cursor before the first message of the highest priority there is.
_BEFORE_ALL: Final = -MOST_PRIORITY - 1
_MAX_PAGE: Final = 1000


def describe(reference: MessageReference) -> Message:
    """Without what it failed of."""
    message, ids = reference.message, ids_in(reference.message.properties)
    return {
        "message_id": message.message_id,
        "amqp_message_id": ids.amqp_message_id,
        "app_id": ids.app_id,
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
        "hops": [*describe_hops(reference.hops or [], message.message_id)],
    }


def describe_to(broker: Broker, who: Who, reference: MessageReference) -> Message:
    """With what it failed of."""
    described = describe(reference)
    described["fault"], described["refused"] = cause_of(broker, who, reference)
    return described


def describe_fault(group: FaultGroup | None) -> ErrorOfFault | None:
    """What a message failed of; ``text`` is that of the fault's first failure. None: it never failed, or that is not known."""
    return None if group is None else {"fault": group.fingerprint, "error_class": group.error_class, "text": group.text}


def cause_of(broker: Broker, who: Who, reference: MessageReference) -> tuple[ErrorOfFault | None, str | None]:
    """What it failed of; and the right, where it failed, for want of which that is not told, or None."""
    shown = broker.faults.of(who, reference)
    hidden = shown is None and broker.fault_groups.group_of(reference.cause) is not None
    return describe_fault(shown), str(Right.BROWSE) if hidden else None


@asks(Chosen.peek)
def peek(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue,
    limit: Annotated[int, read.number(1, _MAX_PAGE)] = 20,
    after: Annotated[tuple[int, int], read.cursor(_BEFORE_ALL, 0)] | None = None,
) -> Steps[Messages]:
    """A page of a queue in delivery order, whatever state its messages are in."""
    ordered = yield from broker.chosen.peek(who, queue, after or (_BEFORE_ALL, 0), limit + 1)
    found: list[Message] = []
    size, last = 0, list(after) if after else None
    for cursor, reference in ordered[:limit]:
        shown = describe_to(broker, who, reference)
        size += reference.message.size + 2 * len(shown["properties"].get("_HOMING_HOPS", ""))
        size += len(shown["fault"]["error_class"]) + len(shown["fault"]["text"]) if shown["fault"] is not None else 0
        if found and size > broker.limits.answer_bytes:
            break
        found.append(shown)
        last = list(cursor)
    return {"messages": found, "next": last if len(found) < len(ordered) else None}


def _numbers(_: Broker, name: str, value: object) -> list[int]:
    if type(value) is not list or any(type(each) is not int or not 0 <= each <= read.MOST for each in value):
        raise Refused("invalid-argument", f"{name} must be a list of message numbers", "leave it out for all")
    return value


@asks(Redriving.at_once)
def redrive(broker: Broker, who: Who, *, queue: read.Queue, message_ids: Annotated[list[int], _numbers] | None = None) -> Steps[Removed]:
    """Dead letters go back to the queue of their first death, failed count at 0; their history stays."""
    return {"messages": (yield from broker.redriving.at_once(who, queue, message_ids))}
