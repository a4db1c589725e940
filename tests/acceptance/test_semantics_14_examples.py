"""docs/semantics.md, section 14: the worked examples, each by its number, against a running broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homing import client
from homing.client import AckMode, Connection, RedeliveryPolicy
from tests.acceptance.semantics_support import (
    bodies,
    consumers,
    consuming,
    fail,
    fail_quickly,
    history,
    holds,
    look,
    name,
    outcomes,
    queue,
    receive,
    receive_all,
    recorded_delay,
    running,
    send,
    settled,
    totals,
    until,
)
from tests.process import HomingCommand, Server

ALL = {"max-redelivery-records": -1}
SETTINGS: dict[str, Any] = {
    "one.#": {"redelivery-delay": 5000, "redelivery-delay-multiplier": 2, "max-redelivery-delay": 15_000},
    "scaled.#": {"redelivery-delay": 50, "redelivery-delay-multiplier": 2, "max-redelivery-delay": 150},
    "two.#": {
        "redelivery-delay": 1000,
        "redelivery-delay-multiplier": 1.0,
        "max-redelivery-delay": 15_000,
        "redelivery-collision-avoidance-factor": 0.5,
    },
    "three.#": ALL,
    "three.settings": {"redelivery-delay": 1, "redelivery-delay-multiplier": 2, "max-redelivery-delay": 1000, "max-delivery-attempts": 11},
    "five.#": {"max-delivery-attempts": 3},
    "five.none.#": {"dead-letter-address": None},
    "five.none.drop.#": {"without-dead-letter-address": "drop"},
    "five.endless.#": {"max-delivery-attempts": -1},
    "eight.persisted.#": {"persist-delivery-count-before-delivery": True},
}


async def test_example_1_a_delay_that_doubles_up_to_its_cap(connection: Connection) -> None:
    delays = []
    for times in range(1, 6):
        address = name("one")
        delays.append(await recorded_delay(connection, await fail_quickly(connection, address, times)))
        (waiting,) = await settled(connection, address)
        assert (waiting["state"], waiting["failed"]) == ("scheduled", times)
    assert delays == [5000, 10_000, 15_000, 15_000, 15_000]


async def test_example_1_in_real_time(connection: Connection) -> None:
    """The same a hundred times faster: never early, and recorded exactly."""
    address, loop = name("scaled"), asyncio.get_running_loop()
    await send(connection, address, b"x")
    waits, failed_at = [], 0.0
    async with consuming(connection, address) as consumer:
        for _ in range(5):
            message = await receive(consumer)
            waits.append(loop.time() - failed_at)
            failed_at = loop.time()
            await message.nack()
        message = await receive(consumer)
        await message.acknowledge(confirm=True)
    delays = [attempt["delay_ms"] for attempt in (await history(connection, message.message_id))["attempts"]]
    assert delays == [50, 100, 150, 150, 150]
    # The broker reckons in whole milliseconds of a clock of its own.
    assert all(wait >= delay / 1000 - 0.002 for wait, delay in zip(waits[1:], delays, strict=False)), waits


async def test_example_2_jitter_is_drawn_anew_and_stays_within_its_part(connection: Connection) -> None:
    """The exact draws are a unit test's; here: both signs, never beyond the factor, never compounding."""
    address, count = name("two"), 60
    await send(connection, address, *range(count))
    async with consuming(connection, address) as consumer:
        for message in await receive_all(consumer, count):
            await message.nack()
    delays = [await recorded_delay(connection, each["message_id"]) for each in await settled(connection, address, count)]
    assert all(500 <= delay <= 1500 for delay in delays)
    assert min(delays) < 1000 < max(delays)
    third = await recorded_delay(connection, await fail_quickly(connection, name("two"), 9))
    assert 500 <= third <= 1500


DOUBLING = RedeliveryPolicy(maximum_redeliveries=10, initial_redelivery_delay_ms=1, use_exponential_back_off=True, back_off_multiplier=2)


async def test_example_3_ten_redeliveries_within_a_second(connection: Connection, server: Server, homing: HomingCommand) -> None:
    address = name("three")
    await send(connection, address, b"x")
    async with consuming(connection, address, redelivery_policy=DOUBLING) as consumer:
        for attempt in range(1, 12):
            message = await receive(consumer)
            assert message.delivery_count == attempt
            await message.nack()
        await holds(connection, f"DLQ.{address}", messages=1)
    delays = [attempt["delay_ms"] for attempt in (await history(connection, message.message_id))["attempts"]]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, None]
    assert sum(delays[:-1]) <= 1100
    explained = await asyncio.to_thread(homing.json, "policy", "explain", "three.settings", url=server.url)
    assert explained["max_total_ms"] <= 1100
    assert "gone within 1.1 s" in explained["warning"]


async def test_example_4_the_default_policy_delivers_seven_times(connection: Connection) -> None:
    address = name("four")
    await send(connection, address, b"x")
    async with consuming(connection, address, redelivery_policy=RedeliveryPolicy()) as consumer:
        for attempt in range(1, 8):
            message = await receive(consumer)
            assert message.delivery_count == attempt
            await message.nack(delay_ms=0)
        await holds(connection, f"DLQ.{address}", messages=1)
    assert await outcomes(connection, message.message_id) == ["dead-lettered"]
    assert await recorded_delay(connection, await fail_quickly(connection, name("four"), 1, redelivery_policy=RedeliveryPolicy())) == 1000


async def test_example_4_no_redelivery_is_one_delivery(connection: Connection) -> None:
    address = name("four")
    await send(connection, address, b"x")
    async with consuming(connection, address, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0)) as consumer:
        await (await receive(consumer)).nack()
    (dead,) = await settled(connection, f"DLQ.{address}")
    assert dead["hops"][0]["delivery_count"] == 1


async def test_example_4_minus_one_is_for_ever(connection: Connection) -> None:
    address = name("four")
    await send(connection, address, b"x")
    policy = RedeliveryPolicy(maximum_redeliveries=-1, initial_redelivery_delay_ms=0, redelivery_delay_ms=0)
    async with consuming(connection, address, redelivery_policy=policy) as consumer:
        for attempt in range(1, 41):
            message = await receive(consumer)
            assert message.delivery_count == attempt
            await message.nack()
    (still,) = await settled(connection, address)
    assert (still["failed"], still["state"]) == (40, "ready")


async def test_example_5_the_third_failure_moves_it(connection: Connection) -> None:
    address = name("five")
    await send(connection, address, b"x")
    await fail(connection, address, 2)
    assert (await settled(connection, address))[0]["failed"] == 2
    await fail(connection, address, 1)
    await holds(connection, f"DLQ.{address}", messages=1)
    assert (await queue(connection, address))["messages"] == 0


async def test_example_5_without_an_address_it_is_parked(connection: Connection, server: Server) -> None:
    address = name("five.none")
    await send(connection, address, b"x")
    await fail(connection, address, 3)
    await holds(connection, address, messages=1, parked=1)
    assert totals(server, address) | {"sent": 1, "failed": 3, "dropped": 0, "dead_lettered": 0} == totals(server, address)


async def test_example_5_with_drop_it_is_removed_and_counted(connection: Connection, server: Server) -> None:
    address = name("five.none.drop")
    await send(connection, address, b"x")
    messages = await fail(connection, address, 3)
    await holds(connection, address, messages=0)
    assert await outcomes(connection, messages[0].message_id) == ["dropped"]
    assert totals(server, address) | {"sent": 1, "failed": 3, "dropped": 1, "dead_lettered": 0} == totals(server, address)


async def test_example_5_minus_one_never_moves_it(connection: Connection) -> None:
    address = name("five.endless")
    await send(connection, address, b"x")
    await fail(connection, address, 30)
    assert (await settled(connection, address))[0]["failed"] == 30


async def test_examples_6_and_7_a_dead_letter_queue_for_each_and_one_that_retries_for_ever(tmp_path: Path) -> None:
    everywhere = {"max-delivery-attempts": 3, "dead-letter-queue-prefix": "", "dead-letter-queue-suffix": ".DLQ"}
    with running(tmp_path, {"#": everywhere, "patient": {"max-delivery-attempts": -1}}) as server:
        async with client.connect(server.url) as connection:
            for at, address in enumerate(("stocks", "orders")):
                await send(connection, address, *range(10 * at, 10 * at + 5))
                await fail(connection, address, 15)
            for at, address in enumerate(("stocks", "orders")):
                dead = await settled(connection, f"{address}.DLQ", 5)
                assert sorted(bodies(dead)) == list(range(10 * at, 10 * at + 5))
                assert {each["properties"]["_AMQ_ORIG_ADDRESS"] for each in dead} == {address}
            await send(connection, "patient", b"x")
            await fail(connection, "patient", 20)
            assert (await settled(connection, "patient"))[0]["failed"] == 20
            assert await look(connection, "patient.DLQ") == []


@pytest.mark.parametrize(("address", "delivery_count"), [("eight.plain", 1), ("eight.persisted", 2)])
async def test_example_8_a_crash_between_delivery_and_acknowledgement(tmp_path: Path, address: str, delivery_count: int) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection, consuming(connection, address) as consumer:
            await send(connection, address, b"x")
            assert (await receive(consumer)).delivery_count == 1
            server.kill()
            server.start()
            again = await receive(consumer)
            assert (again.delivery_count, again.redelivered) == (delivery_count, delivery_count > 1)
            await again.acknowledge(confirm=True)


async def test_example_9_with_a_large_prefetch_one_takes_all(connection: Connection) -> None:
    address = name("nine")
    await send(connection, address, *range(1000))
    async with consuming(connection, address) as first:
        await holds(connection, address, delivering=1000)
        async with consuming(connection, address):
            shown = await consumers(connection, address)
            assert sorted(each["unsettled"] for each in shown) == [0, 1000]
            for message in await receive_all(first, 1000):
                await message.acknowledge()
            await holds(connection, address, messages=0)


async def test_example_9_with_prefetch_1_both_work(connection: Connection) -> None:
    address = name("nine")
    await send(connection, address, *range(42))
    async with consuming(connection, address, prefetch=1) as first, consuming(connection, address, prefetch=1) as second:
        for _ in range(20):
            for consumer in (first, second):
                await (await receive(consumer)).acknowledge()
        await holds(connection, address, messages=2)


async def test_example_9_with_prefetch_1_a_slow_one_holds_up_nobody(connection: Connection) -> None:
    address = name("nine")
    await send(connection, address, *range(40))
    async with consuming(connection, address, prefetch=1) as slow, consuming(connection, address, prefetch=1) as quick:
        held = await receive(slow)
        for _ in range(39):
            await (await receive(quick)).acknowledge()
        await held.acknowledge()
        await holds(connection, address, messages=0)


@pytest.mark.parametrize("durable", [True, False])
async def test_example_10_at_the_store_limit_producers_wait_and_service_resumes(tmp_path: Path, durable: bool) -> None:
    limit, body, count = 256 * 1024, b"x" * 10_000, 800
    # What is not durable comes to its limit on disk when half of memory is used.
    limits = {"memory-limit": "16MiB" if durable else "8MiB", "store-limit" if durable else "temp-limit": limit}
    with running(tmp_path, broker=limits) as server:
        async with client.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer("ten", max_unconfirmed=count)
            for _ in range(count):
                producer.send_nowait(body, durable=durable)

            async def blocked() -> str | None:
                reason = producer.blocked_reason
                # Before, the disk may have been behind.
                return reason if reason and reason.startswith("store-limit" if durable else "temp-limit") else None

            await until("the producer is told to wait", blocked)
            assert producer.unconfirmed > 0
            consumer = session.consumer("ten", prefetch=10)
            for _ in range(count):
                await (await receive(consumer)).acknowledge()
            await producer.flush()
            await holds(connection, "ten", messages=0)
