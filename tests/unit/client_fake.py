"""A scripted broker on a real loopback socket, for tests of the client; it speaks the codec and remembers every frame."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

import homing
from homing.broker.protocols.native.codec import FrameDecoder, Op, encode

Frame = list[Any]


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine test on asyncio's own loop and on uvloop; other fixtures work as usual."""

    @functools.wraps(test)
    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(**fixtures))

    signature = inspect.signature(test)
    extra = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[extra, *signature.parameters.values()], return_annotation=None)  # type: ignore[attr-defined]
    loops = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    marked: Callable[..., None] = loops(run)
    return marked


class Peer(asyncio.Protocol):
    """One client's connection, seen from the broker. ``chunks`` counts reads, ``frames`` holds what came."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.decoder = FrameDecoder()
        self.frames: list[Frame] = []
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.broker.peers.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            self.frames.append(frame)
            self.broker.frames.append(frame)
            handler = self.broker.handlers.get(frame[0])
            if handler is not None:
                handler(self, frame)
        self.broker.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.broker.news.set()

    def send(self, *frames: Frame | tuple[Any, ...]) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(map(encode, frames)))

    def drop(self) -> None:
        """The connection breaks."""
        assert self.transport is not None
        self.transport.abort()


class FakeBroker:
    """Answers everything kindly unless a test replaces ``handlers[op]``. ``marks``: producer number to stored mark."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.peers: list[Peer] = []
        self.news = asyncio.Event()
        self.high_watermarks: dict[int, int] = {}
        self.credit = (4000, 4 * 1024 * 1024)
        self.heartbeat_ms = 0
        #: Said in WELCOME besides.
        self.welcome: dict[str, Any] = {}
        self.port = 0
        self.handlers: dict[int, Callable[[Peer, Frame], None]] = {
            Op.HELLO: self.on_hello,
            Op.PRODUCER: self.on_producer,
            Op.SEND: self.on_send,
            Op.SEND_BODIES: self.on_send_bodies,
            Op.SUBSCRIBE: lambda peer, frame: peer.send([Op.RESULT, frame[1], {"queue": frame[3], "address": frame[3], "prefetch": 1000}]),
            Op.UNSUBSCRIBE: self.answer,
            Op.COMMIT: self.answer,
            Op.ROLLBACK: self.answer,
            Op.SESSION_ENDED: self.answer,
            Op.ACK: self.on_ack,
            Op.CLOSE: lambda peer, frame: peer.send([Op.CLOSED, frame[1]]),
            Op.CALL: lambda peer, frame: peer.send([Op.RESULT, frame[1], {"verb": frame[2], "arguments": frame[3]}]),
        }

    @property
    def url(self) -> str:
        return f"homing://127.0.0.1:{self.port}"

    @property
    def peer(self) -> Peer:
        """The newest connection."""
        return self.peers[-1]

    def on_hello(self, peer: Peer, frame: Frame) -> None:
        options = {"broker_id": "fake", "connection": len(self.peers), "heartbeat_ms": self.heartbeat_ms, "max_frame_bytes": 2**24}
        peer.send([Op.WELCOME, 1, options | self.welcome])

    def on_producer(self, peer: Peer, frame: Frame) -> None:
        _, request, number, _ = frame
        peer.send([Op.RESULT, request, {"mark": self.high_watermarks.get(number, 0)}], [Op.CREDIT, number, *self.credit])

    def on_send(self, peer: Peer, frame: Frame) -> None:
        _, number, first, messages, *session = frame
        peer.send([Op.CREDIT, number, len(messages), sum(len(each[0]) + 400 for each in messages)])
        if not session:
            self.high_watermarks[number] = first + len(messages) - 1
            peer.send([Op.CONFIRM, number, self.high_watermarks[number]])

    def on_send_bodies(self, peer: Peer, frame: Frame) -> None:
        _, number, first, said, bodies = frame
        self.on_send(peer, [Op.SEND, number, first, [[body, *said] for body in bodies]])

    def on_ack(self, peer: Peer, frame: Frame) -> None:
        if len(frame) > 5 and frame[5]:
            peer.send([Op.RESULT, frame[5], {"not_held": []}])

    def answer(self, peer: Peer, frame: Frame) -> None:
        if frame[1]:
            peer.send([Op.RESULT, frame[1], None])

    def silent(self, op: Op) -> None:
        self.handlers.pop(op)

    def of(self, *ops: Op) -> list[Frame]:
        return [frame for frame in self.frames if frame[0] in ops]

    async def seen(self, op: Op, count: int = 1) -> list[Frame]:
        """Wait until ``count`` frames of a kind have come; all of them."""
        await self.until(lambda: len(self.of(op)) >= count)
        return self.of(op)

    async def until(self, look: Callable[[], bool]) -> None:
        while not look():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 10)

    def deliver(self, *bodies: bytes, consumer: int = 1, first_tag: int = 1, count: int = 1, **overlay: Any) -> None:
        """DELIVER messages whose id is 1000 + tag."""
        tail = [None, 4, 0, overlay["expires_at_ms"]] if "expires_at_ms" in overlay else []
        messages = [[1000 + tag, count, "orders", body, *tail] for tag, body in enumerate(bodies, first_tag)]
        self.peer.send([Op.DELIVER, consumer, first_tag, messages])


@asynccontextmanager
async def fake_broker(port: int = 0) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(broker), "127.0.0.1", port)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for peer in broker.peers:
            if peer.transport is not None:
                peer.transport.abort()
        await broker.until(lambda: all(peer.lost for peer in broker.peers))
        await server.wait_closed()
        for _ in range(3):  # uvloop closes its handles in the turns after connection_lost
            await asyncio.sleep(0)


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[FakeBroker, homing.Connection]]:
    async with fake_broker() as broker, homing.connect(broker.url, **options) as connection:
        yield broker, connection


async def there_and_back(connection: homing.Connection) -> None:
    """What either side had said before has arrived: a call goes there and back behind it."""
    await connection.call("anything")
