"""Queues: list, create, delete, purge, pause and resume."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..broker import Broker
from ..core.amqp.declared import ignored
from ..core.amqp.vhost import virtual_host_of
from ..core.consumer import Consumer
from ..core.message import Where
from ..core.queue import Queue
from ..core.settings.units import counted
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .pages import listed
from .statistics import Meter, states


def describe(queue: Queue) -> dict[str, Any]:
    """A queue as ``queues`` shows it. Counts are of messages in it now; times are ms since 1970."""
    return {
        "name": queue.name,
        "queue_id": queue.queue_id,
        "virtual_host": virtual_host_of(queue.name),
        "address": queue.address,
        "routing_type": queue.routing_type,
        "selector": queue.selector.text if queue.selector else None,
        "durable": queue.durable,
        "auto_created": queue.auto_created,
        "paused": queue.paused,
        "options": queue.options,
        "ignored_arguments": ignored(queue),
        "messages": queue.count + queue.committing,
        **states((queue,)),
        "suspects": len(queue.suspects),
        "pending_bytes": queue.ready_bytes,
        "consumers": len(queue.consumers),
        "slow_consumers": sum(consumer.slow for consumer in queue.consumers),
        "created_at_ms": queue.created_at_ms,
        "dead_letter_address": queue.settings.dead_letter_address,
        "policy": queue.policy.name if queue.policy is not None else None,
        "effective_policy_definition": dict(queue.policy.definition) if queue.policy is not None else {},
    }


def list_queues(broker: Broker, meter: Meter, arguments: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
    """In pages with what became of messages; who asks for all in one list gets what there was before there were pages."""
    read.only(arguments, "limit", "after")
    paged = arguments.get("limit") is not None or arguments.get("after") is not None
    show = partial(_in_full, meter) if paged else describe
    return listed(broker, arguments, broker.queues(), show)


def one(broker: Broker, meter: Meter, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "queue")
    return _in_full(meter, read.queue(broker, arguments))


def _in_full(meter: Meter, queue: Queue) -> dict[str, Any]:
    return {**describe(queue), **meter.of(queue)}


def consumers(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
    """Who holds what: one map per consumer, of one queue or of all."""
    read.only(arguments, "queue", "limit", "after")
    if arguments.get("queue") is None:
        of = [each for connection in broker.open_connections().values() for each in connection.consumers.values()]
    else:
        of = broker.consumers_of(read.queue(broker, arguments))
    return listed(broker, arguments, {f"{each.connection}/{each.number:010}": each for each in of}, _describe_consumer)


def _describe_consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "consumer": consumer.name,
        "connection": consumer.connection,
        "queue": consumer.queue.name,
        "prefetch": consumer.prefetch,
        "credit": consumer.credit,
        "unsettled": len(consumer.unsettled),
        "held_bytes": consumer.held_bytes,
        "given": sum(reference.delivered_at_ms is not None for reference in consumer.unsettled.values()),
        "selector": consumer.selector.text if consumer.selector else None,
        "slow": consumer.slow,
        "too_large": consumer.too_large,
    }


def create(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    return describe(broker.create_queue(arguments))


def delete(broker: Broker, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    read.only(arguments, "queue", "if_empty", "if_unused")
    queue = read.queue(broker, arguments)
    if read.flag(arguments, "if_empty") and queue.count:
        raise Refused("queue-not-empty", f"queue {queue.name} holds {counted(queue.count, 'message')}", "purge it first")
    if read.flag(arguments, "if_unused") and queue.consumers:
        raise Refused("queue-in-use", f"queue {queue.name} has {counted(len(queue.consumers), 'consumer')}", "stop them first")
    count = yield from broker.remove_queue(queue)
    return {"messages": count}


def purge(broker: Broker, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    read.only(arguments, "queue")
    count = yield from broker.purge(read.queue(broker, arguments))
    return {"messages": count}


def pause(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    return _set_paused(broker, arguments, True)


def resume(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    return _set_paused(broker, arguments, False)


def _set_paused(broker: Broker, arguments: dict[str, Any], paused: bool) -> dict[str, Any]:
    read.only(arguments, "queue")
    queue = read.queue(broker, arguments)
    broker.pause(queue, paused)
    return describe(queue)


STATE_OF = {
    Where.IN_COMMIT: "settling",
    Where.PENDING: "ready",
    Where.DELIVERING: "delivering",
    Where.SCHEDULED: "scheduled",
    Where.PARKED: "parked",
    Where.GONE: "gone",
}
