"""The lives of messages: what the journal knows of them, and where those are that are in memory alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

from homing.journal.contract import ReferenceState

from ..answers.lives import Entry, Histories, History, KeptMessage
from ..auth.access import Who, asks, found_later
from ..broker import Broker
from ..core.message import MessageReference, Where, describe_hops
from ..core.rights import Right
from ..delivery.chosen import Chosen
from ..errors import Refused
from . import arguments as read
from .filters import ALL, Wanted
from .messages import cause_of
from .one_message import NO_HISTORY, places_of
from .process import Process, in_steps, in_thread

#: Whole lives of one answer: each has up to a hundred tracebacks.
_MOST: Final = 20


@found_later(Right.BROWSE)
async def one(broker: Broker, who: Who, *, process: Process, message_id: read.MessageNumber = 0) -> History:
    """Asks for each queue that the message was in: the answer has its body."""
    for found in await _lives(broker, who, process, [message_id]):
        return found
    raise Refused("no-such-message", f"nothing is known of message {message_id}", NO_HISTORY)


@asks(Chosen.browse_histories)
async def of_queue(
    broker: Broker,
    who: Who,
    *,
    process: Process,
    queue: read.Queue,
    filter_: Wanted = ALL,
    limit: Annotated[int, read.number(1, _MOST)] = _MOST,
    after: read.Number = 0,
    newest_first: read.Flag = False,
) -> Histories:
    """A page of the same, of each message of a queue that the filter takes; asks for each as ``one`` does."""
    found, looked_at, end = await in_steps(broker, broker.chosen.browse_histories(who, queue, filter_, after, limit, newest_first))
    lives = await _lives(broker, who, process, [each.message.message_id for each in found])
    return {"histories": lives, "looked_at": looked_at, "next": end}


async def _lives(broker: Broker, who: Who, process: Process, message_ids: Collection[int]) -> list[History]:
    """Of those of which anything is known."""
    transient: dict[int, list[MessageReference]] = {}
    for each in await in_steps(broker, broker.by_number.in_memory_only(message_ids)):
        transient.setdefault(each.message.message_id, []).append(each)
    lives: list[History] = []
    for number, found in zip(message_ids, await in_thread(lambda: [*map(process.past().history, message_ids)]), strict=True):
        if here := transient.get(number):
            found = found or {"message_id": number, "message": None, "references": [], "attempts": [], "outcomes": [], "edits": []}
            found["message"] = found["message"] or _message(here[0])
            found["references"] += [_describe(broker, who, each) for each in here]
        broker.access.check(who, Right.BROWSE, *places_of(found), verb="history")
        lives += [found] if found is not None else []
    return lives


def _message(reference: MessageReference) -> KeptMessage:
    """As the journal tells it (JournalReader.history)."""
    message = reference.message
    return {
        "address": message.address,
        "body": message.body,
        "properties": message.properties,
        "priority": message.priority,
        "sent_at_ms": message.sent_at_ms,
        "expires_at_ms": message.expires_at_ms,
        "producer": message.producer,
    }


def _describe(broker: Broker, who: Who, reference: MessageReference) -> Entry:
    """As the journal tells of others; and what it failed of, as there are no attempts on record that would."""
    fault, refused = cause_of(broker, who, reference)
    return {
        "sequence": reference.sequence,
        "queue_id": reference.queue.queue_id,
        "queue": reference.queue.name,
        "priority": reference.priority,
        "delivery_count": reference.delivery_count,
        "failed": reference.failed,
        "assigned": reference.dispatched,
        "state": ReferenceState.PARKED * (reference.where is Where.PARKED) | ReferenceState.SUSPECT * reference.suspect,
        "due_at_ms": None if reference.on_hold else reference.due_at_ms,
        "on_hold": reference.on_hold,
        "expires_at_ms": reference.expires_at_ms,
        "entered_at_ms": reference.entered_at_ms,
        "redrive": abs(reference.redrive) or None,
        "hops": [*describe_hops(reference.hops or [], reference.message.message_id)],
        "transient": True,
        "fault": fault,
        "refused": refused,
    }
