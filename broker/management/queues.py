"""Queues: list, create, delete, purge, pause and resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Final

from ..answers.inventory import BriefQueue, Counts
from ..answers.inventory import Consumer as DescribedConsumer
from ..answers.inventory import Queue as DescribedQueue
from ..answers.parts import Removed
from ..auth.access import Who, asks, at_queue, needs, queue_place, shown_only
from ..broker import Broker
from ..connection import Connection
from ..core.amqp.declared import ignored
from ..core.amqp.vhost import virtual_host_of
from ..core.consumer import Consumer
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.rights import Right
from ..core.settings.units import counted
from ..core.suspects import UNTIL_FREE
from ..delivery.removal import Removal
from ..errors import Refused
from ..steps import Steps
from ..topology.contents import Contents
from ..topology.resources import Resources, takes_nothing
from . import arguments as read
from .arguments import number
from .connections import Socket, Sockets, described
from .pages import Asked, Listed, Shown, listed
from .process import Process, in_thread
from .statistics import WHOLE, Meter, states

#: How far back the minute counts of an answer go, and how many parts it has.
_MOST_MINUTES: Final = 90 * 24 * 60
_MOST_PARTS: Final = 1440
_MINUTE_MS: Final = 60_000


def describe(queue: Queue) -> BriefQueue:
    """A queue as ``queues`` shows it. Counts are of messages in it now; times are ms since 1970."""
    return {
        "queue": queue.name,
        # What it was called before.
        "name": queue.name,
        "queue_id": queue.queue_id,
        "virtual_host": virtual_host_of(queue.name),
        "address": queue.address,
        "routing_type": queue.routing_type,
        "selector": queue.selector.text if queue.selector else None,
        "durable": queue.durable,
        "auto_created": queue.auto_created,
        "paused": queue.paused,
        "options": dict(queue.options),
        "ignored_arguments": ignored(queue),
        "messages": queue.count + queue.committing,
        **states((queue,)),
        "dead": queue.dead,
        "suspects": len(queue.suspects),
        "pending_bytes": queue.ready_bytes,
        "memory_bytes": queue.memory_bytes,
        "consumers": len(queue.consumers),
        "slow_consumers": sum(consumer.slow for consumer in queue.consumers),
        "created_at_ms": queue.created_at_ms,
        "dead_letter_address": queue.settings.dead_letter_address,
        "owner": queue.settings.owner,
        "runbook": queue.settings.runbook,
        "policy": queue.policy.name if queue.policy is not None else None,
        "effective_policy_definition": dict(queue.policy.definition) if queue.policy is not None else {},
    }


@shown_only(Right.MONITOR)
def list_queues(
    broker: Broker,
    who: Who,
    *,
    meter: Meter,
    page: Asked,
    contains: read.Contained = lambda name: True,
) -> Listed[BriefQueue]:
    """In pages with what became of messages; who asks for all in one list gets what there was before there were pages.

    Those that whoever asks may monitor.
    """
    found = {name: queue for name, queue in broker.post_office.queues.items() if contains(name)}
    show = describe if page.whole else partial(_in_full, broker, meter, _held_back(broker))
    return listed(broker, page, found, show, Shown(broker, who, Right.MONITOR, "queues"), queue_place)


@needs((Right.MONITOR, at_queue), action="queue")
def one(broker: Broker, who: Who, *, meter: Meter, queue: read.Queue) -> DescribedQueue:
    return _in_full(broker, meter, _held_back(broker), queue)


@needs((Right.MONITOR, at_queue), action="counts")
async def counts(
    broker: Broker,
    who: Who,
    *,
    process: Process,
    queue: read.Queue,
    width_minutes: Annotated[int, number(1, _MOST_MINUTES)] = 1,
    minutes: Annotated[int, number(1, _MOST_MINUTES)] = 60,
) -> Counts:
    """What became of its messages over the last ``minutes``, added up by ``width_minutes``; of those that are not durable up to a minute
    late. What it held before is what it holds now, without what came since and with what left.
    """
    number(1, min(_MOST_MINUTES, width_minutes * _MOST_PARTS))(broker, "minutes", minutes)
    now_ms, width_ms = broker.now_ms(), width_minutes * _MINUTE_MS
    since_ms = (now_ms // width_ms + 1) * width_ms - minutes * _MINUTE_MS
    parts = await in_thread(lambda: process.past().counts(queue.queue_id, since_ms, width_minutes))
    return {"now_ms": now_ms, "since_ms": since_ms, "width_minutes": width_minutes, "parts": parts}


def _in_full(broker: Broker, meter: Meter, held_back: str | None, queue: Queue) -> DescribedQueue:
    """``blocked``: why it takes nothing more, for now: its own limit, or one of the broker."""
    return {**describe(queue), "blocked": "queue-full" if takes_nothing(queue) else held_back, **meter.of(queue)}


def _held_back(broker: Broker) -> str | None:
    return next((each.limit for each in broker.statistics.figures().held_back if each.limit in WHOLE), None)


@shown_only(Right.MONITOR)
def consumers(broker: Broker, who: Who, *, sockets: Sockets, queue: read.Queue | None = None, page: Asked) -> Listed[DescribedConsumer]:
    """Who holds what: one map per consumer, of one queue or of all that whoever asks may monitor."""
    shown = Shown(broker, who, Right.MONITOR, "consumers")
    if queue is None:
        of = [each for connection in broker.connections.all.values() for each in connection.consumers.values()]
    else:
        shown(queue_place(queue))
        of = broker.declared_queues.all_consumers(queue)
    found = {f"{each.connection}/{each.number:010}": each for each in of}
    show = partial(_describe_consumer, broker.connections.all, sockets(), broker.now_ms())
    return listed(broker, page, found, show, shown, lambda each: queue_place(each.queue))


#: By the bits of what was sent (core/counts.py).
_SENDS: Final = (None, "persistent", "transient", "both")


def _describe_consumer(
    connections: Mapping[str, Connection], sockets: Mapping[object, Socket], now_ms: int, consumer: Consumer
) -> DescribedConsumer:
    """``consumer_tag``: AMQP's; ``blocked``: why it is given nothing whatever waits, None where it would be. ``settled_when_given``: it has
    no acknowledgements; ``reports``: of how many failures it told the reason, and how often its connection did after the acknowledgement.
    ``sends``: whether what was sent to its queue is persistent, transient or both; ``queue_keeps``: which of these before they fail.
    """
    connection = connections.get(consumer.connection)
    socket = None if connection is None else sockets.get(connection.front_end)
    return {
        "consumer": consumer.name,
        "connection": consumer.connection,
        "protocol": socket.protocol if socket else None,
        "consumer_tag": consumer.tag or None,
        **described(connection),
        "blocked": _why_blocked(consumer, now_ms),
        "queue": consumer.queue.name,
        "prefetch": consumer.window,
        "credit": consumer.credit,
        "priority": consumer.priority,
        "sends": _SENDS[consumer.queue.sends],
        "queue_keeps": "all" if consumer.queue.keeps_all else "persistent" if consumer.queue.durable else "none",
        "settled_when_given": consumer.holds_nothing,
        "reports": {"before": consumer.reports, "after_acknowledgement": 0 if connection is None else connection.late_reports},
        "unsettled": len(consumer.unsettled),
        "holds_since_ms": consumer.holds_since_ms,
        "held_bytes": consumer.held_bytes,
        "given": sum(reference.delivered_at_ms is not None for reference in consumer.unsettled.values()),
        "selector": consumer.selector.text if consumer.selector else None,
        "slow": consumer.slow,
        "too_large": consumer.too_large,
        "ignored_arguments": list(consumer.ignored),
        "redelivery_policy": None if consumer.policy is None else asdict(consumer.policy),
    }


def _why_blocked(consumer: Consumer, now_ms: int) -> str | None:
    if consumer.queue.paused:
        return "the queue is paused"
    if not consumer.sink.writable:
        return "its client takes nothing from its socket"
    if (until_ms := consumer.queue.apart.get(consumer.connection, 0)) > now_ms:
        return "it makes room for a suspect" if until_ms == UNTIL_FREE else "its connection works on a suspect"
    if consumer.prefetch and consumer.credit <= 0:
        return "it holds as many as it may" if not consumer.returning else "what it gave back is on its way to the disk"
    return None if consumer.able else "what the one before it held is not settled, or not in its place"


@asks(Resources.declare)
def create(broker: Broker, who: Who, /, **declaration: object) -> BriefQueue:
    return describe(broker.resources.declare(who, declaration))


@asks(Removal.remove)
def delete(broker: Broker, who: Who, *, queue: read.Queue, if_empty: read.Flag = False, if_unused: read.Flag = False) -> Steps[Removed]:
    def check() -> None:
        if if_empty and queue.count:
            raise Refused("queue-not-empty", f"queue {queue.name} holds {counted(queue.count, 'message')}", "purge it first")
        if if_unused and queue.consumers:
            raise Refused("queue-in-use", f"queue {queue.name} has {counted(len(queue.consumers), 'consumer')}", "stop them first")

    count = yield from broker.removal.remove(who, queue, check)
    return {"messages": count}


@asks(Contents.purge)
def purge(broker: Broker, who: Who, *, queue: read.Queue) -> Steps[Removed]:
    count = yield from broker.contents.purge(who, queue)
    return {"messages": count}


@asks(Contents.pause)
def pause(broker: Broker, who: Who, *, queue: read.Queue) -> BriefQueue:
    return _set_paused(broker, who, queue, True)


@asks(Contents.pause)
def resume(broker: Broker, who: Who, *, queue: read.Queue) -> BriefQueue:
    return _set_paused(broker, who, queue, False)


def _set_paused(broker: Broker, who: Who, queue: Queue, paused: bool) -> BriefQueue:
    broker.contents.pause(who, queue, paused)
    return describe(queue)


def state_of(reference: MessageReference) -> str:
    return "on-hold" if reference.where is Where.SCHEDULED and reference.on_hold else STATE_OF[reference.where]


STATE_OF = {
    Where.IN_COMMIT: "settling",
    Where.PENDING: "ready",
    Where.DELIVERING: "delivering",
    Where.SCHEDULED: "scheduled",
    Where.PARKED: "parked",
    Where.GONE: "gone",
}
