"""One message, wherever it is: why it is not delivered now, deleting it, moving it."""

from __future__ import annotations

from typing import Final

from ..answers.failures import Awaited
from ..answers.lives import DeletedMessage, MovedMessage, Reason, Records, Standing, Why
from ..auth.access import Who, asks, found_later, queue_place
from ..broker import Broker
from ..core import dead_letter
from ..core.consumer import Consumer
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.rights import Place, Right
from ..core.suspects import UNTIL_FREE
from ..delivery.by_hand import ByHand
from ..errors import Refused
from ..steps import LOOK_STEP, Steps
from . import arguments as read
from .queues import state_of

#: Consumers of one queue of which it is said why they do not take it.
_MOST_CONSUMERS: Final = 50
#: Why nothing may be known of a message.
NO_HISTORY: Final = (
    "of transient messages nothing is kept once they are gone, of those that succeed at the first attempt only with history: full,"
    " of others for history-retention"
)


def places_of(history: Records | None) -> list[Place]:
    """The queues that the journal knows it in."""
    if history is None:
        return []
    known = [each["queue"] for part in (history["references"], history["attempts"], history["outcomes"], history["edits"]) for each in part]
    return [Place("queue", (name,)) for name in dict.fromkeys(known) if name is not None]


def _entries(broker: Broker, message_id: int, history: Records | None) -> Steps[list[MessageReference]]:
    entries = [(each["queue_id"], each["priority"], each["sequence"]) for each in (history["references"] if history else ())]
    return broker.by_number.find(message_id, entries)


# -- delete and move -----------------------------------------------------------------------------------------------------


@asks(ByHand.delete)
def delete(
    broker: Broker, who: Who, history: Records | None, *, message_id: read.MessageNumber = 0, queue: read.Queue | None = None
) -> Steps[DeletedMessage]:
    """Removes it from all its queues, or from ``queue``."""
    entries = yield from _movable(broker, message_id, history, queue)
    if not (yield from broker.hand.delete(who, entries)):
        raise _taken(message_id)
    return {"message_id": message_id, "messages": len(entries), "queues": [each.queue.name for each in entries]}


@asks(ByHand.move)
def move(
    broker: Broker,
    who: Who,
    history: Records | None,
    *,
    message_id: read.MessageNumber = 0,
    queue: read.Queue,
    source: read.Queue | None = None,
) -> Steps[MovedMessage]:
    """Into ``queue``, failures at 0; from the one queue it is in, or from ``source``."""
    entries = yield from _movable(broker, message_id, history, source)
    if len(entries) > 1:
        names = ", ".join(each.queue.name for each in entries)
        raise Refused("invalid-argument", f"message {message_id} is in several queues: {names}", "name one of them as the source")
    if entries[0].queue is queue:
        raise Refused("invalid-argument", f"message {message_id} is in queue {queue.name} already", "name another queue")
    if not (yield from broker.hand.move(who, entries[0], queue)):
        raise _taken(message_id)
    return {"message_id": message_id, "source": entries[0].queue.name, "queue": queue.name}


def _movable(broker: Broker, message_id: int, history: Records | None, only: Queue | None) -> Steps[list[MessageReference]]:
    """Where it is, in that queue or anywhere. Raises Refused where it is not, or where somebody holds it."""
    entries = yield from _entries(broker, message_id, history)
    entries = [each for each in entries if only is None or each.queue is only]
    if not entries:
        where = f"queue {only.name}" if only is not None else "any queue"
        raise Refused("no-such-message", f"message {message_id} is not in {where}", f"homing history {message_id} shows what became of it")
    for each in entries:
        if each.where is Where.DELIVERING:
            who = f"consumer {each.consumer.name}" if each.consumer is not None else "a consumer"
            raise Refused("message-held", f"message {message_id} is held by {who}", "wait until it is settled, or close the connection")
        if each.where is Where.IN_COMMIT:
            raise Refused("message-held", f"what happened last to message {message_id} is not on disk yet", "ask again")
    return entries


def _taken(message_id: int) -> Refused:
    return Refused("message-held", f"message {message_id} was delivered, or left its queue, in this moment", "ask again")


# -- why -----------------------------------------------------------------------------------------------------------------


@found_later(Right.MONITOR)
def why(broker: Broker, who: Who, history: Records | None, *, message_id: read.MessageNumber = 0) -> Steps[Why]:
    """For each queue it is in: its state there and what stands in the way, most telling first. ``ended``: how its last entry did."""
    entries = yield from _entries(broker, message_id, history)
    broker.access.check(who, Right.MONITOR, *map(queue_place, {each.queue for each in entries}), *places_of(history), verb="why")
    outcomes = history["outcomes"] if history else []
    if not entries and not outcomes:
        raise Refused("no-such-message", f"nothing is known of message {message_id}", NO_HISTORY)
    described: list[Standing] = []
    for reference in entries:
        ahead, first = yield from _ahead(reference)
        described.append(
            {
                "queue": reference.queue.name,
                "address": reference.queue.address,
                "state": state_of(reference),
                "transient": reference.in_memory_only,
                "entered_at_ms": reference.entered_at_ms,
                "failed": reference.failed,
                "delivery_count": reference.delivery_count,
                "died": {**reference.hops[0].detail} if reference.hops else None,
                "reasons": _reasons(broker, reference, ahead, first),
            }
        )
    return {"message_id": message_id, "places": described, "ended": outcomes[-1] if outcomes and not entries else None}


def _ahead(reference: MessageReference) -> Steps[tuple[int, int | None]]:
    """How many ready messages of its queue go before it, and the first of them; of what is on disk only higher priorities are counted."""
    queue, place = reference.queue, (-reference.priority, reference.sequence)
    if reference.where is not Where.PENDING:
        return 0, None
    first: MessageReference | None = None
    before, references = sum(queue.pending.on_disk[reference.priority + 1 :]), list(queue.references.values())
    for start in range(0, len(references), LOOK_STEP):
        if start:
            yield
        for each in references[start : start + LOOK_STEP]:
            if each.where is Where.PENDING and (-each.priority, each.sequence) < place:
                before += 1
                if first is None or (-each.priority, each.sequence) < (-first.priority, first.sequence):
                    first = each
    return before, first.message.message_id if first is not None else None


def _reasons(broker: Broker, reference: MessageReference, ahead: int, first: int | None) -> list[Reason]:
    match reference.where:
        case Where.DELIVERING:
            return [_held(broker, reference)]
        case Where.SCHEDULED:
            return [{"code": "on-hold"} if reference.on_hold else {"code": "waits-until", "at_ms": reference.due_at_ms}]
        case Where.PARKED:
            return [_nowhere(broker, reference)]
        case Where.IN_COMMIT:
            return [{"code": "being-written"}]
        case _:
            return _pending(broker, reference, ahead, first)


def _nowhere(broker: Broker, reference: MessageReference) -> Reason:
    """Where it is to go and finds no place: an exchange, or an address, which may be its own; neither: nothing is configured."""
    queue = reference.queue
    exchange = broker.explanations.of(queue.name).dead_letter_exchange
    why = reference.park_reason
    target = dead_letter.target(queue.settings, queue.address, why) if why and exchange is None else None
    address = target.address if target is not None else None
    return {"code": "parked", "reason": why, "exchange": exchange, "address": address, "its_own": address == queue.address}


def _held(broker: Broker, reference: MessageReference) -> Reason:
    consumer = reference.consumer
    connection = broker.connections.all.get(consumer.connection) if consumer is not None else None
    return {
        "code": "held",
        "consumer": consumer.name if consumer is not None else None,
        "connection": consumer.connection if consumer is not None else None,
        "user": connection.user if connection is not None else None,
        "since_ms": reference.dispatched_at_ms,
        "given_at_ms": reference.delivered_at_ms,
        "in_transaction": reference.transaction is not None,
        "own_policy": consumer is not None and consumer.policy is not None,
    }


def _pending(broker: Broker, reference: MessageReference, ahead: int, first: int | None) -> list[Reason]:
    queue, now_ms = reference.queue, broker.now_ms()
    consumers = broker.declared_queues.all_consumers(queue)
    reasons: list[Reason] = []
    if reference.expired(now_ms):
        reasons.append({"code": "expired", "at_ms": reference.expires_at_ms})
    if queue.paused:
        reasons.append({"code": "queue-paused"})
    if not consumers:
        reasons.append({"code": "no-consumer"})
    if reference.suspect:
        reasons.append({"code": "suspect", "waits_for": awaited_by(queue, now_ms)})
    for consumer in consumers[:_MOST_CONSUMERS]:
        in_the_way = _in_the_way(queue, consumer, reference, now_ms)
        if in_the_way is not None:
            reasons.append(_window(consumer, in_the_way))
    on_disk = reference.sequence not in queue.references
    if ahead:
        # Those on disk of its own priority are not counted.
        reasons.append({"code": "behind", "messages": ahead, "at_least": on_disk, "first": first})
    if on_disk:
        reasons.append({"code": "on-disk"})
    return reasons


def awaited_by(queue: Queue, now_ms: int) -> Awaited | None:
    found = queue.awaited(now_ms)
    if found is None:
        return None
    return {"connection": found.connection, "unsettled": found.unsettled, "has_suspect": found.has_suspect}


def _window(consumer: Consumer, code: str) -> Reason:
    return {
        "code": code,
        "consumer": consumer.name,
        "prefetch": consumer.window,
        "unsettled": len(consumer.unsettled),
        "selector": consumer.selector.text if consumer.selector else None,
        "slow": consumer.slow,
    }


def _in_the_way(queue: Queue, consumer: Consumer, reference: MessageReference, now_ms: int) -> str | None:
    """Why this consumer does not get it now; None: it may have it when its turn comes."""
    if not consumer.takes(reference):
        return "selector"
    if consumer not in queue.consumers:
        return "stands-by"
    if not consumer.sink.writable:
        return "reads-nothing"
    if (until_ms := queue.apart.get(consumer.connection, 0)) > now_ms:
        return "makes-room-for-a-suspect" if until_ms == UNTIL_FREE else "works-on-a-suspect"
    if reference.suspect and consumer.unsettled:
        return "holds-others"
    if not consumer.prefetch and not consumer.pulls:
        return "does-not-ask"
    if consumer.credit <= 0:
        return "window-full"
    if not consumer.able:
        return "waits-for-the-one-before-it" if any(each.unsettled for each in consumer.follows) else "waits-for-what-was-given-back"
    return None
