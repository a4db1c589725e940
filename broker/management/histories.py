"""The lives of messages: what the journal knows of them, and where those are that are in memory alone."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from homing.journal.contract import ReferenceState

from ..auth.access import Who, asks, found_later
from ..broker import Broker
from ..core.message import MessageReference, Where, describe_hops
from ..core.rights import Right
from ..errors import Refused
from . import arguments as read
from .filters import cursor, read_filter
from .host import Host, in_thread, in_turns
from .messages import describe_cause
from .one_message import NO_HISTORY, places_of

#: Whole lives of one answer: each has up to a hundred tracebacks.
_MOST: Final = 20
_PARTS: Final = ("references", "attempts", "outcomes", "edits")
_OF_MESSAGE: Final = ("address", "body", "properties", "priority", "sent_at_ms", "expires_at_ms", "producer")


@found_later(Right.BROWSE)
async def one(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """Asks for each queue that the message was in: the answer has its body."""
    read.only(arguments, "message_id")
    message_id = read.number(arguments, "message_id", 0, 1, read.MOST)
    for found in await _lives(broker, who, host, [message_id]):
        return found
    raise Refused("no-such-message", f"nothing is known of message {message_id}", NO_HISTORY)


@asks("browse_histories")
async def of_queue(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """A page of the same, of each message of a queue that the filter takes; asks for each as ``one`` does."""
    read.only(arguments, "queue", "filter", "limit", "after", "newest_first")
    queue, limit = read.queue(broker, arguments), read.number(arguments, "limit", _MOST, 1, _MOST)
    wanted, newest = read_filter(broker, arguments), read.flag(arguments, "newest_first")
    found, looked_at, after = await in_turns(broker, broker.browse_histories(who, queue, wanted, cursor(arguments), limit, newest))
    lives = await _lives(broker, who, host, [each.message.message_id for each in found])
    return {"histories": lives, "looked_at": looked_at, "next": after}


async def _lives(broker: Broker, who: Who, host: Host, message_ids: Collection[int]) -> list[dict[str, Any]]:
    """Of those of which anything is known."""
    transient: dict[int, list[MessageReference]] = {}
    for each in await in_turns(broker, broker.find_in_memory_only(message_ids)):
        transient.setdefault(each.message.message_id, []).append(each)
    lives: list[dict[str, Any]] = []
    for number in message_ids:
        found: dict[str, Any] | None = await in_thread(partial(host.history, number))
        if here := transient.get(number):
            found = found or {"message_id": number, "message": None, **{part: [] for part in _PARTS}}
            found["message"] = found["message"] or _message(here[0])
            found["references"] += [_describe(broker, who, each) for each in here]
        broker.access.check(who, Right.BROWSE, *places_of(found), verb="history")
        lives += [found] if found is not None else []
    return lives


def _message(reference: MessageReference) -> dict[str, Any]:
    """As the journal tells it (JournalReader.history)."""
    message = reference.message
    return {name: getattr(message, name) for name in _OF_MESSAGE}


def _describe(broker: Broker, who: Who, reference: MessageReference) -> dict[str, Any]:
    """As the journal tells of others; and what it failed of, as there are no attempts on record that would."""
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
        "hops": describe_hops(reference.hops or [], reference.message.message_id),
        "transient": True,
        **describe_cause(broker, who, reference),
    }
