"""Connections: who holds what; closing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..connection import Connection
from ..core.consumer import NOBODY, Library
from ..core.rights import Right
from ..errors import Refused
from . import arguments as read
from .pages import Listed, listed


class Socket(Protocol):
    """What a connection came in by."""

    @property
    def protocol(self) -> str: ...

    @property
    def place(self) -> str:
        """Its peer's address and port."""

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """What is charged to it beside what the broker knows of."""


#: By the session that is spoken on it (``Connection.front_end``).
Sockets = Callable[[], Mapping[Any, Socket]]


@needs((Right.MONITOR, everywhere), action="connections")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, sockets: Sockets) -> Listed:
    read.only(arguments, "limit", "after")
    found = sockets()
    return listed(broker, arguments, broker.connections, lambda each: _describe(each, found.get(each.front_end)))


def _describe(connection: Connection, socket: Socket | None) -> dict[str, Any]:
    """Sizes in bytes. ``memory``: of what it holds unsettled, what its transactions gather, and what is charged to its socket."""
    transactions = connection.transactions.values()
    transaction_bytes, unsent_bytes = sum(each.bytes for each in transactions), socket.unsent_bytes if socket else 0
    consumers = list(connection.consumers.values())
    return {
        "connection": connection.name,
        "protocol": socket.protocol if socket else None,
        "peer": socket.place if socket else None,
        **described(connection),
        "user": connection.user,
        "virtual_host": connection.virtual_host,
        "connected_at_ms": connection.connected_at_ms,
        "producers": len(connection.producers),
        "consumers": len(consumers),
        "slow_consumers": sum(each.slow for each in consumers),
        "blocked": _why_blocked(connection),
        "unsettled": sum([len(each.unsettled) for each in (*consumers, *connection.retired.values())]),
        "transactions": len(transactions),
        "held_bytes": connection.held_bytes,
        "transaction_bytes": transaction_bytes,
        "unsent_bytes": unsent_bytes,
        "memory_bytes": connection.held_bytes + transaction_bytes + (socket.memory_bytes if socket else 0),
    }


def described(connection: Connection | None) -> dict[str, Any]:
    """What its client says of itself, None for what it does not say: ``client`` is its client_id, or what AMQP calls connection_name;
    ``version`` is the program's; ``instrumented``: the library that reports failures for it (``homing instrument``)."""
    client, library = (NOBODY, Library()) if connection is None else (connection.client, connection.library)
    said = {"client": client.client_id, "product": library.product, "product_version": library.version}
    said["instrumented"] = library.instrumented
    return {name: value or None for name, value in {**said, "host": client.host, "version": client.version}.items()}


def _why_blocked(connection: Connection) -> dict[str, Any] | None:
    """How many of its producers wait, and the longest of these: since when, and why."""
    producers = [*connection.producers.values(), *([connection.sender] if connection.sender is not None else [])]
    waits = [each.waiting for each in producers if each.waiting is not None]
    if not waits:
        return None
    first = min(waits, key=lambda each: each.since_ms)
    return {"limit": first.limit, "why": first.why, "since_ms": first.since_ms, "producers": len(waits)}


@asks("close_connection")
def close(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    """Ends a connection. What it holds goes back as at a clean close: nobody is blamed for it."""
    read.only(arguments, "connection")
    name = read.text(arguments, "connection")
    connection = broker.connections.get(name)
    if connection is None:
        raise Refused("no-such-connection", f"there is no connection {name}", "homing connections lists all of them")
    given_back = broker.close_connection(who, connection)
    return {"connection": name, "given_back": given_back}
