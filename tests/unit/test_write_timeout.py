"""A peer that takes nothing from its socket is given up, heartbeats or not: a transport on a real socket, and a clock put forward."""

from __future__ import annotations

import asyncio

import pytest

from homing.broker.protocols.amqp091.codec import HEARTBEAT_FRAME
from homing.broker.protocols.native.codec import Op, encode
from tests import inside
from tests.model.world import World
from tests.unit.test_goodbyes import LIMITS, LOGIN, PROTOCOLS, Loop, Sockets

WRITE_TIMEOUT_S = LIMITS.write_timeout_ms / 1000
#: (what logs in with heartbeats and never says goodbye, a heartbeat)
TALK = {
    "AMQP": (LOGIN, HEARTBEAT_FRAME),
    "native": (encode([Op.HELLO, "homing", 1, {"heartbeat_ms": 10_000}]), encode([int(Op.HEARTBEAT)])),
}


async def _talk(protocol: str, takes: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    world, sockets = World({}), Sockets()
    server = await loop.create_server(lambda: PROTOCOLS[protocol][0](world, sockets), "127.0.0.1", 0)
    # A small window: what it does not read waits at the broker soon.
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 12)
    words, heartbeat = TALK[protocol]
    writer.write(words)
    while not inside.connections(world.broker).all:
        await asyncio.wait_for(reader.read(1 << 16), 10)
    (transport,) = sockets
    transport.write(bytes(16 << 20))
    connection = next(iter(inside.connections(world.broker).all.values()))
    for _ in range(12):
        loop.ahead_s += WRITE_TIMEOUT_S / 8
        before = loop.time()
        writer.write(heartbeat)
        while transport._last_in < before and transport in sockets:  # noqa: ASYNC110 - what a socket brings
            await asyncio.sleep(0)
        if takes:
            await asyncio.wait_for(reader.readexactly(1 << 18), 10)
        for each in list(sockets):
            each.beat()
    await asyncio.sleep(0)
    while bool(sockets) is not takes:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert connection.open is takes
    writer.close()
    server.close()


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("protocol", TALK)
def test_who_takes_nothing_is_given_up_and_who_takes_a_little_is_not(protocol: str, takes: bool) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_talk(protocol, takes))
