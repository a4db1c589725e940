"""AMQP's exchanges, and what is bound to them: lists."""

from __future__ import annotations

from ..answers.inventory import Binding as DescribedBinding
from ..answers.inventory import Exchange as DescribedExchange
from ..auth.access import Who, everywhere, needs, queue_place
from ..broker import Broker
from ..core.amqp.exchange import Binding, Exchange
from ..core.amqp.vhost import DEFAULT
from ..core.queue import Queue
from ..core.rights import Place, Right
from ..errors import Refused
from . import arguments as read
from .pages import Asked, Listed, listed


@needs((Right.MONITOR, everywhere), action="exchanges")
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[DescribedExchange]:
    # As they are sorted: by virtual host, then by name. No name of either holds a zero.
    found = {f"{virtual_host}\0{each.name}": (virtual_host, each) for virtual_host, each in broker.virtual_hosts.list_exchanges()}
    return listed(broker, page, found, lambda each: _describe(*each))


def _describe(virtual_host: str, exchange: Exchange) -> DescribedExchange:
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


def _of_queue_or_all(queue: Queue | None) -> tuple[Place]:
    return everywhere() if queue is None else (queue_place(queue),)


@needs((Right.MONITOR, _of_queue_or_all), action="bindings")
def bindings(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue | None = None,
    exchange: read.Text | None = None,
    virtual_host: read.Text = DEFAULT,
    page: Asked,
) -> Listed[DescribedBinding]:
    """Those that lead to a queue, or those of an exchange."""
    if queue is not None:
        found = broker.virtual_hosts.bindings_of(queue)
    else:
        name = read.text(broker, "exchange", exchange)
        source = {(of, each.name): each for of, each in broker.virtual_hosts.list_exchanges()}.get((virtual_host, name))
        if source is None:
            raise Refused(
                "no-such-exchange", f"there is no exchange {name} in virtual host {virtual_host}", "the call exchanges lists them"
            )
        found = list(source.bindings.values())
    return listed(broker, page, {"\0".join(map(str, each.identity())): each for each in found}, _describe_binding)


def _describe_binding(binding: Binding) -> DescribedBinding:
    return {
        "exchange": binding.source,
        "destination": binding.destination.name,
        "is_queue": binding.destination.is_queue,
        "key": binding.key,
        "arguments": binding.arguments,
    }
