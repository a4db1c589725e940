"""The client for scripts without asyncio: every call waits for its answer.

::

    from homing.client import AckMode, blocking

    with blocking.connect("homing://127.0.0.1:7171") as connection, connection.session(AckMode.INDIVIDUAL) as session:
        session.producer("orders").send(b"hello")
        message = session.consumer("orders").receive(timeout_ms=1000)
        message.acknowledge()

One daemon thread runs the event loop of each connection. Arguments and errors are those of the asyncio client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, TypeVar

from . import connection as asyncio_connection
from .consumer import Consumer as AsyncConsumer
from .errors import HomingError
from .listener import Handler as AsyncHandler
from .listener import Listener as AsyncListener
from .message import Message as AsyncMessage
from .modes import AckMode
from .producer import Body
from .producer import Producer as AsyncProducer
from .session import Session as AsyncSession
from .url import DEFAULT_URL
from .validation import check_whole

T = TypeVar("T")
Handler = Callable[["Message"], object]

MAX_THREADS: Final = 1000


class _Loop:
    """A thread with an event loop in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="homing-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run ``make()`` in the loop's thread and wait for what it returns; Ctrl-C here cancels it there."""

        async def call() -> T:
            return await make()

        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs it on the loop's thread, without waiting for its end."""
        asyncio.run_coroutine_threadsafe(make(), self._loop)

    def do(self, action: Callable[[], T]) -> T:
        async def call() -> T:
            return action()

        return self.wait(call)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.wait(self._loop.shutdown_asyncgens)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Message:
    """A received message; attributes are those of ``homing.Message``."""

    __slots__ = ("_loop", "_message")

    def __init__(self, loop: _Loop, message: AsyncMessage) -> None:
        self._loop = loop
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return repr(self._message)

    def acknowledge(self, confirm: bool = False) -> None:
        self._loop.wait(lambda: self._message.acknowledge(confirm))

    def nack(self, **failure: Any) -> None:
        """Arguments: reason, error, delay_ms, until_ms, retryable, count, exit_status."""
        self._loop.wait(lambda: self._message.nack(**failure))

    def release(self) -> None:
        self._loop.wait(self._message.release)

    def touch(self) -> None:
        self._loop.wait(self._message.touch)


class Producer:
    def __init__(self, loop: _Loop, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, body: Body, **options: Any) -> None:
        """Returns when confirmed. Options: properties, priority, ttl_ms, delay_ms, durable, duplicate_id."""
        self._loop.wait(lambda: self._producer.send(body, **options))

    def send_many(self, bodies: Iterator[Body] | list[Body], **options: Any) -> None:
        """Send all of them, many to a frame, and return when every one is confirmed."""

        async def send() -> None:
            for body in bodies:
                self._producer.send_nowait(body, **options)
                await self._producer.drain()
            await self._producer.flush()

        self._loop.wait(send)

    def flush(self) -> None:
        self._loop.wait(self._producer.flush)

    def close(self) -> None:
        self._loop.wait(self._producer.close)


class Consumer:
    """``for message in consumer`` waits for messages without end."""

    def __init__(self, loop: _Loop, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def ready(self) -> Consumer:
        """Wait until it is subscribed. Raises ConsumerError when the broker refused it."""
        self._loop.wait(self._consumer.ready)
        return self

    def receive(self, timeout_ms: int | None = None) -> Message | None:
        message = self._loop.wait(lambda: self._consumer.receive(timeout_ms))
        return None if message is None else Message(self._loop, message)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def acknowledge(self, confirm: bool = False) -> None:
        self._loop.wait(lambda: self._consumer.acknowledge(confirm))

    def close(self) -> None:
        self._loop.wait(self._consumer.close)


class Listener:
    """The handle ``listen`` returns."""

    def __init__(self, loop: _Loop, handler: Handler, workers: int, listen: Callable[[AsyncHandler], Awaitable[AsyncListener]]) -> None:
        self._loop = loop
        self._handler = handler
        self._threads = ThreadPoolExecutor(workers, "homing-listener")
        self._here = threading.local()
        self._listener = loop.wait(lambda: listen(self._handle))

    async def _handle(self, message: AsyncMessage) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._call, Message(self._loop, message))

    def _call(self, message: Message) -> None:
        self._here.handling = True
        self._handler(message)

    def stop(self) -> None:
        """Take no more messages, wait for running handlers, end the subscription. From within a handler it only takes no more."""
        if getattr(self._here, "handling", False):
            self._loop.start(self._listener.stop)
        else:
            self._loop.wait(self._listener.stop)
            self._threads.shutdown()

    def wait(self) -> None:
        """Wait until the listener has ended; raises what ended it, if that was not ``stop()``."""
        self._loop.wait(self._listener.wait)


class Session:
    def __init__(self, loop: _Loop, session: AsyncSession) -> None:
        self._loop = loop
        self._session = session

    def producer(self, destination: str, **options: Any) -> Producer:
        return Producer(self._loop, self._loop.do(lambda: self._session.producer(destination, **options)))

    def consumer(self, source: str, **options: Any) -> Consumer:
        return Consumer(self._loop, self._loop.do(lambda: self._session.consumer(source, **options)))

    def listen(self, source: str, handler: Handler, concurrency: int = 1, **options: Any) -> Listener:
        """Call ``handler(message)`` for every message, up to ``concurrency`` at a time, each in a thread; returns once subscribed.

        The handler may use this session and others of the facade. What it returns or raises means what it does for
        ``homing.Session.listen``, whose options and errors these are.
        """
        check_whole("concurrency", concurrency, 1, MAX_THREADS)
        return Listener(self._loop, handler, concurrency, lambda each: self._session.listen(source, each, concurrency, **options))

    def browse(self, queue: str) -> Iterator[dict[str, Any]]:
        """Every message of a queue, as maps, without taking any."""
        browser = self._loop.do(lambda: self._session.browser(queue))

        async def following() -> dict[str, Any] | None:
            return await anext(browser, None)

        while (entry := self._loop.wait(following)) is not None:
            yield entry

    def acknowledge(self, confirm: bool = False) -> None:
        self._loop.wait(lambda: self._session.acknowledge(confirm))

    def recover(self) -> None:
        self._loop.wait(self._session.recover)

    def commit(self) -> None:
        self._loop.wait(self._session.commit)

    def rollback(self, reason: str | None = None, error: BaseException | str | None = None) -> None:
        self._loop.wait(lambda: self._session.rollback(reason, error))

    def close(self, timeout_ms: int | None = None) -> None:
        self._loop.wait(lambda: self._session.close(timeout_ms))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.wait(lambda: self._session.__aexit__(kind, error, trace))


class Connection:
    def __init__(self, loop: _Loop, connection: asyncio_connection.Connection) -> None:
        self._loop = loop
        self._connection = connection

    @property
    def state(self) -> asyncio_connection.ConnectionState:
        return self._connection.state

    def session(self, mode: AckMode = AckMode.AUTO) -> Session:
        return Session(self._loop, self._loop.do(lambda: self._connection.session(mode)))

    def call(self, verb: str, **arguments: Any) -> Any:
        return self._loop.wait(lambda: self._connection.call(verb, **arguments))

    def listing(self, verb: str, **arguments: Any) -> list[Any]:
        return self._loop.wait(lambda: self._connection.listing(verb, **arguments))

    def retry(self, queue: str, **options: Any) -> int:
        return self._loop.wait(lambda: self._connection.retry(queue, **options))

    def edit(self, message_id: int, **options: Any) -> int:
        return self._loop.wait(lambda: self._connection.edit(message_id, **options))

    def close(self, timeout_ms: int | None = None) -> None:
        self._end(lambda: self._connection.close(timeout_ms))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(lambda: self._connection.__aexit__(kind, error, trace))

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._loop._loop.is_closed():
            return
        try:
            self._loop.wait(close)
        finally:
            self._loop.stop()


def connect(url: str = DEFAULT_URL, **options: Any) -> Connection:
    """An open connection; arguments and errors of ``homing.connect``. Use it with ``with``, or ``close()`` it."""
    connection = asyncio_connection.connect(url, **options)
    loop = _Loop()
    try:
        loop.wait(lambda: connection)
    except (HomingError, KeyboardInterrupt):
        loop.stop()
        raise
    return Connection(loop, connection)
