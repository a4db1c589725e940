"""Virtual hosts: list, add, delete."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..broker import Broker
from ..core.amqp.vhost import split
from ..delivery.steps import Steps
from ..topology.amqp.virtual_hosts import VirtualHost
from . import arguments as read
from .pages import listed
from .queues import delete_steps


def describe(broker: Broker, virtual_host: VirtualHost) -> dict[str, Any]:
    return _describe(virtual_host, _Counts(broker))


class _Counts:
    """What is in each virtual host, from one look at everything."""

    def __init__(self, broker: Broker) -> None:
        #: By prefix; connections by name.
        self.queues: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        for name, queue in broker.state.post_office.queues.items():
            prefix = split(name)[0]
            self.queues[prefix] += 1
            self.messages[prefix] += queue.count + queue.committing
        self.connections = Counter(connection.virtual_host for connection in broker.connections.values())


def _describe(virtual_host: VirtualHost, counts: _Counts) -> dict[str, Any]:
    return {
        "name": virtual_host.name,
        "prefix": virtual_host.prefix,
        "queues": counts.queues[virtual_host.prefix],
        "messages": counts.messages[virtual_host.prefix],
        "connections": counts.connections[virtual_host.name],
    }


def list_all(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
    read.only(arguments, "limit", "after")
    counts = _Counts(broker)
    return listed(broker, arguments, {each.name: each for each in broker.virtual_hosts.all()}, lambda each: _describe(each, counts))


def add(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """One that is there already is no error."""
    read.only(arguments, "name")
    return describe(broker, broker.virtual_hosts.add(read.text(arguments, "name")))


def delete(broker: Broker, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """With everything in it; its connections are closed. Broken off half-way, what is left is still a virtual host."""
    read.only(arguments, "name")
    virtual_host = broker.virtual_hosts.close(read.text(arguments, "name"))
    for connection in [each for each in broker.connections.values() if each.virtual_host == virtual_host.name]:
        connection.front_end.end("virtual-host-deleted", f"vhost '{virtual_host.name}' is deleted", "connect to another one")
    count = queues = 0
    try:
        for queue in broker.virtual_hosts.queues_of(virtual_host):
            count += yield from delete_steps(broker, queue)
            queues += 1
            yield
    except Exception:
        broker.virtual_hosts.reopen(virtual_host)
        raise
    broker.virtual_hosts.forget(virtual_host)
    return {"queues": queues, "messages": count}
