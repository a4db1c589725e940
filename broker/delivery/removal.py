"""How queues end, and what they are in: by a command, in steps; by a client, at once; by themselves, when their time or their last user is
gone. Their consumers are notified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.journal.contract import Outcome

from ..auth.access import Access, Who, at_queue, needs
from ..connection import Connection
from ..core.queue import Queue
from ..core.rights import Right
from ..core.routing import PostOffice
from ..errors import Refused
from ..steps import Steps
from ..topology.amqp.queues import DeclaredQueues
from ..topology.amqp.virtual_hosts import VirtualHosts
from ..topology.contents import Contents
from ..topology.deletion import Deletion
from ..topology.places import at_queue_named, at_virtual_host
from ..topology.resources import is_subscription
from .connections import Connections
from .consumers import Consumers
from .dead_lettering import DeadLetterOffice


class Removal:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        contents: Contents,
        deletion: Deletion,
        declared_queues: DeclaredQueues,
        virtual_hosts: VirtualHosts,
        connections: Connections,
        consumers: Consumers,
        office: DeadLetterOffice,
    ) -> None:
        self.access = access
        self.post_office = post_office
        self._contents = contents
        self._deletion = deletion
        self._declared_queues = declared_queues
        self._virtual_hosts = virtual_hosts
        self._connections = connections
        self._consumers = consumers
        self._office = office

    @needs((Right.MANAGE, at_queue), audited=True, action="delete-queue", counts=int)
    def remove(self, who: Who, queue: Queue, check: Callable[[], None] | None = None) -> Steps[int]:
        """Deletes the queue with what is in it; returns how many messages went. Where that fails, what is left is a queue as before.

        ``check`` raises Refused where it is not to be deleted as it stands: only who may delete it hears what is in it.
        """
        if check is not None:
            check()
        return self._remove(queue)

    def _remove(self, queue: Queue) -> Steps[int]:
        count = yield from self._contents.empty(queue)
        if self.post_office.queues_by_id.get(queue.queue_id) is queue:
            count += self._delete(queue)
        return count

    @needs((Right.MANAGE, at_queue), audited=True, action="delete-queue")
    def delete(self, who: Who, queue: Queue, answer: Callable[[], None] | None = None, check: Callable[[], None] | None = None) -> int:
        """Removes a queue and what is in it, at once; its consumers are notified, after ``answer``. ``check``: see ``remove``."""
        if check is not None:
            check()
        return self._delete(queue, answer)

    def end(self, queue: Queue, outcome: Outcome = "purged") -> None:
        """It ends by itself: its time is over, or its last user is gone. What is parked in it does not end with it."""
        if self._office.move_out(queue, outcome):
            self._delete(queue, outcome=outcome)

    def _delete(self, queue: Queue, answer: Callable[[], None] | None = None, outcome: Outcome = "purged") -> int:
        gone = [(self._connections.all[each.connection], each) for each in self._declared_queues.all_consumers(queue)]
        for connection, consumer in gone:
            del connection.consumers[consumer.number]
            self._consumers.detach(consumer)
        count = self._deletion.delete_queue(queue, outcome)
        if answer is not None:
            answer()
        for connection, consumer in gone:
            connection.front_end.cancelled(consumer, "queue-deleted", f"queue {queue.name} was deleted", "subscribe to another queue")
        return count

    def consumers_gone(self, queues: Iterable[Queue]) -> None:
        """These queues have lost consumers: others may take over, and some end with their last one."""
        queues = list(queues)
        self._declared_queues.promote(queues)
        for queue in self._declared_queues.unused(queues):
            self.end(queue)

    def delete_exclusive(self, connection: Connection) -> None:
        """The connection has ended, and the queues end that only it might use."""
        for queue in self._declared_queues.owned_by(connection):
            self.end(queue)

    @needs((Right.CONSUME, at_queue_named))
    def end_subscription(self, connection: Connection, name: str) -> None:
        """Of a durable one nobody wants any more: what waits for it goes. Raises Refused."""
        queue = self.post_office.queues.get(name)
        if queue is None or not is_subscription(queue):
            raise Refused("no-such-subscription", f"there is no durable subscription {name[:80]!r}", "use its name, and the same client-id")
        others = [each for each in queue.consumers if each.connection != connection.name]
        if others:
            raise Refused("subscription-in-use", f"another connection consumes the durable subscription {name[:80]!r}", "end that first")
        for consumer in list(queue.consumers):
            self._consumers.unsubscribe(connection, consumer)
        self.end(queue)

    @needs((Right.ADMINISTER, at_virtual_host), audited=True, action="delete-vhost")
    def delete_virtual_host(self, who: Who, virtual_host: str) -> Steps[tuple[int, int]]:
        """With everything in it; its connections are closed. Broken off half-way, what is left is still a virtual host.

        Returns how many queues and messages went. Raises Refused.
        """
        host = self._virtual_hosts.close(virtual_host)
        for connection in [each for each in self._connections.all.values() if each.virtual_host == host.name]:
            connection.front_end.end("virtual-host-deleted", f"vhost '{host.name}' is deleted", "connect to another one")
        count = queues = 0
        try:
            for queue in self._virtual_hosts.queues_of(host):
                count += yield from self._remove(queue)
                queues += 1
                yield
        except Exception:
            self._virtual_hosts.reopen(host)
            raise
        self._virtual_hosts.forget(host)
        return queues, count
