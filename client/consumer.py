"""Consumer: messages of one queue, handed out one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from .errors import ConsumerError, HomingError
from .failure import failure_map
from .listener import Handler, Listener
from .message import DONE, Message
from .settlement import SessionSettlement
from .subscription import MAX_SLICE, Subscription
from .transaction import Transaction, no_meaning
from .validation import HIGHEST_INT64, check_whole


class Consumer:
    """Made by ``session.consumer(queue)``. ``async for`` is the same as ``receive()`` without a timeout.

    The subscription leaves with the same loop turn; a refusal is raised by the first ``receive()`` or by ``ready()``.
    """

    def __init__(
        self, subscription: Subscription, session: SessionSettlement, transaction: Transaction | None, listeners: list[Listener]
    ) -> None:
        self.number = subscription.number
        self.source = subscription.source
        self.options = subscription.options
        self.prefetch = subscription.prefetch
        self._subscription = subscription
        self._session = session
        self._transaction = transaction
        self._listeners = listeners
        self._listener: Listener | None = None
        self._turns = 0

    @property
    def queue(self) -> str | None:
        """The broker's answer: what the name resolved to."""
        return self._subscription.queue

    async def ready(self) -> Consumer:
        """Wait for the broker's answer to the subscription; raises ConsumerError when it was refused."""
        await self._subscription.ready()
        return self

    async def receive(self, timeout_ms: int | None = None) -> Message | None:
        """The next message, or None when nothing came within ``timeout_ms`` (None: wait without end; 0: only what is here).

        Raises ConsumerError ``too-many-unacknowledged`` when 1.5 × prefetch messages are held in CLIENT or TRANSACTED (no more can
        come), ``consumer-has-listener``, and whatever ended the consumer. Cancelling it loses nothing: the message stays.
        """
        subscription = self._subscription
        if subscription.listened:
            raise ConsumerError("consumer-has-listener", f"a listener reads {self.source} here", "make a second consumer for receive()")
        if timeout_ms is not None:
            check_whole("timeout_ms", timeout_ms, 0, HIGHEST_INT64)
        deadline = None if timeout_ms is None else subscription.loop.time() + timeout_ms / 1000
        if self._transaction is not None:
            await self._transaction.open.quiet()
        while True:
            self._turns += 1
            if self._turns % MAX_SLICE == 0:
                await asyncio.sleep(0)  # a full inbox must not keep the loop for itself
            message = subscription.pop()
            if message is not None:
                if await subscription.hand_out(message):
                    return message
            else:
                subscription.raise_if_ended()
                subscription.raise_if_full()
                if not await subscription.wait(deadline):
                    return None

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self.receive()
        except HomingError:
            if self._subscription.closed_here:
                raise StopAsyncIteration from None
            raise
        assert message is not None  # without a timeout it never is
        return message

    def acknowledge(self, confirm: bool = False) -> Awaitable[None]:
        """Settle everything this consumer was given; with ``confirm`` return when it is on disk."""
        if self._transaction is not None:
            raise no_meaning("acknowledge")
        settlement = self._subscription.settlement
        if confirm:
            return settlement.acknowledge_confirmed(list(settlement.held.values()))
        settlement.acknowledge(list(settlement.held.values()))
        return DONE

    async def listen(self, handler: Handler, concurrency: int = 1) -> Listener:
        """Hand every message to ``handler``, a function or coroutine function; see ``Session.listen``."""
        subscription = self._subscription
        subscription.raise_if_ended()
        if subscription.listened:
            raise ConsumerError("consumer-has-listener", f"a listener reads {self.source} here already", "stop() it first")
        listener = Listener(subscription, handler, concurrency, self._transaction, self._listeners)
        subscription.listened = True
        try:
            await subscription.ready()
        except BaseException:
            subscription.listened = False
            raise
        self._listener = listener
        listener.start()
        return listener

    async def close(self) -> None:
        """Send held acknowledgements, end the subscription. Given, unsettled messages go back counted as delivered, unread ones
        uncounted; in a TRANSACTED session given ones stay with the transaction."""
        if self._listener is not None:
            await self._listener.stop()
        await self._subscription.close()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._session.fail_last(failure_map("error", error=error), self._subscription.settlement)
        await self.close()
