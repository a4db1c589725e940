"""Broker: the verbs that every front end calls. It decides nothing itself; it knows whom to ask, and in which order.

Nothing here waits: what must be on disk first is answered through ``when_safe`` callbacks. The loop calls
``drain`` once a turn in which something became dispatchable, and ``tick`` when ``next_ms`` says so and at least once a second.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from .auth.permissions import Permitted, everybody
from .connection import Connection, FrontEnd
from .core.consumer import Consumer
from .core.dead_letter import EXPIRED, POISON
from .core.message import Message, MessageReference, Where
from .core.queue import Queue
from .core.redelivery import ConsumerPolicy, Failure, PolicyMap
from .core.routing import Route
from .core.settings.address_settings import AddressSettings, AddressSettingsRepository
from .delivery.dead_lettering import DeadLetterOffice
from .delivery.dispatching import Dispatcher
from .delivery.producers import FlowControl, Producer, long_gone
from .delivery.publish import Intake
from .delivery.pull_timeouts import Pulls
from .delivery.settlement import Settlement
from .delivery.state import BrokerState
from .delivery.steps import Work
from .delivery.transactions import Transactions
from .errors import Refused
from .limits import BrokerLimits
from .paging.pager import Windows
from .recording.journal_port import JournalPort
from .recording.recorder import Ledger
from .topology.amqp.dead_letter_router import DeadLetterExchanges
from .topology.amqp.policies import Policies
from .topology.amqp.queues import DeclaredQueues
from .topology.amqp.virtual_hosts import VirtualHosts
from .topology.resources import Resources

_UNBOUNDED: Final = 1 << 62
#: Due or expired references looked at in one turn.
SWEEP_BUDGET: Final = 5000
_SECOND_MS: Final = 1000
#: An acknowledgement "expired" is believed when the message expires within this time: clocks differ.
_CLOCK_SLACK_MS: Final = 60_000


class Broker:
    def __init__(
        self,
        journal: JournalPort,
        settings: AddressSettingsRepository,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        limits: BrokerLimits | None = None,
        keep_all_history: bool = False,
        disk_low: Callable[[], bool] = lambda: False,
        permitted: Permitted = everybody,
    ) -> None:
        self.limits = limits or BrokerLimits()
        self.now_ms = now_ms
        self.ledger = Ledger(journal, now_ms, keep_all_history)
        windows = Windows(self.limits.window_messages, self.limits.window_bytes, self.limits.window_scheduled, self.limits.memory_bytes)
        self.state = BrokerState(self.ledger, settings, now_ms, rng, wake, self.limits.max_hops, journal, windows)
        journal.on_commit = self.state.throttle.written
        self.policies = Policies(self.state)
        self.policies.changed.append(self._policies_changed)
        self.resources = Resources(
            self.state, self.policies, self.limits.selector_characters, self.limits.selector_depth, self.limits.max_queues
        )
        self.virtual_hosts = VirtualHosts(self.state, self.resources, self.policies)
        self.declared_queues = DeclaredQueues(self.state, self.resources, permitted)
        self.office = DeadLetterOffice(self.state, self.resources, DeadLetterExchanges(self.state, self.resources, self.virtual_hosts))
        self.state.pager.expire = lambda reference: self.office.bury(reference, EXPIRED)
        self._dispatcher = Dispatcher(self.state, self.office)
        self.settlement = Settlement(self.state, self.office)
        self.intake = Intake(self.state, self.resources, self.office, self.limits.duplicate_ids)
        self.flow = FlowControl(self.state, self.limits.memory_bytes, self.limits.store_bytes, self.limits.temp_bytes, disk_low)
        self.transactions = Transactions(self.state, self.intake, self.settlement, self.limits)
        #: By name.
        self.connections: dict[str, Connection] = {}
        self._by_client: dict[str, Connection] = {}
        self._next_connection = 1
        #: producer key -> [mark, last use]; kept 24 h beyond the connection.
        self.marks: dict[str, list[int]] = {}
        self._pulls = Pulls()
        #: Long work that is under way; each returns whether there is more to do.
        self.work = Work(wake)
        self._next_second_ms = 0
        self._next_parked_ms = 0

    # -- connections -------------------------------------------------------------------------------------------------

    def connect(self, client_id: str, user: str, front_end: FrontEnd, policies: PolicyMap | None = None) -> Connection:
        """A client has logged in. An older connection of the same client is ended first, so that nothing of it can come later."""
        older = self._by_client.get(client_id) if client_id else None
        if older is not None:
            if older.user != user:
                raise Refused("client-id-in-use", "this client_id is connected as another user", "use a client_id of your own (a new UUID)")
            self.disconnect(older, lost=True)
            older.front_end.end("taken-over", "the same client has connected again", "nothing; the newer connection goes on")
        connection = Connection(self._next_connection, client_id, user, front_end, policies, self.now_ms())
        self._next_connection += 1
        self.connections[connection.name] = connection
        self.state.pager.rations.kept.add(connection.kept)
        if client_id:
            self._by_client[client_id] = connection
        return connection

    def disconnect(self, connection: Connection, lost: bool) -> None:
        """The connection has ended: cleanly, or it was lost. What it held goes back; open transactions are undone."""
        if not connection.open:
            return
        connection.open = False
        del self.connections[connection.name]
        self.state.pager.rations.kept.discard(connection.kept)
        if self._by_client.get(connection.client_id) is connection:
            del self._by_client[connection.client_id]
        for producer in list(connection.producers.values()):
            self.close_producer(connection, producer.number)
        now_ms = self.now_ms()
        consumers = [*connection.consumers.values(), *connection.retired.values()]
        for consumer in consumers:
            self._pulls.forget(consumer)
            consumer.queue.detach(consumer, now_ms)
            self.resources.idle.watch(consumer.queue)
        for transaction in connection.transactions.values():
            self.transactions.release(transaction)
        connection.transactions.clear()
        if lost:
            self.settlement.lost(consumers)
        else:
            for consumer in consumers:
                if consumer.transacted:
                    self.settlement.rolled_back(consumer)
                else:
                    self.settlement.closed(consumer)
        connection.consumers.clear()
        connection.retired.clear()

    # -- sending -----------------------------------------------------------------------------------------------------

    def open_producer(self, connection: Connection, number: int, address: str) -> Producer:
        """The producer with its mark. Answer it through ``when_safe``; credit follows with ``flow.open``."""
        if number in connection.producers:
            raise Refused("producer-exists", f"producer {number} is open already", "choose another number")
        if address not in self.state.post_office.addresses:
            self.resources.check_name(address, "address")
        key = f"{connection.client_id or connection.name}/{number}"
        mark = self.marks.get(key)
        producer = Producer(key, number, address, mark[0] if mark else 0, connection.front_end)
        connection.producers[number] = producer
        self.resources.named[address] = self.resources.named.get(address, 0) + 1
        return producer

    def close_producer(self, connection: Connection, number: int) -> None:
        producer = connection.producers.pop(number, None)
        if producer is None:
            return
        self.flow.close(producer)
        left = self.resources.named[producer.address] - 1
        if left:
            self.resources.named[producer.address] = left
        else:
            del self.resources.named[producer.address]

    def send(self, producer: Producer, first: int, messages: list[Message]) -> tuple[int, Refused] | None:
        """Stores messages numbered from ``first``; repeats are passed over. Returns (number, why) of a refused one, which ends the frame.

        A frame that does not begin where the numbering stands (what followed a refused message) is ignored: the mark does not move.
        One of which the mark passes only a part is to be sent again in a later turn (throttle.py), with nothing of it sent in between.
        """
        if not producer.settled_first:
            producer.settled_first = True
            producer.mark = max(producer.mark, first - 1)
        if first > producer.mark + 1:
            return None
        fresh = messages[producer.mark + 1 - first :] if first <= producer.mark else messages
        if not fresh:
            return None
        stored, refused = self.intake.send(fresh)
        producer.mark += stored
        if stored:
            now_ms = self.now_ms()
            self.marks[producer.key] = [producer.mark, now_ms]
            # A mark on disk may stand for nothing that a crash takes away.
            if any(message.durable for message in fresh[:stored]):
                self.ledger.group.producer_mark(producer.key, producer.mark, now_ms)
        return None if refused is None else (producer.mark + 1, refused)

    @property
    def routes_version(self) -> int:
        """Another number whenever a route may have become another."""
        return self.state.post_office.routes_version

    def room(self, route: Route) -> int:
        """Messages that may be taken in this turn where they go to several queues; what goes to one is not bounded here."""
        return self.state.throttle.share(len(route.queues)) if len(route.queues) > 1 else _UNBOUNDED

    def publish(self, route: Route, messages: list[Message]) -> int | None:
        """See Intake.publish."""
        return self.intake.publish(route, messages)

    def offer(self, producer: Producer, route: Route, message: Message) -> bool:
        """See Intake.offer."""
        return self.intake.offer(producer, route.queues, message)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def subscribe(self, connection: Connection, number: int, name: str, options: dict[str, Any]) -> Consumer:
        """A consumer on the queue that ``name`` means. Options: prefetch, selector, redelivery_policy, session, transacted."""
        if number in connection.consumers or number in connection.retired:
            raise Refused("consumer-exists", f"consumer {number} was used already", "number consumers upwards")
        if len(connection.consumers) >= self.limits.consumers_per_connection:
            raise Refused("too-many-consumers", "this connection has as many consumers as it may", "open another connection")
        queue = self.resources.queue_for_consumer(name)
        self._check_admission(connection, queue)
        policy: ConsumerPolicy | None = options.get("redelivery_policy")
        if policy is None and connection.policies is not None:
            policy = connection.policies.resolve(queue.address)
        consumer = Consumer(
            number,
            connection.name,
            connection.front_end,
            options.get("prefetch", queue.settings.consumer_prefetch),
            self.resources.read_selector(options.get("selector")),
            policy,
            options.get("session", 0),
            options.get("transacted", False),
            connection.kept,
        )
        connection.consumers[number] = consumer
        queue.attach(consumer)
        self.state.mark_ready(queue)
        return consumer

    def _check_admission(self, connection: Connection, queue: Queue) -> None:
        exclusive = queue.options.get("exclusive", queue.settings.default_exclusive)
        if exclusive and any(consumer.connection != connection.name for consumer in queue.consumers):
            raise Refused("queue-exclusive", f"queue {queue.name} is exclusive and has a consumer", "wait until that one is gone")
        most = queue.options.get("max_consumers", queue.settings.default_max_consumers)
        if most >= 0 and len(queue.consumers) >= most:
            raise Refused("too-many-consumers", f"queue {queue.name} takes {most} consumers", "wait, or raise max-consumers")

    def unsubscribe(self, connection: Connection, consumer: Consumer, keep_given: bool = False) -> None:
        """A clean end. What was given stays where the session is transacted or wants to keep it, until that ends."""
        consumer.queue.detach(consumer, self.now_ms())
        self.resources.idle.watch(consumer.queue)
        connection.consumers.pop(consumer.number, None)
        self._pulls.forget(consumer)
        if not consumer.transacted and not keep_given:
            self.settlement.closed(consumer)
            return
        self.settlement.give_back(consumer, consumer.split_unsettled()[1])
        if consumer.unsettled:
            connection.retire(consumer)

    def release(self, connection: Connection, consumer: Consumer) -> None:
        """The session ends that kept what a closed consumer was given: it goes back, nobody is blamed."""
        connection.retired.pop(consumer.number, None)
        self.settlement.closed(consumer)

    def check_get(self, connection: Connection, queue: Queue) -> None:
        """Raises Refused while memory is short, where the next message is on disk and the connection keeps much that it got before."""
        pending, kept = queue.pending, connection.kept.bytes
        if queue.paused or pending.count or not (pending.disk_count or pending.overdue) or self.state.pager.rations.allow(kept):
            return
        raise Refused(
            "memory-short",
            f"memory-limit is near, and this connection keeps {kept >> 20} MiB that it got: acknowledge some of it, then get more",
            "acknowledge what was got, or raise broker.memory-limit",
        )

    def get(self, connection: Connection, number: int, queue: Queue) -> MessageReference | None:
        """The next message, if there is one, for a consumer of its own under ``number`` that exists only to hold it.

        One that is ``counted`` already may leave only once that is on disk.
        """
        now_ms = self.now_ms()
        queue.used_at_ms = now_ms
        if queue.paused:
            return None
        while (reference := queue.take_next()) is not None:
            if reference.expired(now_ms):
                queue.delivering -= 1
                reference.where = Where.SETTLING
                self.office.bury(reference, EXPIRED)
                continue
            consumer = Consumer(number, connection.name, connection.front_end, 1, kept=connection.kept)
            consumer.queue = queue
            consumer.open = False
            connection.retire(consumer)
            consumer.assign((reference,), now_ms)
            consumer.given(reference.tag, now_ms)
            if queue.settings.persist_delivery_count_before_delivery:
                reference.delivery_count += 1
                reference.counted = True
                self.ledger.changed((reference,))
            return reference
        return None

    def when_read(self, queue: Queue, callback: Callable[[], None]) -> bool:
        """Calls back when more of the queue has come from disk; False, and never, where there is nothing on disk to hand out."""
        return not queue.paused and self.state.pager.when_read(queue, callback)

    def pull(self, connection: Connection, consumer: Consumer, timeout_ms: int) -> None:
        """One credit; without a message within ``timeout_ms`` (-1: without end) it is taken back and answered."""
        self._pulls.add(connection, consumer, self.now_ms() + timeout_ms if timeout_ms >= 0 else None)
        self.state.mark_ready(consumer.queue)

    # -- settling ----------------------------------------------------------------------------------------------------

    def acknowledge(self, consumer: Consumer, references: list[MessageReference]) -> None:
        self.settlement.acknowledge(consumer, [reference for reference in references if reference.transaction is None])

    def fail(self, consumer: Consumer, references: list[MessageReference], failure: Failure, outcome: str, report: dict[str, Any]) -> None:
        self.settlement.fail(consumer, references, failure, outcome, report)

    def poison(self, consumer: Consumer, references: list[MessageReference], report: dict[str, Any]) -> None:
        """Dead-letter now, whatever the counts say."""
        self.settlement.fail(consumer, references, Failure(poison=True), POISON, report)

    def without_too_large(self, consumer: Consumer, references: list[MessageReference], most: int) -> list[MessageReference]:
        """What was just assigned without the messages of more than ``most`` bytes, body and properties, which its client cannot take.

        Those are dead-lettered at once, with why, and the log names sender and consumer; a pull is still to be answered.
        """
        large = [reference for reference in references if reference.message.size > most]
        if not large:
            return references
        if not consumer.prefetch:
            consumer.pulls += len(large)
        consumer.too_large += len(large)
        self.settlement.too_large(consumer, large, most)
        self.state.mark_ready(consumer.queue)
        return [reference for reference in references if reference.message.size <= most]

    def give_back(self, consumer: Consumer, references: list[MessageReference]) -> None:
        self.settlement.give_back(consumer, references)

    def client_saw_expire(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """Ack type 6. Believed only for what really expires about now; anything else goes back uncounted."""
        horizon_ms = self.now_ms() + _CLOCK_SLACK_MS
        expired = [reference for reference in references if reference.expired(horizon_ms)]
        self.settlement.give_back(consumer, [reference for reference in references if not reference.expired(horizon_ms)])
        consumer.queue.release(consumer, expired)
        for reference in expired:
            self.office.bury(reference, EXPIRED)

    def socket_resumed(self, connection: Connection) -> None:
        """Its peer reads again: what waits for its consumers may go on."""
        for consumer in connection.consumers.values():
            self.state.mark_ready(consumer.queue)

    # -- queues ------------------------------------------------------------------------------------------------------

    def delete_queue(self, queue: Queue, answer: Callable[[], None] | None = None) -> int:
        """Removes a queue with what is in it; its consumers are told, after ``answer``. Returns how many messages went."""
        gone = [(self.connections[each.connection], each) for each in self.declared_queues.all_consumers(queue)]
        for connection, consumer in gone:
            del connection.consumers[consumer.number]
            self._pulls.forget(consumer)
            queue.detach(consumer, self.now_ms())
        count = self.resources.delete_queue(queue)
        if answer is not None:
            answer()
        for connection, consumer in gone:
            connection.front_end.cancelled(consumer, "queue-deleted", f"queue {queue.name} was deleted", "subscribe to another queue")
        return count

    # -- the loop's side ---------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Dispatches every queue of the ready set, each within its budget."""
        state = self.state
        state.throttle.turn()
        self.work.go_on()
        self.office.retry_if_bindings_changed()
        self.office.go_on()
        state.pager.look_again()
        if state.throttle.may_hand_out():
            self._dispatcher.ready()
        if self.flow.waiting:
            self.flow.relieve()

    def serve(self, queue: Queue) -> None:
        """See Dispatcher.serve."""
        self._dispatcher.serve(queue)

    def next_ms(self) -> int:
        """When ``tick`` is wanted next."""
        times = [self._next_second_ms]
        state = self.state
        for time_ms in (state.schedule.next_ms(), state.expiries.next_ms(), self._pulls.next_ms(), self.resources.idle.next_ms()):
            if time_ms is not None:
                times.append(time_ms)
        return min(times)

    def tick(self) -> None:
        """What falls due: redeliveries, expirations, pulls, and once a second everything that is only looked at then."""
        now_ms = self.now_ms()
        self.state.place(self.state.schedule.take_due(now_ms, SWEEP_BUDGET))
        for reference in self.state.expiries.take_expired(now_ms, SWEEP_BUDGET):
            if not reference.expired(now_ms) or reference.where in (Where.SETTLING, Where.GONE):
                continue
            if reference.where is not Where.DELIVERING:
                self.office.bury(reference, EXPIRED)
        self.state.pager.tick(now_ms)
        self._pulls.end(now_ms, self._nothing_for)
        self.resources.expire()
        if now_ms >= self._next_second_ms:
            self._next_second_ms = now_ms + _SECOND_MS
            self._every_second(now_ms)

    def _nothing_for(self, consumer: Consumer) -> bool:
        """Whether a pull may be told that there is nothing: what is on disk only, or was given back, may still come."""
        return consumer.queue not in self.state.ready and not consumer.returning and not self.state.pager.may_find(consumer)

    def _every_second(self, now_ms: int) -> None:
        for connection in list(self.connections.values()):
            for consumer in (*connection.consumers.values(), *connection.retired.values()):
                for reference in self.settlement.time_out(consumer, now_ms):
                    connection.front_end.not_held(consumer, [reference.tag, reference.tag])
            self.transactions.time_out(connection, now_ms)
        for queue in self.state.post_office.queues.values():
            if queue.suspects or any(consumer.isolated_until_ms or consumer.draining_until_ms for consumer in queue.consumers):
                self.state.mark_ready(queue)
        self.resources.sweep()
        self.ledger.note_time(now_ms)
        if now_ms >= self._next_parked_ms:
            self._next_parked_ms = now_ms + self.limits.parked_retry_ms
            self.office.retry_parked()
            for key in long_gone(self.marks, self.flow.producers, now_ms):
                del self.marks[key]
                self.ledger.group.forget_producer(key)
        if self.flow.waiting:
            self.flow.relieve()

    # -- settings ----------------------------------------------------------------------------------------------------

    def apply_settings(self, settings: AddressSettingsRepository) -> None:
        """A reload: due times already given stay; limits trim in bounded steps; parked messages look again.

        Raises Refused, and then nothing has changed.
        """
        in_force = {queue: self.resources.in_force(queue, settings) for queue in self.state.post_office.queues.values()}
        self.state.settings = settings
        self._bring_into_force(in_force)

    def _policies_changed(self) -> None:
        """The same for the queues that another policy holds for now."""
        queues = [each for each in self.state.post_office.queues.values() if self.policies.for_queue(each.name) is not each.policy]
        self._bring_into_force({queue: self.resources.in_force(queue, self.state.settings) for queue in queues})

    def _bring_into_force(self, in_force: dict[Queue, AddressSettings]) -> None:
        self.state.post_office.settings_changed()
        self.virtual_hosts.settings_changed()
        for queue, its_settings in in_force.items():
            expires_ms, queue.settings = queue.settings.expires_ms, its_settings
            if its_settings.expires_ms != expires_ms:
                self.resources.idle.begin(queue, self.now_ms())
            self.state.mark_ready(queue)
        self.intake.trim_all()
        self.office.retry_parked()

    def restore_reference(self, reference: MessageReference, parked_for: str) -> None:
        """Recovery: a reference as it stood on disk takes its place again."""
        self.state.hold(reference)
        if parked_for:
            self.office.keep_parked(reference, parked_for)
        else:
            self.state.place((reference,))
