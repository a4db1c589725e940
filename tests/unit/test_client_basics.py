"""The shortest way through the client: connect, send, receive, acknowledge, fail, listen."""

from __future__ import annotations

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode
from tests.unit.client_fake import connected, on_both_loops


@on_both_loops
async def test_send_and_receive() -> None:
    async with connected() as (broker, connection):
        async with connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer("orders")
            await producer.send(b"one", properties={"k": "v"})
            assert broker.of(Op.SEND) == [[Op.SEND, 1, 1, [[b"one", {"k": "v"}]]]]
            consumer = session.consumer("orders")
            await consumer.ready()
            broker.deliver(b"a", b"b")
            first = await consumer.receive(timeout_ms=20_000)
            second = await consumer.receive(timeout_ms=20_000)
            assert first is not None
            assert second is not None
            await second.acknowledge()
            await first.nack(reason="no", error=ValueError("bad"), delay_ms=5)
            assert await consumer.receive(timeout_ms=5) is None
        frames = broker.of(Op.GIVEN, Op.ACK)
        assert frames[:2] == [[Op.GIVEN, 1, 1], [Op.GIVEN, 1, 2]]
        assert frames[2] == [Op.ACK, 1, AckType.INDIVIDUAL, [2, 2]]
        assert frames[3][:4] == [Op.ACK, 1, AckType.REDELIVERED, [1, 1]]
        assert frames[3][4]["error_type"] == "ValueError"
        assert frames[3][4]["delay_ms"] == 5
    assert connection.state is homing.ConnectionState.CLOSED


@on_both_loops
async def test_listen() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        seen: list[bytes] = []

        async def handler(message: homing.Message) -> None:
            seen.append(message.body)
            if message.body == b"bad":
                raise ValueError("bad one")

        listener = await session.listen("orders", handler)
        broker.deliver(b"a", b"bad", b"c")
        frames = await broker.seen(Op.ACK, 3)
        await listener.stop()
        await listener.wait()
        assert seen == [b"a", b"bad", b"c"]
        assert [frame[2] for frame in frames] == [AckType.STANDARD, AckType.REDELIVERED, AckType.STANDARD]
        assert frames[1][4]["outcome"] == "listener"
