"""Virtual hosts: list, add, delete."""

from __future__ import annotations

from typing import Any

from broker.broker import Broker
from broker.management import arguments as read
from broker.management.queues import delete_steps
from broker.steps import Steps
from broker.virtual_hosts import VirtualHost


def describe(broker: Broker, virtual_host: VirtualHost) -> dict[str, Any]:
    queues = broker.virtual_hosts.queues_of(virtual_host)
    return {
        "name": virtual_host.name,
        "prefix": virtual_host.prefix,
        "queues": len(queues),
        "messages": sum(queue.count + queue.committing for queue in queues),
        "connections": sum(connection.virtual_host == virtual_host.name for connection in broker.connections.values()),
    }


def list_all(broker: Broker, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    read.only(arguments)
    return [describe(broker, each) for each in broker.virtual_hosts.all()]


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
