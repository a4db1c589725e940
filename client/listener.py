"""Listener: messages pushed into a handler.

A slice that is reported as delivered is never more than what is handed out in this turn: one message, as many as workers start now, or,
for a plain function, as many calls as fit into a few milliseconds (at most 64).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from .errors import HomingError, UsageError
from .failure import failure_map
from .message import UNREAD, Message, State
from .modes import AckMode
from .subscription import MAX_SLICE, Subscription
from .transaction import Transaction
from .validation import check_whole
from .waiting import Waiters

Handler = Callable[[Message], Awaitable[Any] | Any]

#: A slice of plain calls that took longer makes the next one smaller; one that took less than a quarter of it, larger.
SLICE_TIME_S: Final = 0.004

log = logging.getLogger("homing.client")


def is_coroutine_function(handler: Handler) -> bool:
    """Also where it is an object that is called."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class Listener:
    """The handle ``listen`` returns."""

    def __init__(
        self, subscription: Subscription, handler: Handler, concurrency: int, transaction: Transaction | None, listeners: list[Listener]
    ) -> None:
        check_whole("concurrency", concurrency, 1, 100_000)
        if not callable(handler):
            raise UsageError("invalid-argument", f"the handler is {handler!r}", "give a function that takes a message")
        if subscription.prefetch == 0:
            raise UsageError("invalid-option", "a listener cannot work with prefetch 0", "give it a prefetch, 1 for fair work sharing")
        if concurrency > 1 and subscription.mode is AckMode.TRANSACTED:
            raise UsageError("invalid-option", "a transaction cannot have concurrent listeners", "open one session for each worker")
        self._subscription = subscription
        self._handler = handler
        self._transaction = transaction
        self._listeners = listeners
        self._loop = subscription.loop
        is_async = is_coroutine_function(handler)
        self._plain = not is_async
        self._concurrency = concurrency if is_async else 1
        self._stopping = False
        self._broken = False
        self._pump: asyncio.Task[None] | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._idle: deque[asyncio.Future[Message | None]] = deque()
        self._idled = Waiters(self._loop)
        self._pause_at = 0.0

    # -- what programs call

    async def stop(self) -> None:
        """Take no more messages, wait for running handlers, end the subscription. From within a handler it only takes no more."""
        self._stopping = True
        self._subscription.arrived.wake_all()
        self._idled.wake_all()
        tasks = [task for task in (self._pump, *self._workers) if task is not None]
        if asyncio.current_task() in tasks:
            return
        if tasks:
            await asyncio.wait(tasks)
        self._subscription.listened = False
        await self._subscription.close()

    async def wait(self) -> None:
        """Wait until the listener has ended; raises what ended it, if that was not ``stop()``."""
        if self._pump is not None:
            await asyncio.wait([self._pump])
            self._pump.result()

    def cancel(self) -> None:
        """Stop at once: running handlers are cancelled, their messages go back as delivered but not failed."""
        self._stopping = True
        for task in (self._pump, *self._workers):
            if task is not None:
                task.cancel()

    # -- running

    def start(self) -> None:
        self._listeners.append(self)
        self._pump = self._loop.create_task(self._run(), name=f"listener of {self._subscription.source}")
        self._pump.add_done_callback(self._ended)

    def _ended(self, pump: asyncio.Task[None]) -> None:
        if self in self._listeners:
            self._listeners.remove(self)
        error = None if pump.cancelled() else pump.exception()
        if error is not None and not self._stopping:
            log.error("listener-ended: the listener of %s has ended: %s", self._subscription.source, error)

    async def _run(self) -> None:
        if self._concurrency == 1:
            await self._run_alone()
            return
        self._workers = [self._loop.create_task(self._work(object())) for _ in range(self._concurrency)]
        for worker in self._workers:
            worker.add_done_callback(self._worker_ended)
        try:
            await self._feed_workers()
        finally:
            for future in self._idle:
                if not future.done():
                    future.set_result(None)
            await asyncio.gather(*self._workers)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """A worker ends only with the listener; if a fault of its own ended it, the listener ends as well and tells."""
        if not worker.cancelled() and worker.exception() is not None:
            self._broken = True
            self._subscription.arrived.wake_all()
            self._idled.wake_all()

    async def _run_alone(self) -> None:
        size = 1
        while not self._stopping:
            messages = await self._next_slice(size)
            if not messages:
                continue
            if not await self._subscription.report(messages):
                continue
            started = self._loop.time()
            await self._handle(messages)
            await self._breathe()
            size = self._adapt(size, len(messages), self._loop.time() - started)

    def _adapt(self, size: int, done: int, took_s: float) -> int:
        if not self._plain or self._transaction is not None:  # a rollback in mid-slice would void the rest of it
            return 1
        if took_s > SLICE_TIME_S:
            return max(1, size // 2)
        return min(MAX_SLICE, size * 2) if done == size and took_s < SLICE_TIME_S / 4 else size

    async def _next_slice(self, most: int) -> list[Message]:
        subscription = self._subscription
        if self._transaction is not None:
            await self._transaction.open.quiet()
        messages = subscription.pop_slice(most)
        if not messages and not self._stopping:
            subscription.raise_if_ended()
            if not self._busy():
                subscription.raise_if_full()
            await subscription.arrived.wait()
        return messages

    def _busy(self) -> bool:
        """Some handler is running and may still acknowledge."""
        return len(self._idle) < len(self._workers)

    async def _breathe(self) -> None:
        """Give the loop a turn now and then, also to handlers that never wait."""
        now = self._loop.time()
        if now >= self._pause_at:
            await asyncio.sleep(0)
            self._pause_at = self._loop.time() + SLICE_TIME_S

    async def _feed_workers(self) -> None:
        while not self._stopping and not self._broken:
            if not self._idle:
                await self._idled.wait()
                continue
            messages = await self._next_slice(min(len(self._idle), MAX_SLICE))
            if messages and await self._subscription.report(messages):
                for message in messages:
                    self._idle.popleft().set_result(message)

    async def _work(self, scope: object) -> None:
        while not self._stopping and not self._broken:
            future: asyncio.Future[Message | None] = self._loop.create_future()
            self._idle.append(future)
            self._idled.wake()
            if len(self._idle) == len(self._workers) and self._subscription.is_full():
                self._subscription.arrived.wake_all()  # nobody is left who could acknowledge: the pump must say so
            message = await future
            if message is None:
                return
            message._scope = scope
            await self._handle([message])
            await self._breathe()

    async def _handle(self, messages: list[Message]) -> None:
        """Hand over what was just reported as given, one after the other."""
        settlement, handler = self._subscription.settlement, self._handler
        for message in messages:
            if message._state is not UNREAD:
                continue  # void meanwhile: the broker has it again
            settlement.hold(message)
            try:
                result = handler(message)
                if result is not None and inspect.isawaitable(result):
                    self._plain = False
                    await result
            except Exception as error:
                await self._failed(message, error)
            else:
                if settlement.finishes:
                    settlement.finish(message)

    async def _failed(self, message: Message, error: Exception) -> None:
        where = (self._subscription.source, message.message_id, message.delivery_count)
        log.error("listener-failed: the listener of %s failed message %d at attempt %d", *where, exc_info=error)
        if message._state is State.HELD:
            self._subscription.settlement.fail(message, failure_map("listener", error=error))
        if self._transaction is not None:
            try:
                await self._transaction.rollback()
            except HomingError as refused:
                log.warning("rollback-failed: the rollback after a failed handler: %s", refused)
