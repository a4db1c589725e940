"""The verbs of consuming: subscriptions, pulls and gets, and what a consumer holds until it is settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .administration import Administration
from .auth.access import needs, queue_place
from .connection import Connection
from .core.amqp.declared import NO_ARGUMENTS, ConsumerArguments
from .core.consumer import Consumer, ConsumerOptions, SharedWindow
from .core.dead_letter import EXPIRED
from .core.message import MessageReference, Where
from .core.queue import Queue
from .core.rights import Right
from .core.settings.units import counted
from .core.settled_report import SettledReport
from .errors import Refused
from .topology.places import at_new_queue, at_new_topic, at_queue_named, at_queue_of_name, at_topic, consumed, same_queue
from .topology.resources import is_subscription

#: As in administration.py.
FREE: Final[Mapping[str, str]] = {
    "of a consumer that was let in": "unsubscribe release pull delivered touch offer_room check_get when_read serve report_settled",
}
#: Of one connection.
_MOST_CONSUMERS: Final = 10_000


class Consuming(Administration):
    @needs((Right.CONSUME, at_queue_of_name), (Right.CREATE, at_new_queue))
    def subscribe(self, connection: Connection, number: int, name: str, options: ConsumerOptions) -> Consumer:
        """A consumer on the queue that ``name`` means."""
        return self._subscribe(connection, number, name, options)

    @needs((Right.CONSUME, at_topic), (Right.CREATE, at_new_topic))
    def subscribe_topic(self, connection: Connection, number: int, address: str, options: ConsumerOptions) -> Consumer:
        """A consumer of all that is sent to the address from now on, on a queue of its own that goes with it; a ``durable`` one stays until
        ``end_subscription``, for one consumer at a time.
        """
        selector = self.resources.read_selector(options.selector)
        if options.durable is None:
            most = options.most_waiting
            if most is not None:
                most += self.settings.resolve(address).consumer_prefetch if options.prefetch is None else options.prefetch
            queue = self.declared_queues.make_topic_queue(connection, address, selector, most)
        else:
            queue = self.resources.declare_subscription(options.durable, address, selector)
        return self._subscribe(connection, number, queue.name, options._replace(selector=None))

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
            self.unsubscribe(connection, consumer)
        self._end_queue(queue, "purged")

    def _subscribe(self, connection: Connection, number: int, name: str, options: ConsumerOptions) -> Consumer:
        if number in connection.consumers or number in connection.retired:
            raise Refused("consumer-exists", f"consumer {number} was used already", "number consumers upwards")
        self.declared.check("consumers")
        if len(connection.consumers) >= _MOST_CONSUMERS:
            raise Refused("too-many-consumers", "this connection has as many consumers as it may", "open another connection")
        queue = self.resources.queue_for_consumer(name)
        self._check_admission(connection, queue)
        if options.policy is None and connection.policies is not None:
            options = options._replace(policy=connection.policies.resolve(queue.address))
        consumer = Consumer(
            number,
            connection.name,
            connection.front_end,
            queue.settings.consumer_prefetch if options.prefetch is None else options.prefetch,
            self.resources.read_selector(options.selector),
            options,
            connection.kept,
            connection.returns_at_once,
            connection.client,
        )
        connection.consumers[number] = consumer
        queue.attach(consumer)
        if options.waits:
            self.declared_queues.wait_for_others(queue, consumer)
        self.ready.mark(queue)
        return consumer

    def _check_admission(self, connection: Connection, queue: Queue) -> None:
        exclusive = queue.options.get("exclusive", queue.settings.default_exclusive)
        if exclusive and any(consumer.connection != connection.name for consumer in queue.consumers):
            raise Refused("queue-exclusive", f"queue {queue.name} is exclusive and has a consumer", "wait until that one is gone")
        most = queue.options.get("max_consumers", queue.settings.default_max_consumers)
        if most >= 0 and len(queue.consumers) >= most:
            raise Refused("too-many-consumers", f"queue {queue.name} takes {counted(most, 'consumer')}", "wait, or raise max-consumers")

    @needs((Right.CONSUME, consumed))
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

        ``arguments``: see ``read_consumer_arguments``. Raises Refused.
        """
        self.declared_queues.check_consume(queue, exclusive)
        consumer = self._subscribe(connection, number, queue.name, ConsumerOptions(prefetch))
        self.declared_queues.with_arguments(consumer, arguments)
        consumer.holds_nothing = holds_nothing
        window.join(consumer)
        if exclusive:
            self.declared_queues.take(queue, consumer)
        self.declared_queues.stand_by(queue, consumer)
        return consumer

    def offer_room(self, window: SharedWindow) -> None:
        """A shared window has room again: whoever holds least first."""
        self.ready.offer_room(window)

    def unsubscribe(self, connection: Connection, consumer: Consumer, keep_delivered: bool = False) -> None:
        """A clean end. What was delivered stays where the session is transacted or wants to keep it, until that ends."""
        consumer.queue.detach(consumer, self.now_ms())
        self.resources.idle.watch(consumer.queue)
        connection.consumers.pop(consumer.number, None)
        self.pulls.forget(consumer)
        if not consumer.transacted and not keep_delivered:
            self.settlement.closed(connection.name, [consumer])
            return
        self.settlement.give_back(consumer, consumer.unread())
        if consumer.unsettled:
            connection.retire(consumer)

    def release(self, connection: Connection, consumers: list[Consumer]) -> None:
        """The channel ends that kept what was delivered to these closed consumers: it goes back. See Settlement.closed."""
        for consumer in consumers:
            connection.retired.pop(consumer.number, None)
        self.settlement.closed(connection.name, consumers, connection)

    def check_get(self, connection: Connection, queue: Queue) -> None:
        """Raises Refused while memory is short, where the next message is on disk and the connection keeps much that it got before."""
        pending, kept = queue.pending, connection.kept.bytes
        if queue.paused or pending.count or not (pending.disk_count or pending.overdue) or self.room.quota.allow(kept):
            return
        raise Refused(
            "memory-short",
            f"memory-limit is near, and this connection keeps {kept >> 20} MiB that it got: acknowledge some of it, then get more",
            "acknowledge what was got, or raise broker.memory-limit",
        )

    @needs((Right.CONSUME, consumed), same=same_queue)
    def get(self, connection: Connection, number: int, queue: Queue) -> MessageReference | None:
        """The next message, if there is one, for the consumer under ``number`` that exists only to hold what was got of this queue.

        One that is ``counted`` already may leave only once that is on disk.
        """
        now_ms = self.now_ms()
        queue.used_at_ms = now_ms
        if queue.paused or queue.shut or self.stopping:
            return None
        # Only where that matters: a connection may hold very many of its single gets.
        holds_some = bool(queue.suspects) and any(each.queue is queue and each.unsettled for each in connection.all_consumers())
        while (reference := queue.take_next(connection.name, now_ms, holds_some)) is not None:
            self.awaited.made(queue)
            if reference.expired(now_ms):
                queue.delivering -= 1
                reference.where = Where.IN_COMMIT
                self.office.dead_letter(reference, EXPIRED)
                continue
            consumer = connection.retired.get(number) or self._holder(connection, number, queue)
            consumer.dispatch((reference,), now_ms)
            consumer.delivered(reference.tag, now_ms)
            if queue.settings.persist_delivery_count_before_delivery:
                reference.delivery_count += 1
                reference.counted = True
                self.recorder.changed((reference,))
            return reference
        return None

    @staticmethod
    def _holder(connection: Connection, number: int, queue: Queue) -> Consumer:
        consumer = Consumer(
            number,
            connection.name,
            connection.front_end,
            1,
            kept=connection.kept,
            returns_at_once=connection.returns_at_once,
            client=connection.client,
        )
        consumer.queue = queue
        consumer.open = False
        connection.retire(consumer)
        return consumer

    def report_settled(self, connection: Connection, number: int, queue: Queue, told: SettledReport) -> None:
        """What was acknowledged of the queue has failed. A dead letter is made of it only for who may send to the queue."""
        consumer = Consumer(number, connection.name, connection.front_end, 1, client=connection.client)
        consumer.queue = queue
        consumer.open = False
        connection.late_reports += 1
        self.settled_reports.take(consumer, told, self.access.may(connection, Right.SEND, queue_place(queue)))

    def when_read(self, connection: Connection, queue: Queue, callback: Callable[[], None]) -> bool:
        """Calls back when more of the queue has come, from disk or from who held it; False, and never, where there is nothing to come."""
        given_nothing = queue.paused or self.stopping or queue.is_apart(connection.name, self.now_ms())
        return not given_nothing and self.pager.when_read(queue, callback)

    def serve(self, queue: Queue) -> None:
        """See Dispatcher.serve."""
        if not self.stopping:
            self.dispatcher.serve(queue)

    def pull(self, connection: Connection, consumer: Consumer, timeout_ms: int) -> None:
        """One credit; without a message within ``timeout_ms`` (-1: without end) it is taken back and answered."""
        self.pulls.add(connection, consumer, self.now_ms() + timeout_ms if timeout_ms >= 0 else None)
        self.ready.mark(consumer.queue)

    def delivered(self, consumer: Consumer, count: int) -> None:
        """The application has so many of what it holds: its window grows (ack type 0)."""
        consumer.extend(count)
        self.ready.mark(consumer.queue)

    def touch(self, references: list[MessageReference]) -> None:
        """``consumer-timeout`` begins anew for what was delivered of these."""
        now_ms = self.now_ms()
        for reference in references:
            if reference.delivered_at_ms is not None:
                reference.delivered_at_ms = now_ms
