"""Queues longer than memory on a real server: order over a kill, both protocols, times to come, long work, and bounded memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

import homing
from homing.client import AckMode
from tests.acceptance.semantics_support import until
from tests.amqp_support import AMQP, channel, get
from tests.process import Server

#: More than the window and a page hold, and than a start reads.
COUNT = 25_000
DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path, AMQP | {"limits": {"window-messages": 4000, "window-bytes": "4MiB"}})
    started.start()
    yield started
    started.stop()


async def fill(server: Server, queue: str, count: int, size: int = 8, delay_ms: int = 0) -> None:
    async with await homing.connect(server.url) as connection, connection.session() as session:
        producer = session.producer(queue)
        for number in range(count):
            producer.send_nowait(b"%0*d" % (size, number), delay_ms=delay_ms)
            if number % 500 == 499:
                await producer.drain()
        await producer.flush()


async def count(server: Server, queue: str) -> int:
    async with await homing.connect(server.url) as connection:
        return next((int(each["messages"]) for each in await connection.call("queues") if each["name"] == queue), 0)


async def holds(server: Server, queue: str, messages: int) -> bool:
    return await count(server, queue) == messages


def rss_mib(server: Server, name: str = "VmRSS") -> float:
    fields = Path(f"/proc/{server.pid}/status").read_text().split(f"{name}:")[1].split()
    return int(fields[0]) / 1024


async def drain(server: Server, queue: str, wanted: int) -> list[int]:
    got: list[int] = []
    message: homing.Message | None = None
    async with await homing.connect(server.url) as connection, connection.session(AckMode.CLIENT) as session:
        consumer = session.consumer(queue)
        while len(got) < wanted:
            message = await consumer.receive(timeout_ms=20_000)
            assert message is not None, f"nothing more came after {len(got)}"
            got.append(int(message.body))
            if len(got) % 500 == 0:
                await message.acknowledge()
        assert message is not None
        await message.acknowledge()
        assert await consumer.receive(timeout_ms=100) is None
    return got


async def test_a_long_queue_keeps_its_order_over_a_kill_and_hardly_any_memory(server: Server) -> None:
    await fill(server, "long", 1)
    before = rss_mib(server)
    await fill(server, "long", COUNT, size=2000)
    assert await count(server, "long") == COUNT + 1
    assert rss_mib(server) - before < 60, "the bodies alone are 48 MiB; with their references they would be more"
    server.kill()
    server.start()
    assert await count(server, "long") == COUNT + 1
    assert await drain(server, "long", COUNT + 1) == [0, *range(COUNT)]
    assert await count(server, "long") == 0


async def test_large_bodies_are_written_and_read_back_a_few_at_a_time(server: Server) -> None:
    body, number = os.urandom(10 << 20), 24
    async with await homing.connect(server.url) as connection, connection.session() as session:
        producer = session.producer("large")
        for _ in range(number):
            producer.send_nowait(body)
            await producer.drain()
        await producer.flush()
    assert rss_mib(server, "VmHWM") < 225, "the bodies are 240 MiB"
    server.kill()
    server.start()
    async with await homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("large")
        for _ in range(number):
            message = await consumer.receive(timeout_ms=20_000)
            assert message is not None
            assert message.body == body
            await message.acknowledge()
    assert rss_mib(server, "VmHWM") < 225
    await until("everything is acknowledged", lambda: holds(server, "large", 0))


async def test_amqp_reads_a_queue_of_which_nothing_is_in_memory(server: Server) -> None:
    await fill(server, "long", COUNT)
    server.kill()
    server.start()

    def talk() -> None:
        with channel(server) as amqp:
            declared = amqp.queue_declare("long", passive=True)
            assert declared.method.message_count == COUNT
            for number in range(1500):
                method, _, body = amqp.basic_get("long", auto_ack=True)
                assert method is not None
                assert int(body) == number
            assert amqp.queue_purge("long").method.message_count == COUNT - 1500
            assert amqp.basic_get("long", auto_ack=True)[0] is None
            amqp.basic_publish("", "long", b"77")
            assert amqp.basic_get("long", auto_ack=True)[2] == b"77"
            assert amqp.queue_delete("long") is not None

    await asyncio.to_thread(talk)


def test_gets_that_nobody_acknowledges_end_near_the_memory_limit(start_server: Callable[..., Server]) -> None:
    """64 MiB are allowed; 150 messages of 1 MiB wait, and a program gets them one by one without acknowledging any."""
    server = start_server({**AMQP, "broker": {"memory-limit": "64MiB"}})
    with channel(server) as amqp:
        amqp.confirm_delivery()
        amqp.queue_declare("long", durable=True)
        for _ in range(150):
            amqp.basic_publish("", "long", bytes(1 << 20), DURABLE)
        got: list[bytes] = []
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            got.extend(get(amqp, "long", auto_ack=False)[2] for _ in range(150))
        assert 16 <= len(got) <= 64
        assert (closed.value.reply_code, "acknowledge some" in closed.value.reply_text) == (406, True)
        again = amqp.connection.channel()
        for _ in range(150):
            assert get(again, "long")[0] is not None, "what it got has gone back"


async def test_what_is_to_come_waits_on_disk_and_comes_in_time(server: Server) -> None:
    started = time.monotonic()
    await fill(server, "later", 14_000, delay_ms=5_000)
    await fill(server, "later", 1, delay_ms=3_600_000)
    assert await count(server, "later") == 14_001
    async with await homing.connect(server.url) as connection, connection.session(AckMode.DUPS_OK) as session:
        consumer = session.consumer("later")
        got: list[int] = []
        for _ in range(14_000):
            message = await consumer.receive(timeout_ms=20_000)
            assert message is not None
            if not got:
                assert time.monotonic() - started >= 5.0 - 0.05, "early"
            got.append(int(message.body))
    assert sorted(got) == list(range(14_000))
    assert await count(server, "later") == 1


@pytest.mark.parametrize(("window", "delay_ms"), [("window-messages", 0), ("window-bytes", 0), ("window-scheduled", 3_600_000)])
async def test_a_reload_changes_the_windows_in_force(server: Server, window: str, delay_ms: int) -> None:
    """What 300 messages take of memory, in a new queue each: all of it in a large window, hardly anything in a small one."""
    async with await homing.connect(server.url) as connection:

        async def taken(limit: int) -> int:
            server.config["limits"] = {window: limit}
            server.write_config()
            await connection.call("reload")
            before = (await connection.call("statistics"))["memory"]["queues"]
            await fill(server, f"window-{limit}", 300, size=1000, delay_ms=delay_ms)
            return int((await connection.call("statistics"))["memory"]["queues"] - before)

        large, small, large_again = await taken(1 << 20), await taken(1), await taken(1 << 21)
        assert large == large_again
        assert large >= 300 * 1000
        assert small * 100 < large


async def test_dead_letters_on_disk_are_shown_and_go_home(server: Server) -> None:
    await fill(server, "work", 5_000)
    async with await homing.connect(server.url) as connection:
        async with connection.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer("work")
            for _ in range(5_000):
                message = await consumer.receive(timeout_ms=20_000)
                assert message is not None
                message.nack(retryable=False)
        await until("all are dead letters", lambda: holds(server, "DLQ.work", 5_000))
        shown = await connection.call("peek", queue="DLQ.work", limit=3)
        assert [int(each["body"]) for each in shown["messages"]] == [0, 1, 2]
        beyond = await connection.call("peek", queue="DLQ.work", limit=3, after=[-4, shown["next"][1] + 4_600])
        assert 4_500 < int(beyond["messages"][0]["body"]) < 5_000
        assert (await connection.call("redrive", queue="DLQ.work"))["messages"] == 5_000
    assert (await count(server, "work"), await count(server, "DLQ.work")) == (5_000, 0)
    assert await drain(server, "work", 5_000) == list(range(5_000))
