"""Who hangs up after a goodbye, and when: a transport on a real socket, with a loop whose clock can be put forward."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.protocols.amqp091.codec import method_frame
from homing.broker.protocols.amqp091.codec_methods import PROTOCOL_HEADER
from homing.broker.protocols.amqp091.options import AmqpOptions
from homing.broker.protocols.amqp091.session import AmqpSession
from homing.broker.protocols.amqp091.transport import AmqpTransport
from homing.broker.protocols.gathering import Gathering
from homing.broker.protocols.handshakes import Admission, AdmissionLimits
from homing.broker.protocols.native.codec import Op, encode
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from homing.broker.protocols.native.transport import NativeTransport
from homing.broker.protocols.output import Outgoing
from homing.broker.protocols.transport import SocketTransport, TransportContext, TransportLimits
from homing.broker.protocols.turns import Turns
from tests import inside
from tests.model.world import World

LIMITS = TransportLimits(login_timeout_ms=10_000)
GOODBYE = method_frame(0, "connection.close", 200, "bye", 0, 0)
LOGIN = (
    PROTOCOL_HEADER
    + method_frame(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00guest", "en_US")
    + method_frame(0, "connection.tune-ok", 100, 8192, 7)
    + method_frame(0, "connection.open", "/", "", False)
)


class Loop(asyncio.SelectorEventLoop):
    """Its clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


Sockets = set[SocketTransport]


def _context(world: World, sockets: Sockets) -> TransportContext:
    loop = asyncio.get_running_loop()
    gathering, turns = Gathering(inside.memory(world.broker), loop.time), Turns(loop.call_soon, loop.time)
    return TransportContext(LIMITS, sockets, Admission(AdmissionLimits()), gathering, turns, Outgoing(loop.call_soon))


def _amqp(world: World, sockets: Sockets) -> AmqpTransport:
    def make(output: Any) -> AmqpSession:
        return AmqpSession(world.broker, output, AmqpOptions("RabbitMQ", "3.13.7"), lambda user, password, done: done(user))

    return AmqpTransport(make, _context(world, sockets))


def _native(world: World, sockets: Sockets) -> NativeTransport:
    def make(output: Any) -> NativeSession:
        options = NativeOptions("model", "test")
        return NativeSession(world.broker, output, options, lambda user, password, done: done(""), lambda *call: False)

    return NativeTransport(make, _context(world, sockets))


PROTOCOLS: dict[str, tuple[Callable[[World, Sockets], SocketTransport], bytes, bytes]] = {
    "AMQP": (_amqp, LOGIN + GOODBYE, method_frame(0, "connection.close-ok")),
    "native": (_native, encode([Op.HELLO, "homing", 1, {}]) + encode([Op.CLOSE, 7]), encode([int(Op.CLOSED), 7])),
    "AMQP, an error": (_amqp, LOGIN + method_frame(1, "basic.ack", 1, False), b"\x00\x3c\x00\x50\xce"),
    "AMQP, before the login": (_amqp, PROTOCOL_HEADER + GOODBYE, method_frame(0, "connection.close-ok")),
}


async def _talk(protocol: str, then: Callable[[Loop, Sockets, Any, Any], Any]) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    make, words, answer = PROTOCOLS[protocol]
    world, sockets = World({}), Sockets()
    server = await loop.create_server(lambda: make(world, sockets), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(words)
    said = b""
    while not said.endswith(answer):
        said += await asyncio.wait_for(reader.read(1 << 16), 10)
    assert not inside.connections(world.broker).all
    await then(loop, sockets, reader, writer)
    writer.close()
    server.close()


def run(protocol: str, then: Callable[[Loop, Sockets, Any, Any], Any]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_talk(protocol, then))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_socket_is_left_to_the_client(protocol: str) -> None:
    async def then(loop: Loop, sockets: Sockets, reader: Any, writer: Any) -> None:
        writer.write(b"junk" * 10_000 if protocol in ("AMQP", "native") else b"")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        assert len(sockets) == 1
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert not sockets

    run(protocol, then)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_closed_at_last(protocol: str) -> None:
    async def then(loop: Loop, sockets: Sockets, reader: Any, writer: Any) -> None:
        most_s = LIMITS.login_timeout_ms / 1000 if "login" in protocol else 30.0
        loop.ahead_s += most_s - 1
        for transport in list(sockets):
            transport.beat()  # who has said goodbye owes no heartbeat
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        loop.ahead_s += 2
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert not sockets

    run(protocol, then)


def test_who_goes_on_sending_is_read_all_the_same() -> None:
    """Or the kernel would answer with a reset, and the client might never see the goodbye."""

    async def then(loop: Loop, sockets: Sockets, reader: Any, writer: Any) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        for _ in range(100):
            writer.write(bytes(1 << 16))
            await asyncio.wait_for(writer.drain(), 10)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b""

    run("AMQP", then)
