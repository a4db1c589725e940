"""The client against a real server process: every ack mode, redelivery, reconnect over a kill, the blocking facade."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest

import homing
from homing.client import AckMode, ReconnectPolicy, RedeliveryPolicy, SendError, TransactionError, blocking
from tests.process import ROOT, Server

NO_DELAY = RedeliveryPolicy(initial_redelivery_delay_ms=0, redelivery_delay_ms=0, maximum_redeliveries=20)
FAST = ReconnectPolicy(initial_delay_ms=10, maximum_delay_ms=100)
WAIT_MS = 15_000


async def send(connection: homing.Connection, address: str, *bodies: bytes) -> None:
    async with connection.session() as session:
        producer = session.producer(address)
        for body in bodies:
            producer.send_nowait(body)
        await producer.flush()


async def one(consumer: homing.Consumer) -> homing.Message:
    message = await consumer.receive(timeout_ms=WAIT_MS)
    assert message is not None
    return message


async def left(connection: homing.Connection, queue: str) -> int:
    return next((int(each["messages"]) for each in await connection.call("queues") if each["name"] == queue), 0)


@pytest.mark.parametrize("mode", list(AckMode))
async def test_each_mode_settles_what_it_should(server: Server, mode: AckMode) -> None:
    async with homing.connect(server.url) as connection:
        await send(connection, "orders", *[b"%d" % number for number in range(20)])
        async with connection.session(mode) as session:
            consumer = session.consumer("orders", prefetch=4 if mode is AckMode.DUPS_OK else 1000)
            for number in range(10):
                message = await one(consumer)
                assert message.body == b"%d" % number
                if mode is AckMode.INDIVIDUAL:
                    await message.acknowledge(confirm=number == 9)
            if mode is AckMode.CLIENT:
                await session.acknowledge(confirm=True)
            if mode is AckMode.TRANSACTED:
                await session.commit()
        async with connection.session() as session:
            consumer = session.consumer("orders")
            rest = [await one(consumer) for _ in range(10)]
        assert [message.body for message in rest] == [b"%d" % number for number in range(10, 20)]
        assert not any(message.redelivered for message in rest)
        assert await left(connection, "orders") == 0


async def test_a_failed_message_comes_back_counted(server: Server) -> None:
    async with homing.connect(server.url, redelivery_policy=NO_DELAY) as connection:
        await send(connection, "orders", b"x")
        async with connection.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer("orders")
            for count in (1, 2, 3):
                message = await one(consumer)
                assert (message.delivery_count, message.redelivered) == (count, count > 1)
                await message.nack(reason="not yet", error=ValueError("boom"))
            message = await one(consumer)
            await message.release()
            message = await one(consumer)
            await message.acknowledge(confirm=True)
            history = await connection.call("history", message_id=message.message_id)
        assert "boom" in str(history)


async def test_listeners_of_every_kind_see_every_message(server: Server) -> None:
    async with homing.connect(server.url, redelivery_policy=NO_DELAY) as connection:
        for mode, concurrency in ((AckMode.AUTO, 1), (AckMode.DUPS_OK, 4), (AckMode.CLIENT, 8), (AckMode.TRANSACTED, 1)):
            await send(connection, "orders", *[b"%d" % number for number in range(100)])
            failed: set[bytes] = set()
            done: set[bytes] = set()
            finished = asyncio.Event()
            async with connection.session(mode) as session:

                async def handler(
                    message: homing.Message,
                    mode: AckMode = mode,
                    session: homing.Session = session,
                    failed: set[bytes] = failed,
                    done: set[bytes] = done,
                    finished: asyncio.Event = finished,
                ) -> None:
                    if message.body.endswith(b"7") and message.body not in failed:
                        failed.add(message.body)
                        raise ValueError("first time fails")
                    assert message.redelivered == (message.body in failed)
                    if mode is AckMode.CLIENT:
                        await message.acknowledge()
                    if mode is AckMode.TRANSACTED:
                        await session.commit()
                    done.add(message.body)
                    if len(done) == 100:
                        finished.set()

                listener = await session.listen("orders", handler, concurrency)
                await asyncio.wait_for(finished.wait(), 20)
                await listener.stop()
            assert len(failed) == 10
            assert await left(connection, "orders") == 0


async def test_transactions_are_whole(server: Server) -> None:
    async with homing.connect(server.url, redelivery_policy=NO_DELAY) as connection:
        await send(connection, "orders", b"x")
        async with connection.session(AckMode.TRANSACTED) as session:
            consumer, producer = session.consumer("orders"), session.producer("out")
            await one(consumer)
            await producer.send(b"undone")
            await session.rollback()
            message = await one(consumer)
            assert message.delivery_count == 2
            await producer.send(b"done", duplicate_id="once")
            await session.commit()
            await producer.send(b"done again", duplicate_id="once")
            with pytest.raises(TransactionError) as caught:
                await session.commit()
            assert caught.value.code == "duplicate-message"
        assert (await left(connection, "orders"), await left(connection, "out")) == (0, 1)


async def test_nothing_confirmed_is_lost_or_doubled_over_a_kill(server: Server) -> None:
    async with homing.connect(server.url, reconnect=FAST) as connection, connection.session() as session:
        producer = session.producer("orders")
        for number in range(2000):
            producer.send_nowait(b"%d" % number)
            await producer.drain()
            if number == 1000:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
        await producer.flush()
        consumer = session.consumer("orders")
        bodies = [(await one(consumer)).body for _ in range(2000)]
        assert bodies == [b"%d" % number for number in range(2000)]
        assert await consumer.receive(timeout_ms=100) is None


async def test_refusals_fail_in_order_and_the_producer_goes_on(start_server: Callable[..., Server]) -> None:
    settings = {
        "#": {"max-length": 3, "overflow": "reject-publish"},
        "bills.dlx": {"overflow": "reject-publish-dlx", "dead-letter-address": "DLA"},
    }
    server = start_server({"address-settings": settings})
    async with homing.connect(server.url) as connection, connection.session() as session:
        producer = session.producer("orders")
        outcomes = await asyncio.gather(*(producer.send_nowait(b"%d" % number) for number in range(6)), return_exceptions=True)
        codes = [error.code if isinstance(error, SendError) else error for error in outcomes]
        assert codes == [None, None, None, "queue-full", "not-sent-after-refusal", "not-sent-after-refusal"]
        async with connection.session() as other:
            await one(other.consumer("orders", prefetch=1))
        await producer.send(b"again")
    async with homing.connect(server.url) as connection, connection.session(AckMode.TRANSACTED) as session:
        for address in ("bills", "bills.dlx"):
            for number, refused in ((2, False), (2, True), (1, False)):
                producer = session.producer(address)
                for _ in range(number):
                    await producer.send(b"in a transaction")
                with pytest.raises(TransactionError, match="is full") if refused else nullcontext():
                    await session.commit()
            assert await left(connection, address) == 3
        assert await left(connection, "DLQ.bills.dlx") == 0


async def test_pull_and_browse(server: Server) -> None:
    async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("orders", prefetch=0)
        assert await consumer.receive(timeout_ms=50) is None
        await send(connection, "orders", *[b"%d" % number for number in range(250)])
        assert [entry["body"] async for entry in session.browser("orders")] == [b"%d" % number for number in range(250)]
        message = await one(consumer)
        await message.acknowledge(confirm=True)
        assert await left(connection, "orders") == 249


def test_a_handler_that_kills_its_process_at_once_was_counted(server: Server) -> None:
    program = """
import asyncio, os, signal, sys
import homing
async def main():
    async with homing.connect(sys.argv[1]) as connection, connection.session(homing.AckMode.AUTO) as session:
        listener = await session.listen("orders", lambda message: os.kill(os.getpid(), signal.SIGKILL))
        await listener.wait()
asyncio.run(main())
"""

    async def prepare() -> None:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", b"deadly")

    async def look() -> homing.Message:
        async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            return await one(session.consumer("orders"))

    asyncio.run(prepare())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program, server.url], env=environment, timeout=30, check=False)
    assert done.returncode == -9
    assert asyncio.run(look()).delivery_count == 2


def test_blocking_facade(server: Server) -> None:
    with blocking.connect(server.url) as connection:
        with connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer("orders")
            producer.send(b"one", properties={"k": "v"})
            producer.send_many([b"two", b"three"])
            assert [entry["body"] for entry in session.browse("orders")] == [b"one", b"two", b"three"]
            consumer = session.consumer("orders")
            message = consumer.receive(timeout_ms=WAIT_MS)
            assert message is not None
            assert (message.body, message.properties) == (b"one", {"k": "v"})
            message.acknowledge(confirm=True)
            second = consumer.receive(timeout_ms=WAIT_MS)
            assert second is not None
            second.nack(reason="later", delay_ms=3_600_000)
        with connection.session(AckMode.TRANSACTED) as session:
            assert session.consumer("orders").receive(timeout_ms=WAIT_MS) is not None
            session.producer("out").send(b"x")
            session.commit()
        names = {each["name"]: each["messages"] for each in connection.call("queues")}
        assert names == {"orders": 1, "out": 1}
    assert connection.state is homing.ConnectionState.CLOSED
    with pytest.raises(homing.ConnectError):
        blocking.connect("homing://127.0.0.1:1")


def test_listeners_of_the_blocking_facade(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    both, seen = threading.Barrier(2), queue.SimpleQueue[bytes]()

    def handler(message: blocking.Message) -> None:
        if message.body == b"bad":
            if message.delivery_count == 2:
                listener.stop()  # from within it only takes no more
            raise LookupError("no such parcel")
        both.wait(20)  # two at a time, each in a thread
        message.acknowledge(confirm=True)
        seen.put(message.body)

    with blocking.connect(server.url, redelivery_policy=NO_DELAY) as connection, connection.session(AckMode.CLIENT) as session:
        listener = session.listen("orders", handler, concurrency=2)
        producer = session.producer("orders")
        producer.send_many([b"one", b"two"])
        assert {seen.get(timeout=20), seen.get(timeout=20)} == {b"one", b"two"}
        producer.send(b"bad")
        listener.wait()
        listener.stop()
        (left,) = session.browse("orders")
        assert (left["body"], left["failed"]) == (b"bad", 2)
    said = [record for record in caplog.records if record.name == "homing.client"]
    assert [record.getMessage() for record in said] == [
        f"listener-failed: the listener of orders failed message {left['message_id']} at attempt {attempt}" for attempt in (1, 2)
    ]
    assert all(record.levelno == logging.ERROR and record.exc_info and record.exc_info[0] is LookupError for record in said)


async def test_a_dead_letter_is_edited_and_sent_again(server: Server) -> None:
    async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        await session.producer("orders").send(b"seven", properties={"region": "eu"}, priority=7, durable=False, ttl_ms=3_600_000)
        consumer = session.consumer("orders")
        message = await one(consumer)
        assert 0 < message.copy_for_send()["ttl_ms"] <= 3_600_000
        await message.nack(retryable=False)
        dead = await one(session.consumer("DLQ.orders"))
        assert dead.properties["_AMQ_ORIG_QUEUE"] == "orders"
        copy = dead.copy_for_send()
        assert copy == {"body": b"seven", "properties": {"region": "eu"}, "priority": 7, "durable": False}
        await session.producer("orders").send(**copy | {"body": b"7"})
        again = await one(consumer)
        assert (again.body, again.properties, again.priority, again.durable) == (b"7", {"region": "eu"}, 7, False)


async def test_a_broker_that_falls_silent_is_noticed(server: Server) -> None:
    async with homing.connect(server.url, heartbeat_ms=400, reconnect=False) as connection:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(homing.ConnectionLost, match="nothing was heard") as lost:
                await connection.call("queues")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert lost.value.code == "heartbeat-missed"


async def test_hosts_are_tried_in_turn(server: Server) -> None:
    others = server.url.removeprefix("homing://")
    async with homing.connect(f"homing://127.0.0.1:1,{others}?prefetch=5") as connection:
        assert await connection.call("queues") == []
    with pytest.raises(homing.ConnectError, match=r"127\.0\.0\.1:1 .*; nobody answers at \[::1\]:2"):
        await homing.connect("homing://127.0.0.1:1,[::1]:2")


async def test_a_rollback_keeps_its_reason_with_the_message_that_led_to_it(server: Server) -> None:
    async with homing.connect(server.url) as connection:
        await send(connection, "orders", b"bystander", b"culprit")
        async with connection.session(AckMode.TRANSACTED) as session:
            consumer = session.consumer("orders", redelivery_policy=NO_DELAY)
            bystander, culprit = await one(consumer), await one(consumer)
            await session.rollback(error=KeyError("price"))
            again = [await one(consumer), await one(consumer)]
            assert [message.delivery_count for message in again] == [2, 2]
            await session.commit()
        found = await connection.call("history", message_id=culprit.message_id)
        assert [each["outcome"] for each in found["attempts"]] == ["rollback"]
        assert found["attempts"][0]["fault"]["error_type"] == "KeyError"
        found = await connection.call("history", message_id=bystander.message_id)
        assert [each["outcome"] for each in found["attempts"]] == ["rollback"]
        assert not found["attempts"][0]["fault"]
