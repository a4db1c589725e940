"""Virtual hosts: list, add, delete."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..core.amqp.vhost import prefix_of, split
from ..core.rights import Right
from ..steps import Steps
from . import arguments as read
from .pages import Listed, listed


class _Counts:
    """What is in each virtual host, from one look at everything."""

    def __init__(self, broker: Broker) -> None:
        #: By prefix; connections by name.
        self.queues: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        for name, queue in broker.post_office.queues.items():
            prefix = split(name)[0]
            self.queues[prefix] += 1
            self.messages[prefix] += queue.count + queue.committing
        self.connections = Counter(connection.virtual_host for connection in broker.connections.values())


def _describe(name: str, counts: _Counts) -> dict[str, Any]:
    prefix = prefix_of(name)
    return {
        "name": name,
        "prefix": prefix,
        "queues": counts.queues[prefix],
        "messages": counts.messages[prefix],
        "connections": counts.connections[name],
    }


@needs((Right.MONITOR, everywhere), action="vhosts")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    read.only(arguments, "limit", "after")
    counts = _Counts(broker)
    return listed(broker, arguments, {each: each for each in broker.list_virtual_hosts()}, lambda name: _describe(name, counts))


@asks("add_virtual_host")
def add(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    """One that is there already is no error."""
    read.only(arguments, "name")
    return _describe(broker.add_virtual_host(who, read.text(arguments, "name")), _Counts(broker))


@asks("delete_virtual_host")
def delete(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """With everything in it; its connections are closed."""
    read.only(arguments, "name")
    queues, messages = yield from broker.delete_virtual_host(who, read.text(arguments, "name"))
    return {"queues": queues, "messages": messages}
