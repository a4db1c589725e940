"""Broker: the verbs of messages that a front end calls; its bases have those of consumers (consuming.py), of what failed and of what is
declared. docs/architecture.md has them all on one page.

It decides nothing itself; it knows whom to ask, and in which order. Nothing here waits: what must be on disk first is answered through
``when_safe`` callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .auth.access import needs
from .connection import Connection, FrontEnd
from .consuming import Consuming
from .core.amqp.exchange import Compared
from .core.amqp.search import Search
from .core.consumer import NOBODY, Client
from .core.message import MessageReference
from .core.producer import Producer
from .core.queue import Queue
from .core.redelivery import PolicyMap
from .core.rights import Right
from .core.routing import Route
from .core.seldom import APART
from .errors import Refused
from .shares import Share
from .topology.places import at_address, at_new_address, published_to, same_route

log = logging.getLogger("homing")

#: As in administration.py.
FREE: Final[Mapping[str, str]] = {
    "the login was checked": "connect disconnect",
    "of a producer that was opened": "make_topic close_producer open_sender",
    "of a consumer that was let in": "socket_resumed",
    "of time and turns": "wake when_known may_answer",
}


class Broker(Consuming):
    # -- connections -------------------------------------------------------------------------------------------------

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
            self.virtual_hosts.find(virtual_host)
        self.access.check_login(user, virtual_host)
        older = self.by_client.get(client_id) if client_id else None
        if older is not None:
            if older.user != user:
                raise Refused("client-id-in-use", "this client_id is connected as another user", "use a client_id of your own (a new UUID)")
            self.disconnect(older, lost=True)
            older.front_end.end("taken-over", "the same client has connected again", "nothing; the newer connection goes on")
        connection = Connection(self.next_connection, client_id, user, front_end, policies, self.now_ms(), client, peer)
        connection.shares = shares
        if virtual_host is not None:
            connection.virtual_host = virtual_host
        self.next_connection += 1
        self.connections[connection.name] = connection
        self.room.quota.kept.add(connection.kept)
        if client_id:
            self.by_client[client_id] = connection
        return connection

    def disconnect(self, connection: Connection, lost: bool, counts: bool = False) -> None:
        """The connection has ended: cleanly, or it was lost. What it held goes back; open transactions are undone.

        ``counts``: see Settlement.closed.
        """
        if not connection.open:
            return
        connection.open = False
        del self.connections[connection.name]
        self.room.quota.kept.discard(connection.kept)
        if self.by_client.get(connection.client_id) is connection:
            del self.by_client[connection.client_id]
        for producer in list(connection.producers.values()):
            self.close_producer(connection, producer.number)
        if connection.sender is not None:
            self.flow.close(connection.sender)
        now_ms = self.now_ms()
        consumers = connection.all_consumers()
        for consumer in consumers:
            self.pulls.forget(consumer)
            consumer.queue.detach(consumer, now_ms)
            self.resources.idle.watch(consumer.queue)
        for transaction in connection.transactions.values():
            self.transactions.release(transaction)
        connection.transactions.clear()
        connection.consumers.clear()
        connection.retired.clear()
        if lost:
            self.settlement.lost(connection.name, consumers)
        else:
            self.settlement.rolled_back(connection.name, [each for each in consumers if each.transacted])
            self.settlement.closed(connection.name, [each for each in consumers if not each.transacted], connection if counts else None)

    def _settling_failed(self, name: str, error: Exception) -> None:
        connection = self.connections.get(name)
        log.error("settling-failed: the broker failed on what connection %s settled; its connection is closed", name, exc_info=error)
        if connection is not None:
            self._end(connection, "internal-error", "the broker failed on what it settled")

    def _end(self, connection: Connection, code: str, message: str) -> None:
        by = f"{connection.name} ({connection.peer}) of user {connection.user}"
        log.warning("connection-closed: connection %s is ended: %s", by, message, extra=APART)
        connection.front_end.end(code, message, "connect again, or ask an administrator")
        self.disconnect(connection, lost=False)

    # -- sending -----------------------------------------------------------------------------------------------------

    @needs((Right.SEND, at_address), (Right.CREATE, at_new_address))
    def open_producer(self, connection: Connection, number: int, address: str) -> Producer:
        """The producer with its high watermark. Answer it through ``when_safe``; credit follows with ``give_credit``."""
        if number in connection.producers:
            raise Refused("producer-exists", f"producer {number} is open already", "choose another number")
        self.declared.check("producers")
        self.resources.check_producer(address)
        client = connection.client_id or connection.name
        producer = Producer(client, number, address, self.high_watermarks.of(client, number), connection.front_end, connection.bounds)
        connection.producers[number] = producer
        self.resources.named[address] = self.resources.named.get(address, 0) + 1
        return producer

    def make_topic(self, connection: Connection, address: str) -> None:
        """Where nothing is called so: an address of which each subscription gets all. Raises Refused."""
        self.resources.make_topic(address)

    def close_producer(self, connection: Connection, number: int) -> None:
        producer = connection.producers.pop(number, None)
        if producer is None:
            return
        self.flow.close(producer)
        if producer.used_at_ms:
            self.high_watermarks.keep(producer.client, number, producer.high_watermark, producer.used_at_ms)
        named = self.resources.named
        named[producer.address] -= 1
        if not named[producer.address]:
            del named[producer.address]

    def open_sender(self, connection: Connection) -> Producer:
        """One producer for all that comes on the connection, to whatever address; nothing is numbered (AMQP). It is given credit."""
        connection.sender = producer = Producer(f"{connection.name}/amqp", 0, "", 0, connection.front_end, connection.bounds)
        self.flow.open(producer)
        return producer

    @needs((Right.SEND, published_to), same=same_route)
    def route(self, connection: Connection, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Route | Search:
        """Where a message published to the exchange under these keys goes, good as long as it ``stands``; or the search for it, which is to
        go on (``throttle.seek``). Raises Refused: no such exchange, or an internal one.
        """
        return self.virtual_hosts.exchanges_of(connection).published(exchange, key, headers, more_keys)

    def wake(self) -> None:
        """There is to be another turn."""
        self.ready.wake()

    # -- on disk -----------------------------------------------------------------------------------------------------

    def when_known(self, callback: Callable[[], None]) -> None:
        """Calls back once the journal knows everything up to now, what was only counted, too."""
        self.fault_groups.put_on_record()
        self.journal.when_safe(callback)

    def may_answer(self, queue: Queue, reference: MessageReference | None = None) -> bool:
        """Whether what was found in the queue may be answered before anything more is on disk: that message, or that there is none."""
        if queue.dead_lettering:
            return False
        return reference is None or (not reference.counted and self.journal.ids_reserved)

    def socket_resumed(self, connection: Connection) -> None:
        """Its peer reads again: what waits for its consumers may go on."""
        for consumer in connection.consumers.values():
            self.ready.mark(consumer.queue)
