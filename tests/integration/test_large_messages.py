"""Messages that are larger than a frame of the native protocol: AMQP's go on to AMQP, and no native client ever meets one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from homing import client
from homing.client import AckMode
from homing.client.errors import HomingError
from tests.amqp_support import AMQP, channel, connection, get, wait_for_count
from tests.process import HomingCommand, Server, wait_until

FRAME = 1 << 20
LARGE = FRAME + 5
LIMITS = {"limits": {"max-frame-bytes": FRAME, "max-message-bytes": "3MiB"}}


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    return start_server({**AMQP, **LIMITS})


def test_a_message_larger_than_a_frame_goes_from_amqp_to_amqp(server: Server) -> None:
    with channel(server) as ch:
        ch.queue_declare("q", durable=True)
        for size in (LARGE, 3 << 20):
            body = b"x" * size
            ch.basic_publish("", "q", body)
            assert get(ch, "q")[2] == body


@pytest.mark.parametrize("prefetch", [10, 0])
async def test_none_reaches_a_native_consumer_and_why_is_told(server: Server, homing: HomingCommand, prefetch: int) -> None:
    homing.url = server.url
    with connection(server) as opened:
        ch = opened.channel()
        ch.queue_declare("q", durable=True)
        async with await client.connect(server.url) as native, native.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer("q", prefetch=prefetch)
            for body in (b"before", b"x" * LARGE, b"after"):
                ch.basic_publish("", "q", body)
            for expected in (b"before", b"after"):
                message = await consumer.receive(20_000)
                assert message is not None
                assert message.body == expected
                await message.acknowledge(confirm=True)
            (listed,) = await native.call("consumers", queue="q")
            assert listed["too_large"] == 1
        assert get(ch, "DLQ.q")[2] == b"x" * LARGE
    server.logged(f"takes {LARGE}", "raise limits.max-frame-bytes, or consume the queue over AMQP")


async def test_nor_its_dead_letter_queue_s_consumer_and_looking_at_it_is_no_harm(server: Server, homing: HomingCommand) -> None:
    homing.url = server.url
    with channel(server) as ch:
        ch.queue_declare("q", durable=True)
        ch.basic_publish("", "q", b"x" * LARGE)
        wait_for_count(ch, "q", 1)
        ch.basic_nack(get(ch, "q", auto_ack=False)[0].delivery_tag, requeue=False)
        wait_for_count(ch, "DLQ.q", 1)
        async with await client.connect(server.url) as native, native.session(AckMode.INDIVIDUAL) as session:
            assert await session.consumer("DLQ.q").receive(300) is None
            await native.call("queues")
        peeked = homing("peek", "DLQ.q", "--json")
        assert (peeked.returncode, json.loads(peeked.stderr)["code"]) == (1, "answer-too-large")
        parked = next(each for each in homing.json("queues") if each["name"] == "DLQ.q")
        assert parked["messages"] == 1


async def test_a_native_sender_obeys_the_smaller_of_the_two(start_server: Callable[..., Server]) -> None:
    server = start_server({**AMQP, "limits": {"max-frame-bytes": FRAME, "max-message-bytes": "100KiB"}})
    async with await client.connect(server.url) as native, native.session() as session:
        producer = session.producer("q")
        await producer.send(b"x" * 100_000)
        with pytest.raises(HomingError, match="the message takes 150000 bytes") as refused:
            await producer.send(b"x" * 150_000)
        assert refused.value.code == "message-too-large"
        assert "limits.max-message-bytes" in refused.value.fix
    with channel(server) as ch:
        wait_until("the first is there", lambda: get(ch, "q")[2] == b"x" * 100_000)
