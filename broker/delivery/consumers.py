"""What consumers do while they are open, and how they end: each gives back what it holds, and its queue may be one that nobody uses."""

from __future__ import annotations

from collections.abc import Callable

from ..connection import Connection
from ..core.consumer import Consumer
from ..core.message import MessageReference
from ..entries.ready_set import ReadySet
from ..topology.idle_queues import IdleQueues
from .pull_timeouts import Pulls
from .settlement import Settlement


class Consumers:
    def __init__(self, ready: ReadySet, settlement: Settlement, pulls: Pulls, idle: IdleQueues, now_ms: Callable[[], int]) -> None:
        self._ready = ready
        self._settlement = settlement
        self._pulls = pulls
        self._idle = idle
        self._now_ms = now_ms

    def pull(self, connection: Connection, consumer: Consumer, timeout_ms: int) -> None:
        """One credit; without a message within ``timeout_ms`` (-1: without end) it is taken back and answered."""
        self._pulls.add(connection, consumer, self._now_ms() + timeout_ms if timeout_ms >= 0 else None)
        self._ready.mark(consumer.queue)

    def delivered(self, consumer: Consumer, count: int) -> None:
        """The application has so many of what it holds: its window grows (ack type 0)."""
        consumer.extend(count)
        self._ready.mark(consumer.queue)

    def touch(self, references: list[MessageReference]) -> None:
        """``consumer-timeout`` begins anew for what was delivered of these."""
        now_ms = self._now_ms()
        for reference in references:
            if reference.delivered_at_ms is not None:
                reference.delivered_at_ms = now_ms

    def socket_resumed(self, connection: Connection) -> None:
        """Its peer reads again: what waits for its consumers may go on."""
        for consumer in connection.consumers.values():
            self._ready.mark(consumer.queue)

    # -- ends --------------------------------------------------------------------------------------------------------

    def unsubscribe(self, connection: Connection, consumer: Consumer, keep_delivered: bool = False) -> None:
        """A clean end. What was delivered stays where the session is transacted or wants to keep it, until that ends."""
        self.detach(consumer)
        self._idle.watch(consumer.queue)
        connection.consumers.pop(consumer.number, None)
        if not consumer.transacted and not keep_delivered:
            self._settlement.closed(connection.name, [consumer])
            return
        self._settlement.give_back(consumer, consumer.unread())
        if consumer.unsettled:
            connection.retire(consumer)

    def detach(self, consumer: Consumer) -> None:
        """It is given nothing more."""
        self._pulls.forget(consumer)
        consumer.queue.detach(consumer, self._now_ms())

    def release(self, connection: Connection, consumers: list[Consumer]) -> None:
        """The channel ends that kept what was delivered to these closed consumers: it goes back. See Settlement.closed."""
        for consumer in consumers:
            connection.retired.pop(consumer.number, None)
        self._settlement.closed(connection.name, consumers, connection)

    def disconnected(self, connection: Connection, lost: bool, counts: bool) -> None:
        """See Connections.disconnect."""
        consumers, settlement = connection.all_consumers(), self._settlement
        for consumer in consumers:
            self.detach(consumer)
            self._idle.watch(consumer.queue)
        connection.consumers.clear()
        connection.retired.clear()
        if lost:
            settlement.lost(connection.name, consumers)
        else:
            settlement.rolled_back(connection.name, [each for each in consumers if each.transacted])
            settlement.closed(connection.name, [each for each in consumers if not each.transacted], connection if counts else None)
