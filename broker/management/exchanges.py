"""AMQP's exchanges, and what is bound to them: lists."""

from __future__ import annotations

from typing import Any

from ..auth.access import Who, everywhere, needs
from ..broker import Broker
from ..core.amqp.exchange import Binding, Exchange
from ..core.amqp.vhost import DEFAULT
from ..core.rights import Place, Right
from ..errors import Refused
from . import arguments as read
from .pages import Listed, listed
from .queues import of_queue


@needs((Right.MONITOR, everywhere), action="exchanges")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    read.only(arguments, "limit", "after")
    # As they are sorted: by virtual host, then by name. No name of either holds a zero.
    found = {f"{virtual_host}\0{each.name}": (virtual_host, each) for virtual_host, each in broker.list_exchanges()}
    return listed(broker, arguments, found, lambda each: _describe(*each))


def _describe(virtual_host: str, exchange: Exchange) -> dict[str, Any]:
    return {
        "exchange": exchange.name,
        "virtual_host": virtual_host,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "alternate": exchange.alternate,
        "arguments": exchange.arguments,
        "bindings": len(exchange.bindings),
    }


def _of_queue_or_all(broker: Broker, who: Who, arguments: dict[str, Any], **more: object) -> tuple[Place]:
    return everywhere() if arguments.get("queue") is None else of_queue(broker, who, arguments, **more)


@needs((Right.MONITOR, _of_queue_or_all), action="bindings")
def bindings(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    """Those that lead to a queue, or those of an exchange."""
    read.only(arguments, "queue", "exchange", "virtual_host", "limit", "after")
    if arguments.get("queue") is not None:
        found = broker.bindings_of_queue(read.queue(broker, arguments))
    else:
        name, virtual_host = read.text(arguments, "exchange"), arguments.get("virtual_host") or DEFAULT
        exchange = {(of, each.name): each for of, each in broker.list_exchanges()}.get((virtual_host, name))
        if exchange is None:
            raise Refused(
                "no-such-exchange", f"there is no exchange {name} in virtual host {virtual_host}", "the call exchanges lists them"
            )
        found = list(exchange.bindings.values())
    return listed(broker, arguments, {"\0".join(map(str, each.identity())): each for each in found}, _describe_binding)


def _describe_binding(binding: Binding) -> dict[str, Any]:
    return {
        "exchange": binding.source,
        "destination": binding.destination.name,
        "is_queue": binding.destination.is_queue,
        "key": binding.key,
        "arguments": binding.arguments,
    }
