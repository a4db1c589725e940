"""docs/semantics.md, section 9: what survives what."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import Frame, Op
from homing.client import AckMode, Connection, SendError
from tests.acceptance.semantics_support import (
    Line,
    Raw,
    bodies,
    consuming,
    drained,
    fail,
    history,
    look,
    name,
    outcomes,
    receive,
    receive_all,
    running,
    send,
    settled,
    totals,
    until,
)
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "full.#": {"max-length": 3, "overflow": "reject-publish"},
    "persisted.#": {"persist-delivery-count-before-delivery": True},
}


async def _is(value: bool) -> bool:
    return value


# -- confirmed is kept, acknowledged stays acknowledged --------------------------------------------------------------


async def test_what_was_confirmed_survives_and_what_was_acknowledged_never_comes_again(tmp_path: Path) -> None:
    """Sends and acknowledgements are under way when the broker is killed."""
    confirmed: list[int] = []
    tried: list[int] = []  # of the last one the confirm may be what was lost
    acknowledged: list[int] = []

    async def produce(connection: Connection) -> None:
        producer = connection.session().producer("orders")
        for number in range(1_000_000):
            await producer.send(b"%d" % number)
            confirmed.append(number)

    async def consume(connection: Connection) -> None:
        async with consuming(connection, "orders", prefetch=5) as consumer:
            while True:
                message = await receive(consumer)
                tried.append(int(message.body))
                await message.acknowledge(confirm=True)
                acknowledged.append(int(message.body))

    with running(tmp_path) as server:
        for _ in range(2):
            async with homing.connect(server.url, reconnect=False, close_timeout_ms=200) as connection:
                tasks = [asyncio.create_task(produce(connection)), asyncio.create_task(consume(connection))]
                await until("messages flow", lambda: _is(len(acknowledged) >= 100))
                server.kill()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(result, homing.HomingError)
            server.start()
            async with homing.connect(server.url) as connection:
                left = bodies(await look(connection, "orders"))
                assert not set(left) & set(acknowledged)
                assert set(confirmed) <= set(left) | set(tried)
                assert len(left) == len(set(left))
                if left:
                    await connection.call("purge", queue="orders")
            for each in (confirmed, tried, acknowledged):
                each.clear()


async def test_messages_that_are_not_durable_are_gone_after_a_crash_and_kept_by_an_orderly_stop(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", 1, 2)
            await send(connection, "orders", 3, durable=False)
            assert bodies(await look(connection, "orders")) == [1, 2, 3]
        server.kill()
        async with homing.connect(server.start().url) as connection:
            assert bodies(await look(connection, "orders")) == [1, 2]
            await send(connection, "orders", 4, durable=False)
        server.stop()
        async with homing.connect(server.start().url) as connection:
            assert bodies(await drained(connection, "orders", 3)) == [1, 2, 4]
            assert await look(connection, "orders") == []


# -- what leaves before it is on disk --------------------------------------------------------------------------------


async def test_what_was_consumed_before_it_was_written_is_counted_all_the_same(tmp_path: Path) -> None:
    """Elision shows only in the journal: no row of the message, but every count, and its duplicate mark."""
    with running(tmp_path) as server:
        async with homing.connect(server.url) as connection, consuming(connection, "orders", AckMode.AUTO) as consumer:
            async with connection.session() as session:
                producer = session.producer("orders")
                for number in range(500):
                    producer.send_nowait(b"%d" % number, duplicate_id=f"id {number}")
                ids = [message.message_id for message in await receive_all(consumer, 500)]
                await producer.flush()
            with pytest.raises(homing.CallError) as nothing:
                await history(connection, ids[0])
            assert nothing.value.code == "no-such-message"
        server.kill()
        counted = totals(server, "orders")
        assert (counted["sent"], counted["succeeded"], counted["first_try"], counted["delivered"]) == (500, 500, 500, 500)
        async with homing.connect(server.start().url) as connection:
            await send(connection, "orders", 0, duplicate_id="id 499")
            assert await look(connection, "orders") == []


async def test_full_history_keeps_what_succeeded_at_once(tmp_path: Path) -> None:
    with running(tmp_path, broker={"history": "full"}) as server:
        async with homing.connect(server.url) as connection, consuming(connection, "orders", AckMode.AUTO) as consumer:
            await send(connection, "orders", *range(5))
            for message in await receive_all(consumer, 5):
                assert await outcomes(connection, message.message_id) == ["succeeded"]


async def test_no_client_sees_a_count_fall(tmp_path: Path) -> None:
    """A message whose failure is not on disk yet is not handed out again; so a crash shows the count seen last, or one more."""
    seen: dict[bytes, int] = {}

    async def fail_for_ever(connection: Connection) -> None:
        # Room for all of them: what comes back without a delay is not overtaken.
        async with consuming(connection, "orders", prefetch=20) as consumer:
            while True:
                message = await receive(consumer)
                assert message.delivery_count >= seen.get(message.body, 0), message.body
                seen[message.body] = message.delivery_count
                await message.nack()

    async def all_have_failed(least: int) -> bool:
        return len(seen) == 20 and min(seen.values()) >= least

    with running(tmp_path, {"#": {"max-delivery-attempts": -1}}) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", *range(20))
        for least in (4, 8):
            connection = await homing.connect(server.url, reconnect=False)
            task = asyncio.create_task(fail_for_ever(connection))
            await until("all have failed often", partial(all_have_failed, least))
            server.kill()
            with pytest.raises(homing.HomingError):
                await task
            server.start()


# -- duplicates ------------------------------------------------------------------------------------------------------


async def test_what_is_sent_again_after_a_reconnect_is_stored_once(connection: Connection, server: Server) -> None:
    address, confirms = name(), 0

    def cut_at_some_confirms(frame: Frame) -> str:
        nonlocal confirms
        if frame[0] != Op.CONFIRM:
            return "pass"
        confirms += 1
        return "cut" if confirms in (2, 4, 6) else "pass"

    async with Line.to(server) as line, homing.connect(line.url) as other, other.session() as session:
        line.to_client = cut_at_some_confirms
        producer = session.producer(address)
        for number in range(0, 200, 20):
            for offset in range(20):
                producer.send_nowait(b"%d" % (number + offset))
            await producer.flush()
        assert line.connections == 4
    assert bodies(await drained(connection, address, 200)) == list(range(200))
    assert await look(connection, address) == []


async def test_a_resend_is_recognised_by_a_broker_that_was_killed_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Line.to(server) as line, homing.connect(line.url) as other, other.session() as session:
            producer = session.producer("orders")
            await producer.send(b"0")
            line.to_client = lambda frame: "cut" if frame[0] == Op.CONFIRM else "pass"
            confirmation = producer.send_nowait(b"1")
            await until("the confirm was cut and the client is back", lambda: _is(line.connections >= 2))
            line.to_client = lambda frame: "pass"
            server.kill()
            server.start()
            await confirmation
            await producer.send(b"2")
        async with homing.connect(server.url) as connection:
            assert bodies(await look(connection, "orders")) == [0, 1, 2]


async def test_a_duplicate_id_is_taken_once_for_an_address_also_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, journal={"duplicate-ids-per-address": 3}) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", 1, 2, duplicate_id="a")
            await send(connection, "elsewhere", 3, duplicate_id="a")
            assert bodies(await look(connection, "orders")) == [1]
            assert bodies(await look(connection, "elsewhere")) == [3]
        server.kill()
        async with homing.connect(server.start().url) as connection:
            await send(connection, "orders", 4, duplicate_id="a")
            assert bodies(await look(connection, "orders")) == [1]
            for each in "bcd":
                await send(connection, "orders", 5, duplicate_id=each)
            await send(connection, "orders", 6, duplicate_id="a")
            assert bodies(await look(connection, "orders")) == [1, 5, 5, 5, 6], "the oldest is forgotten beyond the number kept"


async def test_nothing_overtakes_a_refused_message(connection: Connection) -> None:
    address = name("full")
    async with connection.session() as session:
        producer = session.producer(address)
        confirmations = [producer.send_nowait(b"%d" % number) for number in range(6)]
        results = await asyncio.gather(*confirmations, return_exceptions=True)
        codes = [each.code if isinstance(each, SendError) else None for each in results]
        assert codes == [None, None, None, "queue-full", "not-sent-after-refusal", "not-sent-after-refusal"]
        await drained(connection, address, 2)
        await producer.send(b"7")
    assert bodies(await look(connection, address)) == [2, 7]


async def test_a_refused_send_does_not_advance_the_mark(connection: Connection, server: Server) -> None:
    address = name("full")
    await send(connection, address, 1, 2)
    async with Raw.connect(server) as raw:
        assert (await raw.ask(Op.PRODUCER, 1, address))[2] == {"mark": 0}
        await raw.write(Op.SEND, 1, 1, [[b"10"], [b"11"], [b"12"]])
        confirm = await raw.read(Op.CONFIRM)
        assert (confirm[2], confirm[3][:2]) == (1, [2, "queue-full"])
        await drained(connection, address, 1)
        await raw.write(Op.SEND, 1, 4, [[b"13"]])  # does not begin at the refused number: passed over
        await raw.write(Op.SEND, 1, 2, [[b"14"]])
        assert (await raw.read(Op.CONFIRM))[2] == 2
    assert bodies(await look(connection, address)) == [2, 10, 14]


async def test_after_a_clean_restart_everything_stands_where_it_stood(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", *range(10), properties={"k": "v"}, priority=6)
            await send(connection, "later", 1, delay_ms=3_600_000)
            await send(connection, "mortal", 1, ttl_ms=3_600_000)
            await fail(connection, "orders", 2, delay_ms=3_600_000, reason="no")
            await fail(connection, "orders", 1, retryable=False)
            names = ("orders", "later", "mortal", "DLQ.orders")
            before = [await settled(connection, each, count) for each, count in zip(names, (9, 1, 1, 1), strict=True)]
        assert server.stop() == 0
        async with homing.connect(server.start().url) as connection:
            after = [await settled(connection, each, count) for each, count in zip(names, (9, 1, 1, 1), strict=True)]
        for each in [entry for entries in (*before, *after) for entry in entries]:
            del each["assigned"]  # written down with the next change of the others
        assert after == before


async def test_persist_before_keeps_the_count_of_everything_that_left(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        connection = await homing.connect(server.url, reconnect=False)
        await send(connection, "persisted", 1, 2, 3)
        consumer = connection.session(AckMode.INDIVIDUAL).consumer("persisted")
        assert [each.delivery_count for each in await receive_all(consumer, 3)] == [1, 1, 1]
        server.kill()
        with contextlib.suppress(homing.CloseIncomplete):  # unless the loss was noticed before
            await connection.close()
        async with homing.connect(server.start().url) as connection:
            assert [each.delivery_count for each in await drained(connection, "persisted", 3)] == [2, 2, 2]
