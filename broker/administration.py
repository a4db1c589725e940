"""Administration: the verbs of what is declared, for front ends and management: queues, exchanges, policies, virtual hosts, settings.

What is done in steps (``Steps``) does one a turn of the loop (``work``, or management's calls). Names are in full, with the prefix of their
virtual host, but where a connection is given: there they are those of its virtual host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from .auth.access import Who, at_queue, everywhere, needs, needs_any
from .auth.users import User
from .connection import Connection
from .core.amqp.exchange import Binding, Destination, Exchange, Fields
from .core.amqp.policy import Policy
from .core.amqp.vhost import split
from .core.counts import Figures
from .core.dead_letter import DELETED
from .core.message import MessageReference
from .core.queue import Queue
from .core.queue_options import Table
from .core.rights import Grant, Right
from .core.settings.address_settings import AddressSettings, AddressSettingsRepository, Layers
from .engine import Engine
from .entries import browsing
from .entries.by_number import QueueEntry, act_on, find, find_in_memory_only
from .steps import Steps
from .topology import places
from .topology.amqp.exchanges import ALTERNATE
from .topology.amqp.policies import PolicyChange
from .topology.explain import Explained, explain

T = TypeVar("T")

#: Verbs of this file that ask for no right, by why. Every other says before itself what it asks for (auth/access.py).
FREE: Final[Mapping[str, str]] = {
    "answers to a front end, which asks before it shows them": "queues_of find_message find_in_memory_only settings would_hold"
    " alone settings_of explain list_virtual_hosts list_exchanges bindings_of_queue figures",
    "of what was asked for before": "consumers_gone delete_exclusive",
}


class Administration(Engine):
    # -- rights and users --------------------------------------------------------------------------------------------

    @needs((Right.ADMINISTER, everywhere))
    def list_users(self, who: Who) -> list[User]:
        """By name; those of broker.yaml too."""
        return self.access.users.all()

    @needs((Right.ADMINISTER, places.at_user), audited=True)
    def add_user(self, who: Who, name: str, hashed: str, grants: tuple[Grant, ...], ends_ms: int | None = None) -> User:
        """See Users.add."""
        return self.access.users.add(name, hashed, grants, ends_ms)

    @needs((Right.ADMINISTER, places.at_user), audited=True)
    def change_password(self, who: Who, name: str, hashed: str) -> User:
        """See Users.change_password."""
        return self.access.users.change_password(name, hashed)

    @needs((Right.ADMINISTER, places.at_user), audited=True)
    def delete_user(self, who: Who, name: str) -> None:
        """See Users.delete."""
        self.access.users.delete(name)

    @needs((Right.ADMINISTER, places.at_user), audited=True)
    def grant(self, who: Who, name: str, grant: Grant) -> User:
        """See Users.grant."""
        return self.access.users.grant(name, grant)

    @needs((Right.ADMINISTER, places.at_user), audited=True)
    def revoke(self, who: Who, name: str, grant: Grant) -> User:
        """See Users.revoke."""
        return self.access.users.revoke(name, grant)

    # -- queues ------------------------------------------------------------------------------------------------------

    def queues_of(self, address: str) -> list[str] | None:
        """The names of an address's queues, sorted; None where there is no such address."""
        found = self.state.post_office.addresses.get(address)
        return None if found is None else sorted(queue.name for queue in found.queues)

    @needs((Right.CREATE, places.created), (Right.CONSUME, places.created_source), (Right.SEND, places.created_target), audited=True)
    def create_queue(self, who: Who, arguments: Table) -> Queue:
        """See Resources.declare."""
        return self.resources.declare(arguments)

    @needs((Right.MANAGE, at_queue), audited=True, tells=places.whether_paused)
    def pause(self, who: Who, queue: Queue, paused: bool) -> None:
        """Whether it hands anything out."""
        if queue.paused is not paused:
            queue.paused = paused
            self.recorder.queue_changed(queue)
            self.state.mark_ready(queue)

    @needs((Right.MANAGE, at_queue), audited=True, counts=int)
    def purge(self, who: Who, queue: Queue) -> Steps[int]:
        """Removes all messages that nobody holds; returns how many went."""
        return self.resources.purge_steps(queue)

    @needs((Right.BROWSE, at_queue), audited=True, action="peek")
    def browse(self, who: Who, queue: Queue, after: tuple[int, int], count: int) -> Steps[list[browsing.Place]]:
        """See browsing.browse."""
        return browsing.browse(self.state, queue, after, count)

    def find_message(self, message_id: int, entries: Iterable[QueueEntry]) -> Steps[list[MessageReference]]:
        """See by_number.find."""
        return find(self.state, message_id, entries)

    def find_in_memory_only(self, message_ids: Collection[int]) -> Steps[list[MessageReference]]:
        """See by_number.find_in_memory_only."""
        return find_in_memory_only(self.state, message_ids)

    @needs((Right.MANAGE, places.at_all), audited=True)
    def delete_message(self, who: Who, references: Sequence[MessageReference]) -> Steps[bool]:
        """From all these places; whether it could be: see by_number.act_on."""

        def delete(reference: MessageReference) -> None:
            self.state.references.leave(reference, "purged", self.now_ms(), DELETED)

        for place in references:
            if not (yield from act_on(self.state, place, delete)):
                return False
        return True

    @needs((Right.CONSUME, places.moved_from), (Right.SEND, places.moved_to), audited=True)
    def move_message(self, who: Who, place: MessageReference, target: Queue) -> Steps[bool]:
        """Into another queue, failed count at 0; whether it could be. Raises Refused where that has no room."""
        return act_on(self.state, place, lambda reference: self.hand.move(reference, target))

    @needs((Right.MANAGE, at_queue), audited=True, action="delete-queue", counts=int)
    def remove_queue(self, who: Who, queue: Queue, check: Callable[[], None] | None = None) -> Steps[int]:
        """Deletes the queue with what is in it; returns how many messages went. Where that fails, what is left is a queue as before.

        ``check`` raises Refused where it is not to be deleted as it stands: only who may delete it hears what is in it.
        """
        if check is not None:
            check()
        return self._remove_queue(queue)

    def _remove_queue(self, queue: Queue) -> Steps[int]:
        paused, queue.paused = queue.paused, True  # nobody is handed what is about to go
        try:
            count = yield from self.resources.purge_steps(queue)
        except Exception:
            queue.paused = paused
            self.state.mark_ready(queue)
            raise
        if self.state.post_office.queues_by_id.get(queue.queue_id) is queue:
            count += self._delete_queue(queue)
        return count

    @needs((Right.MANAGE, at_queue), audited=True)
    def delete_queue(
        self, who: Who, queue: Queue, answer: Callable[[], None] | None = None, check: Callable[[], None] | None = None
    ) -> int:
        """Removes a queue and what is in it, at once; its consumers are notified, after ``answer``. ``check``: see ``remove_queue``."""
        if check is not None:
            check()
        return self._delete_queue(queue, answer)

    def _end_queue(self, queue: Queue, outcome: str = "purged") -> None:
        if self.office.move_out(queue, outcome):
            self._delete_queue(queue, outcome=outcome)

    def _delete_queue(self, queue: Queue, answer: Callable[[], None] | None = None, outcome: str = "purged") -> int:
        gone = [(self.connections[each.connection], each) for each in self.declared_queues.all_consumers(queue)]
        for connection, consumer in gone:
            del connection.consumers[consumer.number]
            self.pulls.forget(consumer)
            queue.detach(consumer, self.now_ms())
        count = self.resources.delete_queue(queue, outcome)
        if answer is not None:
            answer()
        for connection, consumer in gone:
            connection.front_end.cancelled(consumer, "queue-deleted", f"queue {queue.name} was deleted", "subscribe to another queue")
        return count

    # -- queues as AMQP has them -------------------------------------------------------------------------------------

    @needs((Right.CREATE, places.declared), (Right.CONSUME, places.declared_source), (Right.SEND, places.declared_target))
    def declare_queue(
        self, connection: Connection, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
    ) -> Queue:
        """See DeclaredQueues.declare."""
        return self.declared_queues.declare(
            connection, name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments
        )

    @needs_any(places.looked_up)
    def look_up_queue(self, connection: Connection, name: str) -> Queue:
        """See DeclaredQueues.look_up."""
        return self.declared_queues.look_up(connection, name)

    @needs((Right.CONSUME, places.replied))
    def make_reply_queue(self, connection: Connection) -> Queue:
        """See DeclaredQueues.make_reply_queue."""
        return self.declared_queues.make_reply_queue(connection)

    def consumers_gone(self, queues: Iterable[Queue]) -> None:
        """These queues have lost consumers: others may take over, and some end with their last one."""
        queues = list(queues)
        self.declared_queues.promote(queues)
        for queue in self.declared_queues.unused(queues):
            self._end_queue(queue)

    def delete_exclusive(self, connection: Connection) -> None:
        """The connection has ended, and the queues end that only it might use."""
        for queue in self.declared_queues.owned_by(connection):
            self._end_queue(queue)

    # -- exchanges ---------------------------------------------------------------------------------------------------

    @needs((Right.CREATE, places.at_exchange), (Right.CONSUME, places.with_alternate), (Right.SEND, places.alternate))
    def declare_exchange(
        self, connection: Connection, name: str, kind: str, *, durable: bool, auto_delete: bool, internal: bool, arguments: Table
    ) -> None:
        """See Exchanges.declare."""
        exchanges = self.virtual_hosts.exchanges_of(connection)
        exchanges.declare(name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        what = f"exchange '{name}' in vhost '{connection.virtual_host}'"
        self.declared_queues.report_ignored(what, [each for each in arguments if each != ALTERNATE], "the ")

    @needs_any(places.exchange_looked_up)
    def look_up_exchange(self, connection: Connection, name: str) -> None:
        """See Exchanges.find."""
        self.virtual_hosts.exchanges_of(connection).find(name)

    @needs((Right.MANAGE, places.at_exchange), audited=True)
    def delete_exchange(self, connection: Connection, name: str, if_unused: bool) -> None:
        """See Exchanges.delete."""
        self.virtual_hosts.exchanges_of(connection).delete(name, if_unused)

    @needs((Right.SEND, places.bound_to), (Right.CONSUME, places.bound_from))
    def bind(
        self,
        connection: Connection,
        source: str,
        destination: Destination,
        key: str,
        arguments: Table,
        fields: Fields | None = None,
    ) -> None:
        """See Exchanges.bind."""
        self.virtual_hosts.exchanges_of(connection).bind(source, destination, key, arguments, fields)

    @needs((Right.SEND, places.bound_to), (Right.CONSUME, places.bound_from))
    def unbind(
        self,
        connection: Connection,
        source: str,
        destination: Destination,
        key: str,
        arguments: Table,
        fields: Fields | None = None,
    ) -> None:
        """See Exchanges.unbind."""
        self.virtual_hosts.exchanges_of(connection).unbind(source, destination, key, arguments, fields)

    # -- policies and settings ---------------------------------------------------------------------------------------

    @needs(
        (Right.MANAGE, places.policy_set),
        (Right.CONSUME, places.policy_source),
        (Right.SEND, places.policy_target),
        audited=True,
        tells=places.policy_named,
    )
    def set_policy(self, who: Who, policy: Policy) -> Steps[None]:
        """See Policies.with_set. Raises Refused, also where there is no such virtual host."""
        self.virtual_hosts.find(policy.virtual_host)
        return self.in_force.alone(self._change_policies(lambda: self.policies.with_set(policy)))

    @needs((Right.MANAGE, places.policy_cleared), audited=True, tells=places.policy_cleared_named)
    def clear_policy(self, who: Who, virtual_host: str, name: str) -> Steps[None]:
        """See Policies.cleared."""
        return self.in_force.alone(self._change_policies(lambda: self.policies.cleared(virtual_host, name)))

    def _change_policies(self, change: Callable[[], PolicyChange]) -> Steps[None]:
        yield from self.change_in_force(self.settings, change())

    @property
    def settings(self) -> AddressSettingsRepository:
        """In force: those of the file, with what commands have laid over them."""
        return self.state.settings

    @needs(
        (Right.MANAGE, places.settings_set),
        (Right.CONSUME, places.settings_source),
        (Right.SEND, places.settings_target),
        audited=True,
        tells=places.settings_told,
    )
    def set_settings(self, who: Who, layers: Layers) -> Steps[None]:
        """Commands have set these, and no others, from now on. Raises Refused, and then nothing has changed. Within ``alone``."""
        return self._command_settings(layers)

    @needs((Right.MANAGE, places.settings_set), audited=True, tells=places.settings_told)
    def unset_settings(self, who: Who, layers: Layers) -> Steps[None]:
        """As ``set_settings``, where some were taken back: they lead no dead letters anywhere."""
        return self._command_settings(layers)

    def _command_settings(self, layers: Layers) -> Steps[None]:
        return self.change_in_force(self.configured.laid_over(layers), then=lambda: self.commanded.keep(layers))

    def alone(self, steps: Steps[T]) -> Steps[T]:
        """A change of settings, from what it is worked out of to its end: others wait."""
        return self.in_force.alone(steps)

    def would_hold(self, settings: AddressSettingsRepository) -> Steps[list[tuple[Queue, AddressSettings]]]:
        """What would hold for each queue: its own settings where that is so already. Raises Refused."""
        found = yield from self.in_force.find(settings, self.policies.for_queue)
        return [(queue, held) for queue, (_, held) in found.items()]

    def settings_of(self, name: str) -> AddressSettings:
        """What holds for the queue of that name, or would for an address."""
        queue = self.post_office.find_queue(name)
        return self.settings.resolve(name) if queue is None else queue.settings

    def explain(self, address: str) -> Explained:
        """What holds for an address, and where each value came from."""
        return explain(self.state, self.office.exchanges, address)

    def figures(self) -> Figures:
        """What was counted since the start, for metrics."""
        state = self.state
        return Figures(
            self.memory.limit,
            state.references.dead_lettered,
            state.references.attempts,
            state.lateness_ms,
            self.events.describe(),
            state.schedule.next_ms(),
            len(self.office.parking.staying),
            self.flow.held_back(),
            self.flow.levels(),
        )

    def list_exchanges(self) -> list[tuple[str, Exchange]]:
        """And the virtual host of each."""
        return [(host.name, each) for host in self.virtual_hosts.all() for each in host.exchanges.exchanges.values()]

    def bindings_of_queue(self, queue: Queue) -> list[Binding]:
        """That lead to it."""
        destination = Destination(split(queue.name)[1], True)
        exchanges = self.virtual_hosts.of(queue).exchanges.exchanges.values()
        return [binding for exchange in exchanges for binding in exchange.bindings_to(destination)]

    # -- virtual hosts and connections -------------------------------------------------------------------------------

    def list_virtual_hosts(self) -> list[str]:
        return [each.name for each in self.virtual_hosts.all()]

    @needs((Right.ADMINISTER, places.at_virtual_host), audited=True, action="add-vhost")
    def add_virtual_host(self, who: Who, name: str) -> str:
        """See VirtualHosts.add; its name as it was given first."""
        return self.virtual_hosts.add(name).name

    @needs((Right.ADMINISTER, places.at_virtual_host), audited=True, action="delete-vhost")
    def delete_virtual_host(self, who: Who, name: str) -> Steps[tuple[int, int]]:
        """With everything in it; its connections are closed. Broken off half-way, what is left is still a virtual host.

        Returns how many queues and messages went. Raises Refused.
        """
        virtual_host = self.virtual_hosts.close(name)
        for connection in [each for each in self.connections.values() if each.virtual_host == virtual_host.name]:
            connection.front_end.end("virtual-host-deleted", f"vhost '{virtual_host.name}' is deleted", "connect to another one")
        count = queues = 0
        try:
            for queue in self.virtual_hosts.queues_of(virtual_host):
                count += yield from self._remove_queue(queue)
                queues += 1
                yield
        except Exception:
            self.virtual_hosts.reopen(virtual_host)
            raise
        self.virtual_hosts.forget(virtual_host)
        return queues, count

    @needs((Right.MANAGE, everywhere), audited=True)
    def close_connection(self, who: Who, connection: Connection) -> int:
        """What it holds goes back as at a clean close: nobody is blamed for it. Returns how many messages that were."""
        given_back = len(connection.held())
        self._end(connection, "connection-closed", "an operator closed this connection")
        return given_back
