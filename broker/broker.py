"""Broker: the verbs of messages that a front end calls; its bases have those of consumers (consuming.py), of what failed and of what is
declared. docs/architecture.md has them all on one page.

It decides nothing itself; it knows whom to ask, and in which order. Nothing here waits: what must be on disk first is answered through
``when_safe`` callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from .auth.access import needs
from .connection import Connection, FrontEnd
from .consuming import Consuming
from .core.amqp.exchange import Compared
from .core.consumer import NOBODY, Client, Consumer
from .core.dead_letter import EXPIRED, POISON
from .core.fault import FailureReport
from .core.message import Message, MessageReference
from .core.producer import Producer
from .core.queue import Queue
from .core.redelivery import Failure, PolicyMap
from .core.rights import Right
from .core.routing import Route
from .core.seldom import APART
from .core.transaction import Send, Transaction
from .errors import Refused
from .places import at_address, at_new_address, published_to, same_route
from .shares import Share

log = logging.getLogger("homing")

_UNBOUNDED: Final = 1 << 62
#: An acknowledgement "expired" is believed when the message expires within this time: clocks differ.
_CLOCK_SLACK_MS: Final = 60_000
#: As in administration.py.
FREE: Final[Mapping[str, str]] = {
    "the login was checked": "connect disconnect",
    "of a producer that was opened": "close_producer open_sender give_credit charge why_nothing_more top_up notify_blocked send sent"
    " hold_sends",
    "along a route that was worked out": "publish offer hold commit_channel",
    "of a consumer that was let in": "acknowledge fail poison without_too_large give_back client_saw_expire socket_resumed"
    " hold_acknowledgement",
    "of a transaction, whose parts were asked for": "commit roll_back begin_channel end_channel",
    "of time and turns": "routes_version room wait_for_room has_room wake when_known when_safe when_stored may_answer",
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
        self.state.pager.quota.kept.add(connection.kept)
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
        self.state.pager.quota.kept.discard(connection.kept)
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
            self.settlement.lost(consumers)
        else:
            for consumer in consumers:
                if consumer.transacted:
                    self.settlement.rolled_back(consumer)
            self.settlement.closed([each for each in consumers if not each.transacted], connection if counts else None)

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
        self.state.declared.check("producers")
        self.resources.check_producer(address)
        client = connection.client_id or connection.name
        producer = Producer(client, number, address, self.high_watermarks.of(client, number), connection.front_end, connection.bounds)
        connection.producers[number] = producer
        self.resources.named[address] = self.resources.named.get(address, 0) + 1
        return producer

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

    def give_credit(self, producer: Producer) -> None:
        """It may send from now on, and is granted its credit."""
        self.flow.open(producer)

    def charge(self, producer: Producer, messages: int, size: int) -> bool:
        """See FlowControl.charge."""
        return self.flow.charge(producer, messages, size)

    def why_nothing_more(self, producer: Producer) -> str | None:
        """See FlowControl.why_nothing_more."""
        return self.flow.why_nothing_more(producer)

    def top_up(self, producer: Producer) -> None:
        """See FlowControl.top_up."""
        self.flow.top_up(producer)

    def notify_blocked(self, producer: Producer) -> None:
        """See FlowControl.notify_blocked."""
        self.flow.notify_blocked(producer)

    def send(self, producer: Producer, first: int, messages: list[Message]) -> tuple[int, Refused] | None:
        """Stores messages numbered from ``first``; repeats are passed over. Returns (number, why) of a refused one, which ends the frame.

        A frame that does not begin where the numbering stands (what followed a refused message) is ignored.
        One of which the high watermark passes a part is to be sent again in a later turn (throttle.py), with nothing of it sent in between.
        """
        if not producer.settled_first:
            producer.settled_first = True
            producer.high_watermark = max(producer.high_watermark, first - 1)
        if first > producer.high_watermark + 1:
            return None
        fresh = messages[producer.high_watermark + 1 - first :] if first <= producer.high_watermark else messages
        if not fresh:
            return None
        now_ms = self.now_ms()
        stored, refused = self.intake.send(fresh, now_ms)
        producer.high_watermark += stored
        if stored:
            producer.used_at_ms = now_ms
            self.sent(producer, fresh[stored - 1])
            # A high watermark on disk may stand for nothing that a crash takes away.
            if any(message.kept for message in fresh[:stored]):
                self.journal.batch.producer_high_watermark(producer.key, producer.high_watermark, now_ms)
        return None if refused is None else (producer.high_watermark + 1, refused)

    def sent(self, producer: Producer, last: Message) -> None:
        """It sent this last: a limit of what is of the same kind holds it back (flow_control.py)."""
        address = self.state.post_office.addresses.get(producer.address)
        # Of many queues two stand for all.
        producer.sent(last.durable, address.queues[:1] + address.queues[-1:] if address is not None else ())

    @property
    def routes_version(self) -> int:
        """Another number whenever a route may have become another."""
        return self.state.post_office.routes_version

    @needs((Right.SEND, published_to), same=same_route)
    def route(self, connection: Connection, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Route:
        """Where a message published to the exchange under these keys goes. Raises Refused: no such exchange, or an internal one."""
        return self._exchanges(connection).published(exchange, key, headers, more_keys)

    def room(self, route: Route) -> int:
        """Messages that may be taken in this turn where they go to several queues; what goes to one is not bounded here."""
        return self.state.throttle.share(len(route.queues)) if len(route.queues) > 1 else _UNBOUNDED

    def publish(self, route: Route, messages: list[Message]) -> int | None:
        """See Intake.publish."""
        return self.intake.publish(route, messages, self.now_ms())

    def offer(self, producer: Producer, route: Route, message: Message) -> bool:
        """See Intake.offer."""
        return self.intake.offer(producer, route.queues, message)

    def wait_for_room(self, go_on: Callable[[], None]) -> None:
        """See Throttle.wait."""
        self.state.throttle.wait(go_on)

    def has_room(self) -> bool:
        """Whether this turn takes in anything more."""
        return self.state.throttle.room(1) > 0

    def wake(self) -> None:
        """There is to be another turn."""
        self.state.wake()

    # -- on disk -----------------------------------------------------------------------------------------------------

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Calls back once everything so far is on disk; at once when it is already."""
        self.journal.when_safe(callback)

    def when_known(self, callback: Callable[[], None]) -> None:
        """Calls back once the journal knows everything up to now, what was only counted, too."""
        self.state.faults.put_on_record()
        self.journal.when_safe(callback)

    def when_stored(self, callback: Callable[[], None]) -> None:
        """Calls back once what was sent so far is on disk and may be confirmed. See Recorder.when_stored."""
        self.journal.when_stored(callback)

    def may_answer(self, queue: Queue, reference: MessageReference | None = None) -> bool:
        """Whether what was found in the queue may be answered before anything more is on disk: that message, or that there is none."""
        if queue.dead_lettering:
            return False
        return reference is None or (not reference.counted and self.journal.ids_reserved)

    # -- settling ----------------------------------------------------------------------------------------------------

    def acknowledge(self, consumer: Consumer, references: list[MessageReference]) -> None:
        self.settlement.acknowledge(consumer, [reference for reference in references if reference.transaction is None])

    def fail(self, consumer: Consumer, references: list[MessageReference], failure: Failure, outcome: str, report: FailureReport) -> None:
        self.settlement.fail(consumer, references, failure, outcome, report)

    def poison(self, consumer: Consumer, references: list[MessageReference], report: FailureReport) -> None:
        """Dead-letter now, whatever the counts say."""
        retryable = report.get("retryable", True)
        failure = Failure(retryable=retryable, poison=True)
        self.settlement.fail(consumer, references, failure, POISON if retryable else report.get("outcome", "nack"), report)

    def without_too_large(self, consumer: Consumer, references: list[MessageReference], most: int) -> list[MessageReference]:
        """What was just dispatched without the messages of more than ``most`` bytes, body and properties, which its client cannot take.

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
            self.office.dead_letter(reference, EXPIRED)

    def socket_resumed(self, connection: Connection) -> None:
        """Its peer reads again: what waits for its consumers may go on."""
        for consumer in connection.consumers.values():
            self.state.mark_ready(consumer.queue)

    # -- transactions ------------------------------------------------------------------------------------------------

    def hold_sends(self, connection: Connection, session: int, messages: list[Message], refusal: Refused | None) -> None:
        """See Transactions.hold_sends. ``refusal``: one more was not understood, and the transaction cannot commit."""
        if refusal is not None:
            self.transactions.fail(self.transactions.of(connection, session), refusal.code, refusal.message, refusal.fix)
        self.transactions.hold_sends(connection, session, messages)

    def hold_acknowledgement(self, connection: Connection, session: int, consumer: Consumer, references: list[MessageReference]) -> None:
        """See Transactions.hold_acknowledgement."""
        self.transactions.hold_acknowledgement(connection, session, consumer, references)

    def commit(self, connection: Connection, session: int, transaction_id: str, sends: int) -> None:
        """See Transactions.commit."""
        self.transactions.commit(connection, session, transaction_id, sends)

    def roll_back(self, connection: Connection, session: int) -> None:
        """See Transactions.roll_back."""
        self.transactions.roll_back(connection, session)

    def begin_channel(self, connection: Connection, channel: int, timed_out: Callable[[], None]) -> Transaction[Any]:
        """See Transactions.begin."""
        return self.transactions.begin(connection, channel, timed_out)

    def hold(self, transaction: Transaction[Send], sends: list[Send], size: int, settled: int = 0) -> None:
        """See Transactions.hold."""
        self.transactions.hold(transaction, sends, size, settled)

    def commit_channel(
        self,
        transaction: Transaction[Any],
        sends: list[tuple[Message, list[Queue]]],
        acknowledged: list[tuple[Consumer, list[MessageReference]]],
        no_longer_held: Iterable[Consumer],
        producer: Producer,
    ) -> None:
        """See Transactions.commit_channel."""
        self.transactions.commit_channel(transaction, sends, acknowledged, no_longer_held, producer)

    def end_channel(self, connection: Connection, channel: int) -> None:
        """See Transactions.end."""
        self.transactions.end(connection, channel)
