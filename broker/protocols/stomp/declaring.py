"""Queues that a SUBSCRIBE declares, by headers as RabbitMQ's STOMP plugin has them: their arguments, and those of an exchange's keys."""

from __future__ import annotations

from hashlib import blake2s
from typing import Final

from homing.journal.declarations import Table

from ...broker import Broker
from ...connection import Connection
from ...core.amqp import exchange
from ...core.amqp.vhost import local_name
from ...core.queue import Queue
from ...errors import Refused
from .codec import Headers
from .destinations import EXCHANGE, Destination
from .message_mapping import flag, number

_NUMBERS: Final = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority")
_TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type")
_FLAGS: Final = ("durable", "auto-delete", "exclusive")
_MOST: Final = (1 << 62) - 1


def declares(destination: Destination, headers: Headers) -> bool:
    """Whether the queue is one that AMQP would declare."""
    return destination.kind == EXCHANGE or any(each in headers for each in (*_NUMBERS, *_TEXTS, *_FLAGS))


def declare(broker: Broker, connection: Connection, destination: Destination, subscription: str, headers: Headers) -> Queue:
    """Of an exchange: a queue that is bound by the key, goes with its last consumer, and is nobody else's unless it is named or durable.
    ``subscription``: the client's id. Raises Refused.
    """
    bound, exchanges = destination.kind == EXCHANGE, broker.virtual_hosts.exchanges_of(connection)
    if bound:
        exchanges.look_up(connection, destination.name)
    durable = flag(headers, "durable", not bound)
    queue = broker.declared_queues.declare(
        connection,
        (headers.get("x-queue-name") or (_name(destination, subscription) if durable else "")) if bound else destination.name,
        durable=durable,
        exclusive=flag(headers, "exclusive", False),
        auto_delete=flag(headers, "auto-delete", bound),
        arguments=_arguments(headers),
    )
    if bound:
        try:
            exchanges.bind(connection, destination.name, exchange.Destination(local_name(queue.name), True), destination.key, {})
        except Refused:
            broker.removal.consumers_gone([queue])
            raise
    return queue


def _name(destination: Destination, subscription: str) -> str:
    """The same for a program that subscribes again."""
    said = "\0".join((destination.name, destination.key, subscription)).encode("utf-8", "surrogateescape")
    return f"stomp-subscription-{blake2s(said, digest_size=12).hexdigest()}"


def _arguments(headers: Headers) -> Table:
    return {name: number(headers, name, 0, _MOST) for name in _NUMBERS if name in headers} | {
        name: headers[name] for name in _TEXTS if name in headers
    }
