"""Subscriptions: a consumer comes to a queue, which is made where the settings have that, and is let in."""

from __future__ import annotations

from typing import Final

from ..auth.access import Access, at_address, at_queue, needs
from ..connection import Connection
from ..core.amqp.declared import NO_ARGUMENTS, ConsumerArguments
from ..core.consumer import Consumer, ConsumerOptions, SharedWindow
from ..core.queue import Queue
from ..core.rights import Right
from ..core.routing import PostOffice
from ..core.settings.units import counted
from ..entries.declared import Declared
from ..entries.ready_set import ReadySet
from ..errors import Refused
from ..topology.amqp.queues import DeclaredQueues
from ..topology.places import at_new_queue, at_new_topic, at_queue_of_name
from ..topology.resources import Resources

#: Of one connection.
_MOST_CONSUMERS: Final = 10_000


class Subscriptions:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        declared: Declared,
        resources: Resources,
        declared_queues: DeclaredQueues,
        ready: ReadySet,
    ) -> None:
        self.access = access
        self.post_office = post_office
        self._declared = declared
        self._resources = resources
        self._declared_queues = declared_queues
        self._ready = ready

    @needs((Right.CONSUME, at_queue_of_name), (Right.CREATE, at_new_queue))
    def subscribe(self, connection: Connection, number: int, name: str, options: ConsumerOptions) -> Consumer:
        """A consumer on the queue that ``name`` means."""
        return self._subscribe(connection, number, name, options)

    @needs((Right.CONSUME, at_address), (Right.CREATE, at_new_topic))
    def subscribe_topic(self, connection: Connection, number: int, address: str, options: ConsumerOptions) -> Consumer:
        """A consumer of all that is sent to the address from now on, on a queue of its own that goes with it; a ``durable`` one stays until
        ``Removal.end_subscription``, for one consumer at a time.
        """
        selector = self._resources.read_selector(options.selector)
        if options.durable is None:
            queue = self._declared_queues.make_topic_queue(connection, address, selector, options.most_waiting, options.prefetch)
        else:
            queue = self._resources.declare_subscription(options.durable, address, selector)
        return self._subscribe(connection, number, queue.name, options._replace(selector=None))

    @needs((Right.CONSUME, at_queue))
    def consume(
        self,
        connection: Connection,
        number: int,
        queue: Queue,
        prefetch: int,
        window: SharedWindow,
        *,
        holds_nothing: bool = False,
        exclusive: bool = False,
        arguments: ConsumerArguments = NO_ARGUMENTS,
    ) -> Consumer:
        """A consumer as AMQP has them: one of several that share a window, perhaps alone, perhaps waiting until those before it are gone.

        ``arguments``: see DeclaredQueues.read_consumer_arguments. Raises Refused.
        """
        self._declared_queues.check_consume(queue, exclusive)
        consumer = self._subscribe(connection, number, queue.name, ConsumerOptions(prefetch))
        self._declared_queues.with_arguments(consumer, arguments)
        consumer.holds_nothing = holds_nothing
        window.join(consumer)
        if exclusive:
            self._declared_queues.take(queue, consumer)
        self._declared_queues.stand_by(queue, consumer)
        return consumer

    def _subscribe(self, connection: Connection, number: int, name: str, options: ConsumerOptions) -> Consumer:
        if number in connection.consumers or number in connection.retired:
            raise Refused("consumer-exists", f"consumer {number} was used already", "number consumers upwards")
        self._declared.check("consumers")
        if len(connection.consumers) >= _MOST_CONSUMERS:
            raise Refused("too-many-consumers", "this connection has as many consumers as it may", "open another connection")
        queue = self._resources.queue_for_consumer(name)
        _check_admission(connection, queue)
        if options.policy is None and connection.policies is not None:
            options = options._replace(policy=connection.policies.resolve(queue.address))
        consumer = Consumer(
            number,
            connection.name,
            connection.front_end,
            queue.settings.consumer_prefetch if options.prefetch is None else options.prefetch,
            self._resources.read_selector(options.selector),
            options,
            connection.kept,
            connection.returns_at_once,
            connection.client,
        )
        connection.consumers[number] = consumer
        queue.attach(consumer)
        if options.waits:
            self._declared_queues.wait_for_others(queue, consumer)
        self._ready.mark(queue)
        return consumer


def _check_admission(connection: Connection, queue: Queue) -> None:
    exclusive = queue.options.get("exclusive", queue.settings.default_exclusive)
    if exclusive and any(consumer.connection != connection.name for consumer in queue.consumers):
        raise Refused("queue-exclusive", f"queue {queue.name} is exclusive and has a consumer", "wait until that one is gone")
    most = queue.options.get("max_consumers", queue.settings.default_max_consumers)
    if most >= 0 and len(queue.consumers) >= most:
        raise Refused("too-many-consumers", f"queue {queue.name} takes {counted(most, 'consumer')}", "wait, or raise max-consumers")
