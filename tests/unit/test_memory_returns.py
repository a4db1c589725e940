"""What a connection held is free when it is gone, not when the collector comes: half messages, errors, sessions that are closed."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from homing.broker.protocols.amqp091.codec import method_frame
from homing.broker.protocols.native.codec import Op, encode
from homing.broker.protocols.transport import SocketTransport
from tests.model.world import World
from tests.unit.test_goodbyes import LOGIN, Sockets, _amqp, _native

SIZE, TIMES = 300_000, 8
_BODY = b"\x03\x00\x01" + (7000).to_bytes(4, "big") + bytes(7000) + b"\xce"
_HEADER = b"\x02\x00\x01" + (14).to_bytes(4, "big") + b"\x00\x3c\x00\x00" + SIZE.to_bytes(8, "big") + b"\x00\x00" + b"\xce"
OPEN = method_frame(1, "channel.open", "") + method_frame(1, "queue.declare", 0, "q", False, False, False, False, False, {})
HALF = OPEN + method_frame(1, "basic.publish", 0, "", "q", False, False) + _HEADER + 40 * _BODY
TABLE = method_frame(1, "queue.declare", 0, "q", False, False, False, False, False, {"x": "y" * 8000})
HELLO = encode([Op.PRODUCER, 1, 1, "q"])
SENT = encode([Op.SEND, 1, 1, [[bytes(SIZE), None]]])

AMQP = {
    "half a message": HALF,
    "a frame without its end": HALF + _BODY[:-1] + b"x",
    "a frame of no kind": HALF + b"\x09" + _BODY[1:],
    "a header where a body was to come": HALF + _HEADER,
    "a method that there is not": HALF + method_frame(2, "channel.open", "")[:7] + b"\x00\x99\x00\x99\x00\xce",
    "a table that is none": HALF[: len(OPEN)] + 30 * TABLE + TABLE.replace(b"S\x00\x00", b"?\x00\x00"),
    "a channel exception": HALF[: len(OPEN)] + method_frame(1, "basic.ack", 7, False) + HALF[len(OPEN) :],
    "a connection exception": HALF + method_frame(2, "channel.open", "") + method_frame(2, "channel.open", ""),
}
NATIVE = {
    "half a frame": HELLO + SENT[:-9],
    "a frame that is none": HELLO + SENT[:-9] + b"\xc1" * 9,
    "what it may not say": HELLO + encode([Op.SEND, 9, 1, [[bytes(SIZE), None]]]),
}
CASES = [("amqp", name) for name in AMQP] + [("native", name) for name in NATIVE]


class Counted(asyncio.Protocol):
    """A socket's protocol, and how many bytes have come to it."""

    def __init__(self, inner: SocketTransport) -> None:
        self.inner, self.bytes = inner, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
        self.bytes += len(data)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


async def until(holds: Callable[[], bool]) -> None:
    """The sockets of both sides are this loop's: it turns until then."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.parametrize(("protocol", "name"), CASES, ids=[name for _, name in CASES])
async def test_it_is_free_at_the_end_of_its_connection(no_collector: None, protocol: str, name: str) -> None:
    make, login, said = (_amqp, LOGIN, AMQP[name]) if protocol == "amqp" else (_native, encode([Op.HELLO, "homing", 1, {}]), NATIVE[name])
    world, sockets = World({}), Sockets()
    made = list[Counted]()

    def accept() -> Counted:
        made.append(Counted(make(world, sockets)))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    held = list[int]()
    for _ in range(TIMES):
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(login)
        await until(lambda: bool(made) and made[0].bytes >= len(login))
        world.commit()
        writer.write(said)
        await until(lambda: made[0].bytes >= len(login + said) or not sockets)
        made.clear()
        writer.transport.abort()
        await until(lambda: not sockets)
        world.commit()
        del writer
        held.append(tracemalloc.get_traced_memory()[0])
    server.close()
    assert held[-1] - held[2] < SIZE, held
