"""docs/semantics.md, section 1: addresses, queues, identity."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode, CallError, Connection, ConsumerError, SendError
from tests.acceptance.semantics_support import (
    Raw,
    bodies,
    consuming,
    drained,
    holds,
    look,
    name,
    queue,
    receive,
    receive_all,
    running,
    send,
    settled,
    until,
)
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "closed.#": {"auto-create-queues": False, "auto-create-addresses": False},
    "brief.#": {"auto-delete-queues-delay": 200},
    "news.#": {"default-address-routing-type": "multicast"},
}


async def declare(connection: Connection, **arguments: Any) -> dict[str, Any]:
    made: dict[str, Any] = await connection.call("create-queue", **arguments)
    return made


# -- routing ---------------------------------------------------------------------------------------------------------


async def test_anycast_goes_to_one_of_the_bound_queues_fairly(connection: Connection) -> None:
    address = name()
    for each in ("a", "b", "c"):
        await declare(connection, queue=f"{address}.{each}", address=address, routing_type="anycast")
    await send(connection, address, *range(30))
    found = [bodies(await look(connection, f"{address}.{each}")) for each in ("a", "b", "c")]
    assert [len(each) for each in found] == [10, 10, 10]
    assert sorted(number for each in found for number in each) == list(range(30))


async def test_multicast_goes_to_all_whose_selector_matches(connection: Connection) -> None:
    address = name()
    await declare(connection, queue=f"{address}.all", address=address, routing_type="multicast")
    await declare(connection, queue=f"{address}.eu", address=address, routing_type="multicast", selector="region = 'eu' AND size > 2")
    await send(connection, address, 1, properties={"region": "eu", "size": 3})
    await send(connection, address, 2, properties={"region": "eu", "size": 1})
    await send(connection, address, 3, properties={"region": "us", "size": 9})
    assert bodies(await look(connection, f"{address}.all")) == [1, 2, 3]
    assert bodies(await look(connection, f"{address}.eu")) == [1]
    await drained(connection, f"{address}.all", 3)
    assert bodies(await drained(connection, f"{address}.eu", 1)) == [1]


async def test_queue_names_are_unique(connection: Connection) -> None:
    address = name()
    made = await declare(connection, queue=address)
    assert (await declare(connection, queue=address))["queue_id"] == made["queue_id"]
    with pytest.raises(CallError) as taken:
        await declare(connection, queue=address, address=name())
    assert taken.value.code == "queue-exists"


async def test_names_that_look_alike_are_two_where_their_bytes_are(connection: Connection) -> None:
    of = name()
    one, two = f"{of}.caf\N{LATIN SMALL LETTER E WITH ACUTE}", f"{of}.cafe\N{COMBINING ACUTE ACCENT}"
    numbers = {(await declare(connection, queue=each))["queue_id"] for each in (one, two, one)}
    assert len(numbers) == 2
    await connection.call("set-settings", layers={one: {"max-length": 5}})
    async with connection.session() as session:
        await session.producer(one).send(b"1")
    assert [len(bodies(await look(connection, each))) for each in (one, two)] == [1, 0]
    found = [await connection.call("explain", address=each) for each in (one, two)]
    assert [next(row["value"] for row in each["settings"] if row["key"] == "max-length") for each in found] == [5, None]


async def test_a_consumers_name_is_a_queue_first_then_an_address(connection: Connection) -> None:
    address, both = name(), name()
    await declare(connection, queue=f"{address}.only", address=address)
    async with consuming(connection, address) as consumer:
        assert consumer.queue == f"{address}.only"
    await declare(connection, queue=both, address=address)
    await declare(connection, queue=f"{both}.other", address=both)
    async with consuming(connection, both) as consumer:
        assert consumer.queue == both, "it is a queue, although an address is called so too"
    async with consuming(connection, f"{both}::{both}.other") as consumer:
        assert consumer.queue == f"{both}.other"
    with pytest.raises(ConsumerError):
        async with consuming(connection, f"{both}::{address}.only"):
            pass


async def test_an_address_and_queue_make_themselves_as_anycast(connection: Connection) -> None:
    sent, read = name(), name()
    await send(connection, sent, 1)
    async with consuming(connection, read):
        for each in (sent, read):
            made = await queue(connection, each)
            assert (made["address"], made["routing_type"], made["auto_created"]) == (each, "anycast", True)


async def test_auto_create_can_be_off(connection: Connection) -> None:
    with pytest.raises(SendError) as no_address:
        await send(connection, name("closed"), 1)
    assert no_address.value.code == "no-such-address"
    with pytest.raises(ConsumerError) as no_queue:
        async with consuming(connection, name("closed")):
            pass
    assert no_queue.value.code == "no-such-queue"


async def test_multicast_without_a_queue_reaches_nobody(connection: Connection) -> None:
    address = name("news")
    await send(connection, address, 1)
    await declare(connection, queue=f"{address}.later", address=address, routing_type="multicast")
    await send(connection, address, 2)
    assert bodies(await look(connection, f"{address}.later")) == [2]


async def test_an_auto_created_queue_goes_when_nobody_uses_it(connection: Connection) -> None:
    address, declared, occupied, named = name("brief"), name("brief"), name("brief"), name("brief")
    await declare(connection, queue=declared)
    await send(connection, occupied, 1)
    await send(connection, address, 1)
    old = (await queue(connection, address))["queue_id"]
    async with connection.session() as session:
        await session.producer(named).send(b"x")
        await drained(connection, named, 1)
        await drained(connection, address, 1)

        async def gone() -> bool:
            return "queue_id" not in await queue(connection, address)

        await until("the empty one is swept away", gone)
        for entries in (declared, occupied, named):
            assert "queue_id" in await queue(connection, entries)
    await send(connection, address, 2)
    assert (await queue(connection, address))["queue_id"] > old, "made again, under a new number"


# -- identity --------------------------------------------------------------------------------------------------------


async def test_numbers_are_never_used_twice(tmp_path: Path) -> None:
    """Also not those of messages that were consumed before they were written, nor after kills; the broker keeps its own."""
    ids: list[int] = []
    queues: list[int] = []
    brokers = set()
    with running(tmp_path) as server:
        for _ in range(2):
            async with homing.connect(server.url) as connection:
                brokers.add(connection.broker_id)
                async with connection.session(AckMode.AUTO) as session:
                    consumer, producer = session.consumer("quick"), session.producer("quick")
                    await consumer.ready()
                    for number in range(20):
                        producer.send_nowait(b"%d" % number)
                    ids += [message.message_id for message in await receive_all(consumer, 20)]
                    await producer.flush()
                await send(connection, "kept", 1)
                ids.append((await look(connection, "kept"))[-1]["message_id"])
                queues.append((await declare(connection, queue="passing"))["queue_id"])
                await connection.call("delete-queue", queue="passing")
            server.kill()
            if len(queues) == 1:
                server.start()
    assert len(set(ids)) == len(ids)
    assert all(0 < each < 1 << 63 for each in ids)
    assert len(set(queues)) == len(queues)
    assert len(brokers) == 1


async def test_an_acknowledgement_names_a_delivery_not_a_message(connection: Connection, server: Server) -> None:
    address = name()
    await send(connection, address, 1)
    async with Raw.connect(server) as raw:
        await raw.subscribe(1, address)
        await raw.deliveries(1)
        await raw.ack(1, AckType.REDELIVERED, [1, 1])
        ((tag, _),) = await raw.deliveries(1)
        assert tag == 2
        assert await raw.ack(1, AckType.INDIVIDUAL, [1, 1]) == {"not_held": [1, 1]}
        assert len(await look(connection, address)) == 1
        assert await raw.ack(1, AckType.INDIVIDUAL, [2, 2]) == {"not_held": []}
    assert await look(connection, address) == []


async def test_what_changes_lies_over_the_message(connection: Connection) -> None:
    """Selectors and consumers see counts, expiry and provenance of this entry; the message keeps what it was sent with."""
    address = name()
    await send(connection, address, 1, properties={"colour": "red"})
    async with consuming(connection, address) as consumer:
        await (await receive(consumer)).nack()
    async with consuming(connection, address, selector="JMSXDeliveryCount = 2 AND colour = 'red'") as consumer:
        await (await receive(consumer)).nack(retryable=False)
    async with consuming(connection, f"DLQ.{address}", selector=f"_AMQ_ORIG_QUEUE = '{address}' AND colour = 'red'") as consumer:
        message = await receive(consumer)
        assert message.properties["_AMQ_ORIG_ADDRESS"] == address
        await message.acknowledge(confirm=True)


# -- queue options ---------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_not_durable_is_gone_after_a_restart_and_a_durable_one_stays(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with homing.connect(server.url) as connection:
            await declare(connection, queue="firm", exclusive=True, max_length=7)
            await declare(connection, queue="fleeting", durable=False)
            for each in ("firm", "fleeting"):
                await send(connection, each, 1)
            await connection.call("pause", queue="firm")
        server.kill()
        async with homing.connect(server.start().url) as connection:
            firm = await queue(connection, "firm")
            assert (firm["messages"], firm["paused"], firm["options"]) == (1, True, {"exclusive": True, "max_length": 7})
            assert "queue_id" not in await queue(connection, "fleeting")


async def test_exclusive_and_max_consumers(connection: Connection, server: Server) -> None:
    alone, two = name(), name()
    await declare(connection, queue=alone, exclusive=True)
    await declare(connection, queue=two, max_consumers=2)
    async with homing.connect(server.url) as other, contextlib.AsyncExitStack() as stack:
        for each in (alone, two, two):
            await stack.enter_async_context(consuming(connection, each))
        for full, code in ((alone, "queue-exclusive"), (two, "too-many-consumers")):
            with pytest.raises(ConsumerError) as refused:
                async with consuming(other, full):
                    pass
            assert refused.value.code == code


async def test_priority_is_strict_and_within_it_order_is_kept(connection: Connection) -> None:
    address = name()
    for number, priority in enumerate((4, 0, 9, 4, 9, 1, None)):
        await send(connection, address, number, priority=priority)
    assert bodies(await drained(connection, address, 7)) == [2, 4, 0, 3, 6, 5, 1]


async def test_a_paused_queue_takes_in_and_gives_nothing_out(connection: Connection, server: Server) -> None:
    address = name()
    await declare(connection, queue=address)
    await connection.call("pause", queue=address)
    async with Raw.connect(server) as raw:
        await raw.subscribe(1, address)
        await send(connection, address, 1)
        assert await raw.no_delivery()
        assert (await queue(connection, address))["pending"] == 1
        await connection.call("resume", queue=address)
        await raw.deliveries(1)
        await raw.ack(1, AckType.INDIVIDUAL, [1, 1])


async def test_browsing_takes_nothing(connection: Connection) -> None:
    address = name()
    await send(connection, address, *range(25), properties={"k": "v"})
    async with connection.session() as session:
        seen = [each async for each in session.browser(address, page=10)]
    assert bodies(seen) == list(range(25))
    assert {(each["state"], each["delivery_count"], each["properties"]["k"]) for each in seen} == {("ready", 0, "v")}
    assert [each.delivery_count for each in await drained(connection, address, 25)] == [1] * 25


async def test_a_deleted_queue_tells_its_consumers(connection: Connection) -> None:
    address = name()
    await send(connection, address, 1)
    async with connection.session() as session:
        consumer = session.consumer(address, prefetch=0)
        await consumer.ready()
        assert await connection.call("delete-queue", queue=address) == {"messages": 1}
        with pytest.raises(ConsumerError) as ended:
            await consumer.receive(20_000)
        assert ended.value.code == "queue-deleted"


async def test_a_scheduled_send_comes_at_its_time(connection: Connection) -> None:
    address, loop = name(), asyncio.get_running_loop()
    await send(connection, address, 1, delay_ms=3_600_000)
    await send(connection, address, 2)
    async with consuming(connection, address) as consumer:
        assert (await receive(consumer)).body == b"2", "it waits for nothing that was sent before it"
        before = loop.time()
        await send(connection, address, 3, delay_ms=300)
        assert (await receive(consumer)).body == b"3"
        assert loop.time() - before >= 0.298  # two clocks
        await holds(connection, address, scheduled=1)


async def test_a_selector_consumer_takes_its_own_and_leaves_the_rest(connection: Connection) -> None:
    address = name()
    for number in range(10):
        await send(connection, address, number, properties={"odd": number % 2 == 1})
    async with consuming(connection, address, selector="odd") as consumer:
        for message in await receive_all(consumer, 5):
            await message.acknowledge(confirm=True)
        assert (await consumer.receive(0)) is None
    assert bodies(await settled(connection, address, 5)) == [0, 2, 4, 6, 8]
    with pytest.raises(ConsumerError) as wrong:
        async with consuming(connection, address, selector="odd ="):
            pass
    assert wrong.value.code == "invalid-selector"


async def test_a_refused_frame_disturbs_nobody(connection: Connection, server: Server) -> None:
    """A name that cannot be one is refused; the connection goes on."""
    async with Raw.connect(server) as raw:
        assert (await raw.ask(Op.PRODUCER, 1, "orders.*"))[2] == "invalid-name"
        assert (await raw.ask(Op.SUBSCRIBE, 1, "a::b::c", {}))[0] == Op.REFUSED
        assert (await raw.ask(Op.CALL, "queues", {}))[0] == Op.RESULT
