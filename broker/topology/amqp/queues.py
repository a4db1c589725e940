"""Queues as AMQP 0-9-1 knows them: declared, exclusive to a connection, gone with their last consumer."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping

from homing.journal.declarations import QueueOptions, Table

from ...auth.access import Access, needs, needs_any
from ...connection import Connection
from ...core.amqp.declared import AMQP, ConsumerArguments, arguments_of, ignored
from ...core.amqp.vhost import REPLY_TO, SEPARATOR, local_name, prefix_of, virtual_host_of
from ...core.consumer import Consumer
from ...core.queue import Queue
from ...core.reserved import RESERVED
from ...core.rights import Place, Right
from ...core.routing import ANYCAST, MULTICAST, PostOffice, RoutingTypes
from ...core.selector import Selector
from ...core.settings.in_force import SettingsInForce
from ...core.settings.wildcard import ANY_WORDS
from ...entries.ready_set import ReadySet
from ...errors import Refused
from .. import places
from ..resources import Declaration, Resources, check_name
from .arguments import GENERATED, check_same, consumer_arguments, keeps_all, options_for
from .ignored import IgnoredArguments

log = logging.getLogger("homing")


def _looked_up(owner: places.ByName, connection: Connection, name: str) -> Iterable[Place]:
    return (places.place_of(owner, prefix_of(connection.virtual_host) + name),)


def _declared(connection: Connection, name: str) -> Iterable[Place]:
    return (Place("queue", (prefix_of(connection.virtual_host) + (name or GENERATED),)),)


def _declared_source(connection: Connection, name: str, arguments: Table) -> Iterable[Place]:
    """As RabbitMQ asks of who declares a dead-letter exchange: to read from the queue, and to write to the exchange."""
    return _declared(connection, name) if isinstance(arguments.get("x-dead-letter-exchange"), str) else ()


def _declared_target(connection: Connection, arguments: Table) -> Iterable[Place]:
    exchange, key = arguments.get("x-dead-letter-exchange"), arguments.get("x-dead-letter-routing-key")
    if not isinstance(exchange, str):
        return ()
    return places.exchange_places(prefix_of(connection.virtual_host), exchange, (key if isinstance(key, str) else ANY_WORDS,))


def _replied(connection: Connection) -> Iterable[Place]:
    return (Place("queue", (prefix_of(connection.virtual_host) + REPLY_TO,)),)


class DeclaredQueues:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        settings: SettingsInForce,
        resources: Resources,
        ignored: IgnoredArguments,
        ready: ReadySet,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self.post_office = post_office
        self._settings = settings
        self._ready = ready
        self._now_ms = now_ms
        self._ignored = ignored
        self._resources = resources
        #: Exclusive queues and the connection each belongs to.
        self._owners: dict[Queue, str] = {}
        self._owned: dict[str, dict[Queue, None]] = {}
        #: Queues that one consumer has to itself.
        self._taken: dict[Queue, Consumer] = {}
        #: Consumers that wait to become the single active one, in order.
        self._standing_by: dict[Queue, list[Consumer]] = {}
        #: The last that was the single active one.
        self._active: dict[Queue, Consumer] = {}
        resources.queue_gone.append(self._queue_gone)

    # -- found -------------------------------------------------------------------------------------------------------

    def find(self, connection: Connection, name: str) -> Queue:
        """The queue of that name. Raises Refused: not there, or another connection's own."""
        queue = self._named(connection, name)
        if queue is None:
            raise _not_found(connection, name)
        owner = self._owners.get(queue)
        if owner is not None and owner != connection.name:
            raise _locked(queue)
        return queue

    def _named(self, connection: Connection, name: str) -> Queue | None:
        """The connection's virtual host alone is looked into."""
        if name.startswith(SEPARATOR):
            return None
        return self.post_office.queues.get(prefix_of(connection.virtual_host) + name)

    # -- made and removed --------------------------------------------------------------------------------------------

    @needs_any(_looked_up, action="look-up-queue")
    def look_up(self, connection: Connection, name: str) -> Queue:
        """A passive declaration: the same, and a use of the queue. Raises Refused."""
        queue = self.find(connection, name)
        queue.used_at_ms = self._now_ms()
        return queue

    @needs(
        (Right.CREATE, _declared),
        (Right.CONSUME, _declared_source),
        (Right.SEND, _declared_target),
        action="declare-queue",
    )
    def declare(self, connection: Connection, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table) -> Queue:
        """Makes a queue, with a name of ours where ``name`` is empty; the same declaration again is no error, another one is."""
        if self._named(connection, name) is not None:
            queue = self.find(connection, name)
            if exclusive is not (queue in self._owners):
                raise _locked(queue)
            check_same(queue, durable and not exclusive, auto_delete, arguments)
            queue.used_at_ms = self._now_ms()
            return queue
        for reserved in ("amq.", RESERVED):
            if name.startswith(reserved):
                what = f"queue name '{name}' contains reserved prefix '{reserved}*'"
                raise Refused("access-refused", what, "use another name, or an empty one")
        name = name or GENERATED + secrets.token_urlsafe(16)
        check_name(name, "queue", colons=True)
        options = options_for(name, arguments, durable, auto_delete, exclusive, connection.virtual_host)
        name = prefix_of(connection.virtual_host) + name
        # The address removes itself when its queue is gone.
        self._resources.make_address(name, RoutingTypes.ANYCAST)
        queue = self._resources.make_queue(Declaration(name, name, ANYCAST, durable=durable and not exclusive, options=options))
        if exclusive:
            self._own(connection, queue)
        self._ignored.report(_shown(queue), ignored(queue))
        if keeps_all(options) and not queue.durable:
            self._report_not_kept(queue)
        return queue

    def _report_not_kept(self, queue: Queue) -> None:
        """A quorum queue that ends with its connection or the broker, which RabbitMQ refuses: each once, those without a name together."""
        name = GENERATED if local_name(queue.name).startswith(GENERATED) else queue.name
        if self._ignored.is_new(name):
            log.info(
                "quorum-not-durable: %s is of type quorum and not durable: its messages are not kept (docs/interoperability.md)",
                _shown(queue),
            )

    @needs((Right.CONSUME, _replied))
    def make_reply_queue(self, connection: Connection) -> Queue:
        """What ``amq.rabbitmq.reply-to`` stands for on one channel: a queue of the connection's own, for answers."""
        name = f"{prefix_of(connection.virtual_host)}{REPLY_TO}.{secrets.token_urlsafe(16)}"
        self._resources.make_address(name, RoutingTypes.ANYCAST)
        options = options_for(name, {}, False, True, True)
        queue = self._resources.make_queue(Declaration(name, name, ANYCAST, durable=False, options=options))
        self._own(connection, queue)
        return queue

    def make_topic_queue(
        self, connection: Connection, address: str, selector: Selector | None, most_waiting: int | None, prefetch: int | None
    ) -> Queue:
        """What one subscription of the connection's gets of all that is sent to the address. It goes with its consumer.

        ``most_waiting``: beside what the consumer prefetches; the oldest give way to what is more than that.
        """
        self._resources.check_name(address, "address")
        self._resources.make_topic(address)
        name, options = f"{address}.{secrets.token_urlsafe(16)}", QueueOptions(exclusive=True)
        if most_waiting is not None:
            prefetch = self._settings.resolve(address).consumer_prefetch if prefetch is None else prefetch
            options |= QueueOptions(max_length=most_waiting + prefetch, overflow="drop-head")
        queue = self._resources.make_queue(Declaration(name, address, MULTICAST, selector, False, options, auto_created=True))
        self._own(connection, queue)
        return queue

    def _own(self, connection: Connection, queue: Queue) -> None:
        self._owners[queue] = connection.name
        self._owned.setdefault(connection.name, {})[queue] = None

    def check_reply_queue(self, connection: Connection, name: str) -> None:
        """Anybody may ask whether whoever it stands for is there. Raises Refused where nobody is."""
        if name != REPLY_TO and self._named(connection, name) is None:
            raise _not_found(connection, name)

    def check_delete(self, queue: Queue, if_unused: bool, if_empty: bool) -> None:
        """Raises Refused unless the queue may be deleted; the caller has the broker do it."""
        if if_unused and queue.consumers:
            raise Refused("precondition-failed", f"{_shown(queue)} in use", "cancel its consumers first")
        if if_empty and queue.count > queue.delivering:
            raise Refused("precondition-failed", f"{_shown(queue)} not empty", "purge it first")

    def owned_by(self, connection: Connection) -> list[Queue]:
        """The connection's exclusive queues; they end with it."""
        return list(self._owned.get(connection.name, ()))

    def unused(self, queues: Iterable[Queue]) -> list[Queue]:
        """Those of ``queues`` that were to be deleted with their last consumer, and have none now."""
        return [
            queue
            for queue in dict.fromkeys(queues)
            if not queue.consumers
            and (queue.options.get(AMQP, {}).get("auto_delete") or (queue in self._owners and AMQP not in queue.options))
            and self.post_office.queues.get(queue.name) is queue
        ]

    def _queue_gone(self, queue: Queue) -> None:
        owner = self._owners.pop(queue, None)
        if owner is not None:
            del self._owned[owner][queue]
            if not self._owned[owner]:
                del self._owned[owner]
        self._taken.pop(queue, None)
        self._standing_by.pop(queue, None)
        self._active.pop(queue, None)

    # -- consumers ---------------------------------------------------------------------------------------------------

    def check_consume(self, queue: Queue, exclusive: bool) -> None:
        """Raises Refused when somebody has the queue to himself, or would have it only in name."""
        taken = self._taken.get(queue)
        if (taken is not None and taken.open) or (exclusive and queue.consumers):
            raise Refused("access-refused", f"{_shown(queue)} in exclusive use", "wait until the other consumer is cancelled")

    def read_consumer_arguments(self, connection: Connection, queue: str, arguments: Mapping[str, object]) -> ConsumerArguments:
        """See arguments.consumer_arguments."""
        return consumer_arguments(queue, arguments, connection.virtual_host)

    def with_arguments(self, consumer: Consumer, arguments: ConsumerArguments) -> None:
        """The consumer is as it was asked for."""
        consumer.priority, consumer.timeout_ms, consumer.ignored = arguments
        self._ignored.report(_shown(consumer.queue), arguments.ignored, "a consumer of ")

    def take(self, queue: Queue, consumer: Consumer) -> None:
        self._taken[queue] = consumer

    def stand_by(self, queue: Queue, consumer: Consumer) -> None:
        """``x-single-active-consumer``: a consumer that is not the only one waits until those before it are gone."""
        if arguments_of(queue).get("x-single-active-consumer"):
            self.wait_for_others(queue, consumer)

    def wait_for_others(self, queue: Queue, consumer: Consumer) -> None:
        """One that is not the only one waits until those before it are gone."""
        if len(queue.consumers) > 1:
            queue.consumers.remove(consumer)
            self._standing_by.setdefault(queue, []).append(consumer)
        else:
            self._activate(queue, consumer)

    def _activate(self, queue: Queue, consumer: Consumer) -> None:
        """What those before it held is to be settled, or in its place, before it gets anything.

        Also what the channel of a cancelled one keeps: clients cancel before they close.
        """
        last = self._active.get(queue)
        if last is not None:
            consumer.follows = tuple(each for each in (*last.follows, last) if each.unsettled or each.returning)
        self._active[queue] = consumer

    def promote(self, queues: Iterable[Queue]) -> None:
        """Where the active consumer is gone, the next in line takes over."""
        for queue in dict.fromkeys(queues):
            waiting = [consumer for consumer in self._standing_by.pop(queue, ()) if consumer.open]
            if waiting and not queue.consumers:
                following = waiting.pop(0)
                self._activate(queue, following)
                queue.attach(following)
                self._ready.mark(queue)
            if waiting:
                self._standing_by[queue] = waiting

    def all_consumers(self, queue: Queue) -> list[Consumer]:
        """The open ones, those that stand by included."""
        return [*queue.consumers, *(consumer for consumer in self._standing_by.get(queue, ()) if consumer.open)]


def _not_found(connection: Connection, name: str) -> Refused:
    return Refused("not-found", f"no queue '{name}' in vhost '{connection.virtual_host}'", "declare it first")


def _locked(queue: Queue) -> Refused:
    return Refused(
        "resource-locked",
        f"cannot obtain exclusive access to locked {_shown(queue)}. It could be originally declared on another"
        " connection or the exclusive property value does not match that of the original declaration.",
        "use a queue of your own",
    )


def _shown(queue: Queue) -> str:
    return f"queue '{local_name(queue.name)}' in vhost '{virtual_host_of(queue.name)}'"
