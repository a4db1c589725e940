"""Connections: who holds what; closing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ..answers.inventory import ClosedConnection
from ..answers.inventory import Connection as DescribedConnection
from ..answers.parts import Client, Waiting
from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..connection import Connection
from ..core.consumer import NOBODY, Library
from ..core.rights import Right
from ..delivery.connections import Connections
from ..errors import Refused
from . import arguments as read
from .pages import Asked, Listed, listed


class Socket(Protocol):
    """What a connection came in by."""

    @property
    def protocol(self) -> str: ...

    @property
    def endpoint(self) -> str:
        """Its peer's address and port."""

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """What is charged to it beside what the broker knows of."""


#: By the session that is spoken on it (``Connection.front_end``).
Sockets = Callable[[], Mapping[object, Socket]]


@needs((Right.MONITOR, everywhere), action="connections")
def list_all(broker: Broker, who: Who, *, sockets: Sockets, page: Asked) -> Listed[DescribedConnection]:
    found = sockets()
    return listed(broker, page, broker.connections.all, lambda each: _describe(each, found.get(each.front_end)))


def _describe(connection: Connection, socket: Socket | None) -> DescribedConnection:
    """Sizes in bytes. ``memory``: of what it holds unsettled, what its transactions gather, and what is charged to its socket."""
    transactions = connection.transactions.values()
    transaction_bytes, unsent_bytes = sum(each.bytes for each in transactions), socket.unsent_bytes if socket else 0
    consumers = list(connection.consumers.values())
    return {
        "connection": connection.name,
        "protocol": socket.protocol if socket else None,
        "peer": socket.endpoint if socket else None,
        **described(connection),
        "user": connection.user,
        "virtual_host": connection.virtual_host,
        "connected_at_ms": connection.connected_at_ms,
        "producers": len(connection.producers),
        "consumers": len(consumers),
        "own_policies": sum(each.policy is not None for each in consumers),
        "slow_consumers": sum(each.slow for each in consumers),
        "blocked": _why_blocked(connection),
        "unsettled": sum([len(each.unsettled) for each in (*consumers, *connection.retired.values())]),
        "transactions": len(transactions),
        "held_bytes": connection.held_bytes,
        "transaction_bytes": transaction_bytes,
        "unsent_bytes": unsent_bytes,
        "memory_bytes": connection.held_bytes + transaction_bytes + (socket.memory_bytes if socket else 0),
    }


def described(connection: Connection | None) -> Client:
    """What its client says of itself, None for what it does not say: ``client`` is its client_id, or what AMQP calls connection_name;
    ``version`` is the program's; ``instrumented``: the library that reports failures for it (``homing instrument``)."""
    client, library = (NOBODY, Library()) if connection is None else (connection.client, connection.library)
    return {
        "client": client.client_id or None,
        "product": library.product or None,
        "product_version": library.version or None,
        "instrumented": library.instrumented or None,
        "host": client.host or None,
        "version": client.version or None,
    }


def _why_blocked(connection: Connection) -> Waiting | None:
    """How many of its producers wait, and the longest of these: since when, and why."""
    producers = [*connection.producers.values(), *([connection.sender] if connection.sender is not None else [])]
    waits = [each.waiting for each in producers if each.waiting is not None]
    if not waits:
        return None
    first = min(waits, key=lambda each: each.since_ms)
    return {"limit": first.limit, "why": first.why, "since_ms": first.since_ms, "producers": len(waits)}


@asks(Connections.close)
def close(broker: Broker, who: Who, *, connection: read.Text) -> ClosedConnection:
    """Ends a connection. What it holds goes back as at a clean close: nobody is blamed for it."""
    found = broker.connections.all.get(connection)
    if found is None:
        raise Refused("no-such-connection", f"there is no connection {connection}", "homing connections lists all of them")
    return {"connection": connection, "given_back": broker.connections.close(who, found)}
