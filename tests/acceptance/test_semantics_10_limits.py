"""docs/semantics.md, section 10: expiry, length, flow control."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homing import client
from homing.client import AckMode, Connection, Producer, SendError
from tests.acceptance.semantics_support import (
    bodies,
    consuming,
    drained,
    fail,
    history,
    holds,
    look,
    name,
    outcomes,
    queue,
    receive,
    receive_all,
    running,
    send,
    settled,
    totals,
    until,
)
from tests.pauses import tried_again
from tests.process import HomingCommand, Server

EXPIRING = {"expiry-address": "GONE", "auto-create-expiry-resources": True}
SETTINGS: dict[str, Any] = {
    "mortal.#": EXPIRING,
    "mortal.hour.#": {"message-ttl": "1h"},
    "mortal.bounded.#": {"min-ttl": "10m", "max-ttl": "20m"},
    "mortal.never.#": {"message-ttl": "1h", "no-expiry": True},
    "mortal.lost.#": {"dead-letter-address": "absent", "auto-create-dead-letter-resources": False, "max-delivery-attempts": 1},
    "idle.#": {"expires": 300},
    "head.#": {"max-length": 3, "overflow": "drop-head"},
    "head.meant.#": {"dead-letter-address": "DLA"},
    "reject.#": {"max-length": 3, "overflow": "reject-publish"},
    "dlx.#": {"max-length": 3, "overflow": "reject-publish-dlx", "dead-letter-address": "DLA"},
    "block.#": {"max-length": 3, "overflow": "block"},
    "bytes.#": {"max-length-bytes": 1000, "overflow": "reject-publish"},
    "plain.mortal": {},
}


# -- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "ttl_ms", "lives_ms"),
    [
        ("mortal", None, None),
        ("mortal", 300_000, 300_000),
        ("mortal.hour", None, 3_600_000),
        ("mortal.hour", 300_000, 300_000),
        ("mortal.hour", 5_400_000, 3_600_000),
        ("mortal.bounded", 60_000, 600_000),
        ("mortal.bounded", 5_400_000, 1_200_000),
        ("mortal.bounded", None, 1_200_000),
        ("mortal.never", 300_000, None),
    ],
)
async def test_how_long_a_message_lives(connection: Connection, address: str, ttl_ms: int | None, lives_ms: int | None) -> None:
    source = name(address)
    await send(connection, source, 1, **({} if ttl_ms is None else {"ttl_ms": ttl_ms}))
    (found,) = await look(connection, source)
    if lives_ms is None:
        assert found["expires_at_ms"] is None
    else:  # between being sent and entering its queue a moment passes, or a pause of the machine
        assert lives_ms <= found["expires_at_ms"] - found["sent_at_ms"] < lives_ms + 60_000


async def test_a_queue_may_bring_its_own_time_to_live(connection: Connection) -> None:
    address = name("mortal")
    await connection.call("create-queue", queue=address, message_ttl_ms=150)
    await send(connection, address, 1)
    (gone,) = await settled(connection, f"EXP.{address}")
    assert (gone["hops"][0]["reason"], gone["expires_at_ms"], gone["failed"], gone["delivery_count"]) == ("expired", None, 0, 0)


@tried_again
async def test_expired_ones_leave_wherever_they_stand(connection: Connection) -> None:
    ready, waiting, parked = name("mortal"), name("mortal"), name("mortal.lost")
    for address in (ready, waiting, parked):
        await send(connection, address, 1, ttl_ms=700)
    await fail(connection, waiting, 1, delay_ms=3_600_000)
    await fail(connection, parked, 1)
    for address in (ready, waiting, parked):
        (gone,) = await settled(connection, f"EXP.{address}")
        assert gone["hops"][0]["reason"] == "expired"
        assert gone["hops"][0]["at_ms"] >= gone["hops"][0]["expires_at_ms"]
        assert await look(connection, address) == []


@tried_again
async def test_without_an_expiry_address_they_are_removed_and_counted(connection: Connection) -> None:
    address = name("plain")
    await send(connection, address, 1, ttl_ms=100)
    message_id = (await look(connection, address))[0]["message_id"]
    await holds(connection, address, messages=0)
    assert await outcomes(connection, message_id) == ["expired"]
    assert "queue_id" not in await queue(connection, f"DLQ.{address}")


async def expire(connection: Connection, expires_at_ms: int) -> None:
    async def is_over() -> bool:
        return connection.now_ms() > expires_at_ms + 20

    await until("the message's time is over", is_over)


@tried_again
async def test_while_it_is_being_delivered_an_acknowledgement_wins(connection: Connection) -> None:
    address = name("mortal")
    await send(connection, address, 1, ttl_ms=400)
    async with consuming(connection, address) as consumer:
        message = await receive(consumer)
        await expire(connection, message.expires_at_ms)
        await message.acknowledge(confirm=True)
    assert await look(connection, address) == await look(connection, f"EXP.{address}") == []


@tried_again
async def test_on_return_an_expired_one_takes_the_expiry_path_uncounted(connection: Connection) -> None:
    address = name("mortal")
    await send(connection, address, 1, ttl_ms=400)
    async with consuming(connection, address) as consumer:
        message = await receive(consumer)
        await expire(connection, message.expires_at_ms)
        await message.nack()
        (gone,) = await settled(connection, f"EXP.{address}")
    assert (gone["hops"][0]["attempts"], gone["hops"][0]["delivery_count"]) == (0, 0)
    assert (await history(connection, message.message_id))["attempts"] == []


@tried_again
async def test_a_message_that_expires_in_the_clients_window_is_not_handed_out(connection: Connection) -> None:
    address = name("mortal")
    await send(connection, address, 1, ttl_ms=200)
    expires_at_ms = connection.now_ms() + 200  # at the latest
    await send(connection, address, 2)
    async with consuming(connection, address) as consumer:
        await holds(connection, address, delivering=2)
        await expire(connection, expires_at_ms)
        assert (await receive(consumer)).body == b"2"
        await settled(connection, f"EXP.{address}")


async def test_an_idle_queue_goes_with_its_messages_and_without_dead_letters(connection: Connection) -> None:
    address, used = name("idle"), name("idle")
    for each in (address, used):
        await connection.call("create-queue", queue=each)
        await send(connection, each, 1)
    async with consuming(connection, used):

        async def gone() -> bool:
            return "queue_id" not in await queue(connection, address)

        await until("the idle one is deleted", gone)
        assert "queue_id" in await queue(connection, used)
    for letters in (f"DLQ.{address}", f"EXP.{address}"):
        assert "queue_id" not in await queue(connection, letters)


# -- length ----------------------------------------------------------------------------------------------------------


async def test_only_what_is_pending_counts_for_the_length(connection: Connection) -> None:
    address = name("reject")
    await send(connection, address, 1, 2, 3)
    async with consuming(connection, address, prefetch=2) as consumer:
        await holds(connection, address, delivering=2)
        await send(connection, address, 4, 5)
        with pytest.raises(SendError) as full:
            await send(connection, address, 6)
        assert full.value.code == "queue-full"
        await (await receive(consumer)).acknowledge()
    assert len(await look(connection, address)) == 4


async def test_drop_head_dead_letters_the_oldest_of_the_lowest_priority(connection: Connection) -> None:
    address = name("head.meant")
    await send(connection, address, 1, priority=9)
    await send(connection, address, 2, 3, priority=1)
    await send(connection, address, 4)
    (dropped,) = await settled(connection, f"DLQ.{address}")
    assert (dropped["body"], dropped["hops"][0]["reason"], dropped["failed"]) == (b"2", "maxlen", 0)
    assert bodies(await look(connection, address)) == [1, 4, 3]


async def test_drop_head_removes_and_counts_where_nobody_named_an_address(connection: Connection, server: Server) -> None:
    address = name("head")
    await send(connection, address, *range(5))
    assert bodies(await settled(connection, address, 3)) == [2, 3, 4]
    assert await look(connection, f"DLQ.{address}") == []
    assert totals(server, address) | {"sent": 5, "dropped": 2, "dead_lettered": 0} == totals(server, address)


async def test_drop_head_holds_for_transactions_too(connection: Connection) -> None:
    address = name("head.meant")
    async with connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer(address)
        for number in range(5):
            await producer.send(b"%d" % number)
        await session.commit()
    assert bodies(await settled(connection, address, 3)) == [2, 3, 4]
    assert bodies(await settled(connection, f"DLQ.{address}", 2)) == [0, 1]


@pytest.mark.parametrize("overflow", ["reject", "dlx"])
async def test_reject_publish_refuses_the_newest(connection: Connection, overflow: str) -> None:
    address = name(overflow)
    await send(connection, address, 1, 2, 3)
    with pytest.raises(SendError) as full:
        await send(connection, address, 4)
    assert full.value.code == "queue-full"
    assert bodies(await look(connection, address)) == [1, 2, 3]
    letters = await settled(connection, f"DLQ.{address}") if overflow == "dlx" else await look(connection, f"DLQ.{address}")
    assert bodies(letters) == ([4] if overflow == "dlx" else [])


async def test_max_length_bytes(connection: Connection) -> None:
    address = name("bytes")
    await send(connection, address, b"x" * 600, b"y" * 400)
    with pytest.raises(SendError) as full:
        await send(connection, address, b"z")
    assert full.value.code == "queue-full"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("{max-length: 5, overflow: pages}", "page, block"),
        ("{max-length: 5, overflow: drop-head}", "drop-head"),
    ],
)
async def test_what_overflow_cannot_be(tmp_path: Path, homing: HomingCommand, settings: str, word: str) -> None:
    """Paging is not there yet; dropping dead letters unseen must be asked for."""
    config = tmp_path / "broker.yaml"
    config.write_text(f"address-settings:\n  DLA: {settings}\n")
    done = await asyncio.to_thread(homing, "config", "check", config)
    assert done.returncode == 5
    assert word in done.stderr


# -- flow control ----------------------------------------------------------------------------------------------------


async def blocked(producer: Producer) -> str:
    async def reported() -> str | None:
        return producer.blocked_reason

    reason = await until("the producer is told to wait", reported)
    assert isinstance(reason, str)
    return reason


async def test_a_full_queue_makes_producers_wait_and_goes_on_by_itself(connection: Connection) -> None:
    address, count = name("block"), 50
    await send(connection, address, 1)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        producer = session.producer(address)
        for number in range(count):
            producer.send_nowait(b"%d" % number)
        reason = await blocked(producer)
        assert reason.startswith(f"queue-full: {address}")
        assert producer.unconfirmed > 0
        consumer = session.consumer(address, prefetch=1)
        for _ in range(count + 1):
            await (await receive(consumer)).acknowledge()
        await producer.flush()
    await holds(connection, address, messages=0)


async def test_at_the_memory_limit_acknowledgements_pass_a_blocked_send_on_the_same_connection(tmp_path: Path) -> None:
    count, body = 600, b"x" * 10_000
    with running(tmp_path, broker={"memory-limit": "2MiB"}) as server:
        async with client.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer("orders", prefetch=50)
            producer = session.producer("orders", max_unconfirmed=count)
            for _ in range(count):
                producer.send_nowait(body, durable=False)
            held = await receive_all(consumer, 50)
            assert (await blocked(producer)).startswith("memory-limit")
            used = (await connection.call("statistics"))["limits"]["memory-limit"]["used"]
            assert used < 3 * 1024 * 1024, "what a blocked producer can still send is bounded; the rest is on disk"
            for message in held:
                await message.acknowledge(confirm=True)
            for _ in range(count - 50):
                await (await receive(consumer)).acknowledge()
            await producer.flush()
            await holds(connection, "orders", messages=0)


async def test_others_send_on_while_one_queue_is_full(connection: Connection) -> None:
    full, other = name("block"), name()
    await send(connection, full, 1)
    async with connection.session() as session:
        waiting = session.producer(full)
        for number in range(5):
            waiting.send_nowait(b"%d" % number)
        await blocked(waiting)
        await send(connection, other, *range(100))
        assert len(await drained(connection, other, 100)) == 100
        await connection.call("purge", queue=full)
        while waiting.unconfirmed:
            await connection.call("purge", queue=full)
            await asyncio.sleep(0.01)
        await waiting.flush()
