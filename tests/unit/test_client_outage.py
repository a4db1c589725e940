"""The broker is gone for ten minutes: what the client keeps, how often it looks, what it says, and that it goes on. Time is virtual."""

from __future__ import annotations

import asyncio
import logging
import selectors
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import Op
from homing.client.connection import ConnectionState
from tests.unit.client_fake import FakeBroker, Frame, Peer

OUTAGE_S = 600


class _Impatient(selectors.DefaultSelector):
    """Where nothing comes from the kernel, the time of the next timer comes at once."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0 if timeout is not None and timeout <= 0 else 0.002)
        if not ready and timeout is not None and timeout > 0:
            self.loop.ahead_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.connects = 0
        selector = _Impatient()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return super().time() + self.ahead_s

    async def create_connection(self, *arguments: Any, **named: Any) -> Any:
        self.connects += 1
        return await super().create_connection(*arguments, **named)


async def _listen(broker: FakeBroker) -> asyncio.Server:
    server = await asyncio.get_running_loop().create_server(lambda: Peer(broker), "127.0.0.1", broker.port)
    broker.port = server.sockets[0].getsockname()[1]
    return server


async def _gone(broker: FakeBroker, server: asyncio.Server) -> None:
    server.close()
    for peer in broker.peers:
        if peer.transport is not None:
            peer.transport.abort()
    await server.wait_closed()


async def _through_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    broker, stored = FakeBroker(), list[bytes]()

    def store(peer: Peer, frame: Frame) -> None:
        _, number, first, _said, bodies = frame
        new = bodies[max(0, broker.high_watermarks.get(number, 0) - first + 1) :]
        assert first <= broker.high_watermarks.get(number, 0) + 1, "a gap"
        stored.extend(new)
        broker.high_watermarks[number] = first + len(bodies) - 1
        peer.send([Op.CREDIT, number, len(bodies), sum(len(each) + 400 for each in bodies)])
        if len(stored) != 50:  # the last confirm before the outage is lost on its way
            peer.send([Op.CONFIRM, number, broker.high_watermarks[number]])

    broker.handlers[Op.SEND_BODIES] = store
    broker.welcome = {"joins_bodies": True}
    server = await _listen(broker)
    connection = await homing.connect(broker.url, max_unconfirmed=100, heartbeat_ms=0)
    states: list[ConnectionState] = []
    connection.on_state.append(states.append)
    session = connection.session()
    producer = session.producer("orders")
    consumer = await session.consumer("orders").ready()
    sent = [b"%d" % number for number in range(1000)]

    async def send() -> None:
        for body in sent:
            await producer.send(body)

    sending = [asyncio.create_task(send())]
    await broker.until(lambda: len(stored) == 50)
    await _gone(broker, server)
    began, before = loop.time(), loop.connects
    extra: list[asyncio.Task[Any]] = [asyncio.create_task(producer.send(b"x")) for _ in range(500)]
    receiving = asyncio.create_task(consumer.receive())
    most = 0
    while loop.time() - began < OUTAGE_S:
        await asyncio.sleep(1)
        most = max(most, producer.unconfirmed)
    assert states == [ConnectionState.RECONNECTING]
    assert most == 100, "sends wait at max_unconfirmed"
    for _ in range(100):
        producer.send_nowait(b"y")
    with pytest.raises(homing.UsageError, match="unconfirmed"):
        producer.send_nowait(b"z")
    # Waits of 2.5 to 5 s, once they have grown.
    assert OUTAGE_S / 5 < loop.connects - before < OUTAGE_S / 2.5 + 10
    server = await _listen(broker)
    await asyncio.wait_for(asyncio.gather(*sending, *extra), 60)
    await producer.flush()
    assert [body for body in stored if body not in (b"x", b"y")] == sent
    assert (stored.count(b"x"), stored.count(b"y")) == (500, 100)
    assert states == [ConnectionState.RECONNECTING, ConnectionState.CONNECTED]
    broker.deliver(b"after it", consumer=consumer.number)
    assert (message := await receiving) is not None
    assert message.body == b"after it"
    lines = [record.getMessage() for record in caplog.records if record.name == "homing.client"]
    lost, back = lines
    assert "lost, reconnecting" in lost
    assert float(back.partition(" again after ")[2].split()[0]) == pytest.approx(OUTAGE_S, abs=10)
    await connection.close()
    await _gone(broker, server)


@pytest.mark.plain
def test_ten_minutes_without_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "homing.client")
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_through_an_outage(caplog))
