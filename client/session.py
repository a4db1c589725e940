"""Session: producers and consumers that share one ack mode, and one transaction if it is TRANSACTED."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from .browser import Browser
from .errors import HomingError, UsageError
from .failure import failure_map
from .listener import Handler, Listener
from .message import DONE, Message, State
from .modes import AckMode
from .options import CONSUMER, PRODUCER, consumer_options, given, policy_of, producer_options
from .policy import RedeliveryPolicy
from .producer import Producer
from .settlement import Settlement, confirm_impossible, not_held
from .transaction import Transaction
from .url import parse_destination
from .validation import check_whole

if TYPE_CHECKING:
    from .connection import Connection
    from .consumer import Consumer


class Session:
    """Made by ``connection.session(mode)``; use it with ``async with``.

    Leaving the block by an exception fails the message last handed out (outcome ``error``); then, as always, it is closed.
    """

    def __init__(self, connection: Connection, mode: AckMode) -> None:
        self.connection = connection
        self.mode = mode
        self._transaction = Transaction(self, connection._next_session()) if mode is AckMode.TRANSACTED else None
        self._producers: list[Producer] = []
        self._consumers: dict[int, Consumer] = {}
        self._listeners: list[Listener] = []
        self._last: Message | None = None
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
        """A producer for an address (``orders``, or ``orders?priority=7``). The other arguments are defaults of its ``send``."""
        self._raise_if_closed()
        address, near = parse_destination(destination, PRODUCER)
        layer = given(max_unconfirmed=max_unconfirmed, priority=priority, ttl_ms=ttl_ms, durable=durable)
        options = producer_options((*self.connection._layers, layer, near))
        producer = Producer(self, address, self.connection._next_producer(), options)
        self._producers.append(producer)
        self.connection._adopt_producer(producer)
        return producer

    def consumer(
        self,
        source: str,
        *,
        prefetch: int | None = None,
        selector: str | None = None,
        redelivery_policy: RedeliveryPolicy | None = None,
        optimize_acknowledge: bool | None = None,
        check_expiry: bool | None = None,
    ) -> Consumer:
        """A consumer of a queue, an address, or ``address::queue``; options may follow a ``?``. ``prefetch`` 0 pulls."""
        from .consumer import Consumer

        self._raise_if_closed()
        name, near = parse_destination(source, CONSUMER)
        layer = given(
            prefetch=prefetch,
            selector=selector,
            redelivery_policy=redelivery_policy,
            optimize_acknowledge=optimize_acknowledge,
            check_expiry=check_expiry,
        )
        options = consumer_options((*self.connection._layers, layer, near))
        if options.prefetch == 0 and options.optimize_acknowledge and self.mode is AckMode.AUTO:
            raise UsageError("invalid-option", "optimize_acknowledge cannot work with prefetch 0", "choose one of them")
        policy = policy_of((layer, near), self.connection._policy_for(name))
        consumer = Consumer(self, self.connection._next_consumer(), name, options, policy)
        self._consumers[consumer.number] = consumer
        self.connection._adopt_consumer(consumer)
        return consumer

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
        )
        try:
            return await consumer.listen(handler, concurrency)
        except BaseException:
            consumer._abandon()
            raise

    def browser(self, queue: str, page: int = 100) -> Browser:
        """Look at the messages of a queue without taking them: ``async for entry in session.browser("orders")``."""
        self._raise_if_closed()
        return Browser(self.connection, queue, page)

    # -- settling

    def acknowledge(self, confirm: bool = False) -> Awaitable[None]:
        """Settle everything this session was given and holds; with ``confirm`` return when it is on disk."""
        self._refuse_when_transacted("acknowledge")
        return self._settle_all(None, confirm)

    def recover(self) -> Awaitable[None]:
        """Return everything given and not settled: counted as failed, coming again by the redelivery rules."""
        self._refuse_when_transacted("recover")
        for consumer in list(self._consumers.values()):
            consumer._recover()
        return DONE

    async def commit(self) -> None:
        """Make sends and acknowledgements since the last commit one atomic group on disk. See ``Transaction.commit`` for errors."""
        await self._in_transaction("commit").commit()

    async def rollback(self, reason: str | None = None, error: BaseException | str | None = None) -> None:
        """Undo them: sends are dropped, given messages come back counted as failed, unread ones uncounted.

        ``reason`` and ``error`` are kept with the message last handed out, whose handling led here; the others only went back with it.
        """
        transaction = self._in_transaction("rollback")
        if (reason is not None or error is not None) and self._last is not None and self._last._state is State.HELD:
            self._last._consumer._fail(self._last, failure_map("rollback", reason, error))
        await transaction.rollback()

    def _settle_all(self, scope: object | None, confirm: bool) -> Awaitable[None]:
        work: list[tuple[Settlement, list[Message]]] = []
        for consumer in self._consumers.values():
            held = consumer._settlement.held.values()
            mine = list(held) if scope is None else [message for message in held if message._scope is scope]
            if confirm:
                mine = mine or consumer._settlement.lost_of(scope)
            if mine:
                work.append((consumer._settlement, mine))
        if confirm:
            return _confirm_all(work)
        for settlement, messages in work:
            settlement.acknowledge(messages)
        return DONE

    def _acknowledge(self, message: Message, confirm: bool) -> Awaitable[None]:
        if message._state in (State.LOST, State.RETURNED):
            raise not_held(message)
        if self.mode is AckMode.CLIENT:
            return self._settle_all(message._scope, confirm)
        if self.mode is AckMode.INDIVIDUAL and message._state is not State.HELD:
            raise not_held(message)
        if self.mode is AckMode.INDIVIDUAL or confirm:
            if message._state is not State.HELD or self.mode is AckMode.TRANSACTED:
                raise confirm_impossible(self.mode)
            settlement = message._consumer._settlement
            if confirm:
                return settlement.acknowledge_confirmed([message])
            settlement.acknowledge((message,))
        return DONE

    def _fail_last(self, error: Exception, consumer: Consumer | None = None) -> None:
        """The block was left by ``error``: the message last handed out failed with it, if it is still held."""
        message = self._last
        if message is not None and message._state is State.HELD and consumer in (None, message._consumer):
            message._consumer._fail(message, failure_map("error", error=error))

    def _in_transaction(self, what: str) -> Transaction:
        if self._transaction is None:
            raise UsageError("not-transacted", f"{what}() needs a transaction, this session is {self.mode.name}", "use AckMode.TRANSACTED")
        return self._transaction

    def _refuse_when_transacted(self, what: str) -> None:
        if self._transaction is not None:
            raise UsageError("transacted", f"{what}() has no meaning in a transaction", "use commit() and rollback()")

    # -- closing

    async def close(self, timeout_ms: int | None = None) -> None:
        """Stop listeners, flush sends and held acknowledgements, end producers and consumers; an uncommitted transaction is rolled
        back. Bounded by ``timeout_ms`` (default: the connection's close_timeout_ms); raises CloseIncomplete for what stayed unknown.
        """
        if self._closed:
            return
        self._closed = True
        from .closing import close_session

        await close_session(self, self.connection.options.close_timeout_ms if timeout_ms is None else timeout_ms)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._fail_last(error)
        try:
            await self.close()
        except HomingError as incomplete:
            if error is None:
                raise
            error.add_note(f"closing the session: {incomplete}")

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise UsageError("session-closed", "this session is closed", "open a new one with connection.session(mode)")

    def _forget_producer(self, producer: Producer) -> None:
        if producer in self._producers:
            self._producers.remove(producer)
        self.connection._forget_producer(producer)

    def _forget_consumer(self, consumer: Consumer) -> None:
        """A consumer of a transaction that holds messages stays until the transaction ends."""
        self.connection._forget_consumer(consumer)
        if not consumer._settlement.held and not consumer._settlement.handing:
            self._consumers.pop(consumer.number, None)

    def _forget_closed_consumers(self) -> None:
        for consumer in list(self._consumers.values()):
            if consumer._ended is not None:
                self._forget_consumer(consumer)

    def _lost(self) -> None:
        if self._transaction is not None:
            self._transaction._lost()
        for consumer in list(self._consumers.values()):
            consumer._lost()
        for producer in self._producers:
            producer._lost()
        self._forget_closed_consumers()

    def _end(self, error: HomingError) -> None:
        """The connection will not come back."""
        for consumer in list(self._consumers.values()):
            consumer._end(error)
        for producer in list(self._producers):
            producer._end(error)


async def _confirm_all(work: list[tuple[Settlement, list[Message]]]) -> None:
    results = await asyncio.gather(*(settlement.acknowledge_confirmed(messages) for settlement, messages in work), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
