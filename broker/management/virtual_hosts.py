"""Virtual hosts: list, add, delete."""

from __future__ import annotations

from collections import Counter

from ..answers.inventory import RemovedVirtualHost, VirtualHost
from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..core.amqp.vhost import prefix_of, split
from ..core.rights import Right
from ..delivery.removal import Removal
from ..steps import Steps
from ..topology.amqp.virtual_hosts import VirtualHosts
from . import arguments as read
from .pages import Asked, Listed, listed


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
        self.connections = Counter(connection.virtual_host for connection in broker.connections.all.values())


def _describe(name: str, counts: _Counts) -> VirtualHost:
    prefix = prefix_of(name)
    return {
        "name": name,
        "prefix": prefix,
        "queues": counts.queues[prefix],
        "messages": counts.messages[prefix],
        "connections": counts.connections[name],
    }


@needs((Right.MONITOR, everywhere), action="vhosts")
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[VirtualHost]:
    counts = _Counts(broker)
    return listed(broker, page, {each: each for each in broker.virtual_hosts.names()}, lambda name: _describe(name, counts))


@asks(VirtualHosts.add)
def add(broker: Broker, who: Who, *, name: read.Text) -> VirtualHost:
    """One that is there already is no error."""
    return _describe(broker.virtual_hosts.add(who, name).name, _Counts(broker))


@asks(Removal.delete_virtual_host)
def delete(broker: Broker, who: Who, *, name: read.Text) -> Steps[RemovedVirtualHost]:
    """With everything in it; its connections are closed."""
    queues, messages = yield from broker.removal.delete_virtual_host(who, name)
    return {"queues": queues, "messages": messages}
