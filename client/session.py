"""Session: producers and consumers that share one ack mode, and one transaction if it is TRANSACTED."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from homing.broker.protocols.native.codec import Op

from .browser import Browser
from .consumer import Consumer
from .errors import CloseIncomplete, HomingError, TransactionError, UsageError
from .failure import failure_map
from .link import Link, Reply
from .listener import Handler, Listener
from .message import DONE
from .modes import AckMode
from .options import CONSUMER, PRODUCER, consumer_options, given, policy_of, producer_options
from .outbox import Outbox
from .parts import Parts
from .policy import PolicyMap, RedeliveryPolicy
from .producer import Producer
from .settlement import SessionSettlement
from .subscription import Subscription
from .transaction import Transaction, no_meaning
from .url import parse_destination
from .validation import check_whole

#: Of the time given for a close: how much flushing may take, so that the orderly end still has some.
FLUSH_SHARE: Final = 0.8


class Session:
    """Made by ``connection.session(mode)``; use it with ``async with``.

    Leaving the block by an exception fails the message last handed out (outcome ``error``); then, as always, it is closed.
    """

    def __init__(
        self,
        link: Link,
        mode: AckMode,
        layers: tuple[Mapping[str, Any], ...],
        policies: PolicyMap,
        close_timeout_ms: int,
        on_close: Callable[[Session], None],
        parts: Parts,
    ) -> None:
        self.mode = mode
        self._parts = parts
        self._link = link
        self._layers = layers
        self._policies = policies
        self._close_timeout_ms = close_timeout_ms
        self._on_close = on_close
        self._outboxes: list[Outbox] = []
        self._subscriptions: dict[int, Subscription] = {}
        self._listeners: list[Listener] = []
        self._settlement = SessionSettlement(mode)
        self._transaction: Transaction | None = None
        if mode is AckMode.TRANSACTED:
            self._transaction = Transaction(link, self._outboxes, self._subscriptions, self._forget_ended)
        self._closed = False

    # -- making things

    def producer(
        self,
        destination: str,
        *,
        max_unconfirmed: int | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        durable: bool | None = None,
    ) -> Producer:
        """A producer for an address (``orders``, or ``orders?priority=7``). The other arguments are defaults of its ``send``.

        Raises what ended the connection, where it has ended for good; so does ``consumer``.
        """
        self._raise_if_closed()
        self._link.raise_if_gone()
        address, near = parse_destination(destination, PRODUCER)
        layer = given(max_unconfirmed=max_unconfirmed, priority=priority, ttl_ms=ttl_ms, durable=durable)
        options = producer_options((*self._layers, layer, near))
        transaction = None if self._transaction is None else self._transaction.open
        outbox = Outbox(self._link, address, options, transaction, self._forget_producer)
        self._outboxes.append(outbox)
        self._link.add_sender(outbox)
        return self._parts.producer(outbox, options)

    def consumer(
        self,
        source: str,
        *,
        prefetch: int | None = None,
        selector: str | None = None,
        redelivery_policy: RedeliveryPolicy | None = None,
        optimize_acknowledge: bool | None = None,
        check_expiry: bool | None = None,
        consumer_priority: int | None = None,
    ) -> Consumer:
        """A consumer of a queue, an address, or ``address::queue``; options may follow a ``?``. ``prefetch`` 0 pulls."""
        self._raise_if_closed()
        self._link.raise_if_gone()
        name, near = parse_destination(source, CONSUMER)
        layer = given(
            prefetch=prefetch,
            selector=selector,
            redelivery_policy=redelivery_policy,
            optimize_acknowledge=optimize_acknowledge,
            check_expiry=check_expiry,
            consumer_priority=consumer_priority,
        )
        options = consumer_options((*self._layers, layer, near))
        if options.prefetch == 0 and options.optimize_acknowledge and self.mode is AckMode.AUTO:
            raise UsageError("invalid-option", "optimize_acknowledge cannot work with prefetch 0", "choose one of them")
        # What single fields of a destination (``orders?redeliveryPolicy.x=…``) override.
        policy = policy_of((layer, near), self._policies.match(name))
        transaction = None if self._transaction is None else self._transaction.open
        subscription = Subscription(
            self._link, name, options, policy, self._settlement, self._parts.settlement, transaction, self._forget_consumer
        )
        self._subscriptions[subscription.number] = subscription
        self._link.add_receiver(subscription)
        return self._parts.consumer(subscription, self._settlement, self._transaction, self._listeners)

    async def listen(
        self,
        source: str,
        handler: Handler,
        concurrency: int = 1,
        *,
        prefetch: int | None = None,
        selector: str | None = None,
        redelivery_policy: RedeliveryPolicy | None = None,
        optimize_acknowledge: bool | None = None,
        check_expiry: bool | None = None,
        consumer_priority: int | None = None,
    ) -> Listener:
        """Call ``handler(message)`` for every message of ``source``; returns once subscribed, with a handle: ``stop()``, ``wait()``.

        A coroutine function runs up to ``concurrency`` at a time, each worker a sub-session of its own; a plain function is called
        in the loop, one at a time. A handler that raises fails that one message (TRANSACTED: rolls back). Raises UsageError for
        prefetch 0 and for ``concurrency`` > 1 with TRANSACTED, ConsumerError when the subscription is refused.
        """
        check_whole("concurrency", concurrency, 1, 100_000)
        if concurrency > 1 and self.mode is AckMode.TRANSACTED:
            raise UsageError("invalid-option", "a transaction cannot have concurrent listeners", "open one session for each worker")
        consumer = self.consumer(
            source,
            prefetch=prefetch,
            selector=selector,
            redelivery_policy=redelivery_policy,
            optimize_acknowledge=optimize_acknowledge,
            check_expiry=check_expiry,
            consumer_priority=consumer_priority,
        )
        try:
            return await consumer.listen(handler, concurrency)
        except BaseException:
            if (subscription := self._subscriptions.get(consumer.number)) is not None:
                subscription.abandon()
            raise

    def browser(self, queue: str, page: int = 100) -> Browser:
        """Look at the messages of a queue without taking them: ``async for entry in session.browser("orders")``."""
        self._raise_if_closed()
        return Browser(self._link, queue, page)

    # -- settling

    def acknowledge(self, confirm: bool = False) -> Awaitable[None]:
        """Settle everything this session was given and holds; with ``confirm`` return when it is on disk."""
        self._refuse_when_transacted("acknowledge")
        return self._settlement.acknowledge_all(None, confirm)

    def recover(self) -> Awaitable[None]:
        """Return everything delivered and not settled: counted as failed, coming again by the redelivery rules."""
        self._refuse_when_transacted("recover")
        for subscription in list(self._subscriptions.values()):
            subscription.settlement.recover()
        return DONE

    async def commit(self) -> None:
        """Make sends and acknowledgements since the last commit one atomic batch on disk. See ``Transaction.commit`` for errors."""
        await self._in_transaction("commit").commit()

    async def rollback(self, reason: str | None = None, error: BaseException | str | None = None) -> None:
        """Undo them: sends are dropped, delivered messages come back counted as failed, unread ones uncounted.

        ``reason`` and ``error`` are kept with the message last handed out, whose handling led here; the others only went back with it.
        """
        transaction = self._in_transaction("rollback")
        if reason is not None or error is not None:
            self._settlement.fail_last(failure_map("rollback", reason, error))
        await transaction.rollback()

    def _in_transaction(self, what: str) -> Transaction:
        if self._transaction is None:
            raise UsageError("not-transacted", f"{what}() needs a transaction, this session is {self.mode.name}", "use AckMode.TRANSACTED")
        return self._transaction

    def _refuse_when_transacted(self, what: str) -> None:
        if self._transaction is not None:
            raise no_meaning(what)

    # -- closing

    async def close(self, timeout_ms: int | None = None) -> None:
        """Stop listeners, flush sends and held acknowledgements, end producers and consumers; an uncommitted transaction is rolled
        back. Bounded by ``timeout_ms`` (default: the connection's close_timeout_ms); raises CloseIncomplete for what stayed unknown.
        """
        if self._closed:
            return
        self._closed = True
        timeout_s = (self._close_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        started = self._link.loop.time()
        await flush_all([self], started + timeout_s * FLUSH_SHARE)
        unknown = self._unknown()
        answered = True
        try:
            async with asyncio.timeout_at(started + timeout_s):
                await asyncio.gather(*(subscription.close() for subscription in list(self._subscriptions.values())))
                await self._end_transaction()
        except TimeoutError:
            answered = False
        self._end(UsageError("session-closed", "this session is closed", "open a new one with connection.session(mode)"))
        self._on_close(self)
        if any(unknown) or not answered:
            raise CloseIncomplete(*unknown, answered)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._settlement.fail_last(failure_map("error", error=error))
        try:
            await self.close()
        except HomingError as incomplete:
            if error is None:
                raise
            error.add_note(f"closing the session: {incomplete}")

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise UsageError("session-closed", "this session is closed", "open a new one with connection.session(mode)")

    async def _flush(self) -> None:
        """Stop listeners, let sends be confirmed. Takes as long as it takes."""
        await asyncio.gather(*(listener.stop() for listener in list(self._listeners)))
        if self._transaction is not None:
            await self._transaction.open.quiet()
            self._transaction.drop_unwritten("the session was closed without a commit")
        for outbox in list(self._outboxes):
            while outbox.unconfirmed:
                await outbox.moved()

    def _flush_now(self) -> None:
        """What can be done without waiting: held acknowledgements are written, handlers that still run are cancelled."""
        for listener in list(self._listeners):
            listener.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription.settlement.flush_lazy()
        if self._link.wire is not None:
            self._link.wire.flush()

    def _unknown(self) -> tuple[int, int, int]:
        """Sends without a confirm, failed sends nobody looked at, acknowledgements that could not be written."""
        unconfirmed = sum(outbox.unconfirmed for outbox in self._outboxes)
        failed = sum(len(outbox.unobserved) for outbox in self._outboxes)
        unwritten = sum(subscription.settlement.unwritten for subscription in self._subscriptions.values())
        return unconfirmed, failed, unwritten

    async def _end_transaction(self) -> None:
        wire = self._link.wire
        if self._transaction is None or wire is None:
            return
        future: asyncio.Future[Any] = self._link.loop.create_future()
        wire.write(Op.SESSION_ENDED, self._link.expect(Reply(TransactionError, future)), self._transaction.open.number)
        try:
            await future
        except HomingError as error:
            if not error.connection_lost:
                raise

    def _forget_producer(self, outbox: Outbox) -> None:
        if outbox in self._outboxes:
            self._outboxes.remove(outbox)
        self._link.forget_sender(outbox)

    def _forget_consumer(self, subscription: Subscription) -> None:
        """A consumer of a transaction that holds messages stays until the transaction ends."""
        self._link.forget_receiver(subscription)
        if not subscription.settlement.held and not subscription.settlement.handing:
            self._subscriptions.pop(subscription.number, None)
            self._settlement.settlements.pop(subscription.number, None)

    def _forget_ended(self) -> None:
        for subscription in list(self._subscriptions.values()):
            if subscription.ended is not None:
                self._forget_consumer(subscription)

    def _lost(self) -> None:
        if self._transaction is not None:
            self._transaction.lost()
        for subscription in list(self._subscriptions.values()):
            subscription.lost()
        for outbox in self._outboxes:
            outbox.lost()
        self._forget_ended()

    def _end(self, error: HomingError) -> None:
        """Nothing is sent or received any more."""
        for subscription in list(self._subscriptions.values()):
            subscription.end(error)
            subscription.end_held()
        for outbox in list(self._outboxes):
            outbox.end(error)


async def flush_all(sessions: Iterable[Session], deadline_s: float) -> None:
    """Gives up quietly at the deadline (loop's time): what was not done is in the account."""
    try:
        async with asyncio.timeout_at(deadline_s):
            await asyncio.gather(*(session._flush() for session in sessions))
    except TimeoutError:
        pass
    for session in sessions:
        session._flush_now()


def account_of(sessions: Iterable[Session]) -> tuple[int, int, int]:
    """What stayed unknown in all of them together: see ``CloseIncomplete``."""
    accounts = [session._unknown() for session in sessions]
    unconfirmed, failed, unwritten = (sum(column) for column in zip((0, 0, 0), *accounts, strict=True))
    return unconfirmed, failed, unwritten
