"""Connections: who has logged in, until he hangs up, is lost, or is ended by the broker or an operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..auth.access import Access, Who, everywhere, needs
from ..connection import Connection, FrontEnd
from ..core.consumer import NOBODY, Client
from ..core.redelivery import PolicyMap
from ..core.rights import Right
from ..core.seldom import APART
from ..entries.memory_quota import MemoryQuota
from ..errors import Refused
from ..shares import Share
from ..topology.amqp.virtual_hosts import VirtualHosts
from .consumers import Consumers
from .producers import Producers
from .transactions import Transactions

log = logging.getLogger("homing")


class Connections:
    def __init__(
        self,
        access: Access,
        virtual_hosts: VirtualHosts,
        producers: Producers,
        consumers: Consumers,
        transactions: Transactions,
        quota: MemoryQuota,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._virtual_hosts = virtual_hosts
        self._producers = producers
        self._consumers = consumers
        self._transactions = transactions
        self._quota = quota
        self._now_ms = now_ms
        #: That are open: by name, and by client_id.
        self.all: dict[str, Connection] = {}
        self._by_client: dict[str, Connection] = {}
        self._next = 1

    def connect(
        self,
        client_id: str,
        user: str,
        front_end: FrontEnd,
        policies: PolicyMap | None = None,
        virtual_host: str | None = None,
        client: Client = NOBODY,
        peer: str = "",
        shares: Sequence[Share] = (),
    ) -> Connection:
        """A client has logged in. An older connection of the same client is ended first, so that nothing of it can come later.

        ``virtual_host`` None: it names in full what it means, in whatever virtual host. Raises Refused: no such virtual host, or one in
        which the user may do nothing, or the client_id is another user's.
        """
        if virtual_host is not None:
            self._virtual_hosts.find(virtual_host)
        self.access.check_login(user, virtual_host)
        older = self._by_client.get(client_id) if client_id else None
        if older is not None:
            if older.user != user:
                raise Refused("client-id-in-use", "this client_id is connected as another user", "use a client_id of your own (a new UUID)")
            self.disconnect(older, lost=True)
            older.front_end.end("taken-over", "the same client has connected again", "nothing; the newer connection goes on")
        connection = Connection(self._next, client_id, user, front_end, policies, self._now_ms(), client, peer)
        connection.shares = shares
        if virtual_host is not None:
            connection.virtual_host = virtual_host
        self._next += 1
        self.all[connection.name] = connection
        self._quota.kept.add(connection.kept)
        if client_id:
            self._by_client[client_id] = connection
        return connection

    def disconnect(self, connection: Connection, lost: bool, counts: bool = False) -> None:
        """The connection has ended: cleanly, or it was lost. What it held goes back; open transactions are undone.

        ``counts``: see Settlement.closed.
        """
        if not connection.open:
            return
        connection.open = False
        del self.all[connection.name]
        self._quota.kept.discard(connection.kept)
        if self._by_client.get(connection.client_id) is connection:
            del self._by_client[connection.client_id]
        self._producers.close_all(connection)
        for transaction in connection.transactions.values():
            self._transactions.release(transaction)
        connection.transactions.clear()
        self._consumers.disconnected(connection, lost, counts)

    def end(self, connection: Connection, code: str, message: str) -> None:
        """Of the broker's accord; what it held goes back."""
        by = f"{connection.name} ({connection.peer}) of user {connection.user}"
        log.warning("connection-closed: connection %s is ended: %s", by, message, extra=APART)
        connection.front_end.end(code, message, "connect again, or ask an administrator")
        self.disconnect(connection, lost=False)

    def settling_failed(self, name: str, error: Exception) -> None:
        """Something broke in the middle of what the connection of that name settled."""
        connection = self.all.get(name)
        log.error("settling-failed: the broker failed on what connection %s settled; its connection is closed", name, exc_info=error)
        if connection is not None:
            self.end(connection, "internal-error", "the broker failed on what it settled")

    @needs((Right.MANAGE, everywhere), audited=True, action="close-connection")
    def close(self, who: Who, connection: Connection) -> int:
        """What it holds goes back as at a clean close: nobody is blamed for it. Returns how many messages that were."""
        given_back = len(connection.held())
        self.end(connection, "connection-closed", "an operator closed this connection")
        return given_back
