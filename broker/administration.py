"""Administration: the verbs of what is declared, for front ends and management: queues, exchanges, policies, virtual hosts, settings.

What is done in steps (``Steps``) does one a turn of the loop (``work``, or management's calls). Names are in full, with the prefix of their
virtual host, but where a connection is given: there they are those of its virtual host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from homing.journal.contract import Outcome

from .auth.access import BROKER, Who, at_queue, everywhere, needs
from .connection import Connection
from .core.amqp.exchange import Binding, Destination, Exchange
from .core.amqp.policy import Policy
from .core.amqp.vhost import split
from .core.counts import Figures
from .core.queue import Queue
from .core.rights import Right
from .core.settings.address_settings import AddressSettings, AddressSettingsRepository, Layers
from .engine import Engine
from .entries import browsing
from .steps import Steps
from .topology import places
from .topology.amqp.policies import PolicyChange
from .topology.explain import Explained, explain

T = TypeVar("T")

#: Verbs of this file that ask for no right, by why. Every other says before itself what it asks for (auth/access.py).
FREE: Final[Mapping[str, str]] = {
    "answers to a front end, which asks before it shows them": "queues_of settings would_hold"
    " settings_of explain list_virtual_hosts list_exchanges bindings_of_queue figures",
    "of what was asked for before": "consumers_gone delete_exclusive",
}


class Administration(Engine):
    # -- queues ------------------------------------------------------------------------------------------------------

    def queues_of(self, address: str) -> list[str] | None:
        """The names of an address's queues, sorted; None where there is no such address."""
        found = self.post_office.addresses.get(address)
        return None if found is None else sorted(queue.name for queue in found.queues)

    @needs((Right.MANAGE, at_queue), audited=True, tells=places.whether_paused)
    def pause(self, who: Who, queue: Queue, paused: bool) -> None:
        """Whether it hands anything out."""
        if queue.paused is not paused:
            queue.paused = paused
            self.recorder.queue_changed(queue)
            self.ready.mark(queue)

    @needs((Right.BROWSE, at_queue), audited=True, action="peek")
    def browse(self, who: Who, queue: Queue, after: tuple[int, int], count: int) -> Steps[list[browsing.Ordered]]:
        """See browsing.browse."""
        return browsing.browse(self.state, queue, after, count)

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
            count = yield from self.resources.purge(BROKER, queue)
        except Exception:
            queue.paused = paused
            self.ready.mark(queue)
            raise
        if self.post_office.queues_by_id.get(queue.queue_id) is queue:
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

    def _end_queue(self, queue: Queue, outcome: Outcome = "purged") -> None:
        if self.office.move_out(queue, outcome):
            self._delete_queue(queue, outcome=outcome)

    def _delete_queue(self, queue: Queue, answer: Callable[[], None] | None = None, outcome: Outcome = "purged") -> int:
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
        return self.settings_in_force.repository

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
            state.enqueuing.lateness_ms,
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
