"""docs/semantics.md, section 6: ack types on the wire, the window and its extension, pull, options, the consumer timeout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode, Connection
from tests.acceptance.semantics_support import (
    Raw,
    consumers,
    consuming,
    history,
    holds,
    look,
    name,
    queue,
    receive,
    receive_all,
    send,
    settled,
    until,
)
from tests.pauses import tried_again
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "hasty.#": {"consumer-timeout": 300, "redelivery-delay": 60_000},
    "touched.#": {"consumer-timeout": 2000, "redelivery-delay": 60_000},
    "mortal.#": {"expiry-address": "EXPIRED", "auto-create-expiry-resources": True},
    "narrow.#": {"consumer-prefetch": 7},
}


@pytest.fixture
async def raw(server: Server) -> Any:
    async with Raw.connect(server) as opened:
        yield opened


def counts(entry: dict[str, Any]) -> tuple[int, int]:
    return entry["delivery_count"], entry["failed"]


# -- ack types -------------------------------------------------------------------------------------------------------


async def test_type_0_delivered_settles_nothing(connection: Connection, raw: Raw) -> None:
    address = name()
    await send(connection, address, 1, 2)
    await raw.subscribe(1, address, prefetch=2)
    await raw.deliveries(2)
    await raw.write(Op.ACK, 1, AckType.DELIVERED, [1, 2])
    assert await raw.no_delivery()
    assert [each["state"] for each in await look(connection, address)] == ["delivering"] * 2


async def test_type_1_poison_dead_letters_now(connection: Connection, raw: Raw) -> None:
    address = name()
    await send(connection, address, 1, 2)
    await raw.subscribe(1, address)
    ((_, message), _) = await raw.deliveries(2)
    assert await raw.ack(1, AckType.POISON, [1, 1], {"reason": "unreadable"}) == {"not_held": []}
    (dead,) = await settled(connection, f"DLQ.{address}")
    assert dead["hops"][0] | {"reason": "poison", "attempts": 1, "delivery_count": 1} == dead["hops"][0]
    (attempt,) = (await history(connection, message[0]))["attempts"]
    assert (attempt["outcome"], attempt["fault"]["reason"]) == ("poison", "unreadable")


@pytest.mark.parametrize("kind", [AckType.STANDARD, AckType.INDIVIDUAL])
async def test_types_2_and_4_acknowledge_ranges(connection: Connection, raw: Raw, kind: AckType) -> None:
    address = name()
    await send(connection, address, *range(1, 7))
    await raw.subscribe(1, address)
    await raw.deliveries(6)
    await raw.ack(1, kind, [1, 2, 5, 5])
    assert [int(each["body"]) for each in await look(connection, address)] == [3, 4, 6]


async def test_type_3_redelivered_returns_and_counts(connection: Connection, raw: Raw) -> None:
    address = name("hasty")  # which waits a minute before it comes again
    await send(connection, address, 1, 2)
    await raw.subscribe(1, address)
    await raw.deliveries(2)
    await raw.ack(1, AckType.REDELIVERED, [1, 1])
    await raw.ack(1, AckType.REDELIVERED, [2, 2], {"count": False, "delay_ms": 60_000})
    assert [counts(each) for each in await settled(connection, address, 2)] == [(1, 1), (1, 0)]


async def test_type_5_unmatched_gives_back_uncounted(connection: Connection, raw: Raw) -> None:
    address = name()
    await send(connection, address, 1)
    await raw.subscribe(1, address)
    await raw.deliveries(1)
    await raw.write(Op.GIVEN, 1, 1)
    await raw.ack(1, AckType.UNMATCHED, [1, 1])
    ((tag, message),) = await raw.deliveries(1)
    assert (tag, message[1]) == (2, 1)


async def test_type_6_expired_takes_the_expiry_path(connection: Connection, raw: Raw) -> None:
    """Believed for what expires about now, as the client sees the clock; anything else goes back uncounted."""
    address = name("mortal")
    await send(connection, address, 1, ttl_ms=20_000)
    await send(connection, address, 2)
    await raw.subscribe(1, address)
    await raw.deliveries(2)
    await raw.ack(1, AckType.EXPIRED, [1, 2])
    (expired,) = await settled(connection, f"EXP.{address}")
    assert (expired["body"], expired["hops"][0]["reason"], expired["failed"]) == (b"1", "expired", 0)
    ((_, message),) = await raw.deliveries(1)
    assert (message[3], message[1]) == (b"2", 1)


async def test_a_stale_tag_settles_nothing_and_the_rest_of_its_range_is_settled(connection: Connection, raw: Raw) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    await raw.subscribe(1, address)
    await raw.deliveries(3)
    await raw.ack(1, AckType.UNMATCHED, [2, 2])
    ((tag, message),) = await raw.deliveries(1)
    assert (tag, message[3]) == (4, b"2")
    assert await raw.ack(1, AckType.STANDARD, [1, 3]) == {"not_held": [2, 2]}
    assert [each["body"] for each in await look(connection, address)] == [b"2"]
    await raw.write(Op.ACK, 1, AckType.STANDARD, [2, 2])
    assert (await raw.read(Op.NOT_HELD))[1:3] == [1, [2, 2]]
    assert len(await look(connection, address)) == 1


# -- the window ------------------------------------------------------------------------------------------------------


async def test_credit_is_prefetch_plus_extension_minus_dispatched(connection: Connection, raw: Raw) -> None:
    address = name()
    await send(connection, address, *range(40))
    await raw.subscribe(1, address, prefetch=10)

    async def credit() -> int:
        (shown,) = await consumers(connection, address)
        assert shown["credit"] + shown["unsettled"] - 10 == extension
        return int(shown["credit"])

    extension = 0
    await raw.deliveries(10)
    assert await raw.no_delivery()
    assert await credit() == 0
    await raw.write(Op.ACK, 1, AckType.DELIVERED, [1, 3])
    extension = 3
    await raw.deliveries(3)
    await raw.write(Op.ACK, 1, AckType.DELIVERED, [4, 10])
    extension = 5  # never more than prefetch // 2
    await raw.deliveries(2)
    assert await raw.no_delivery()
    await raw.ack(1, AckType.STANDARD, [1, 4])
    extension = 1  # settling lowers it by as many
    assert await raw.no_delivery()
    assert await credit() == 0
    await raw.ack(1, AckType.STANDARD, [5, 8])
    extension = 0  # and never below 0
    await raw.deliveries(3)
    assert await raw.no_delivery()
    assert await credit() == 0


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.TRANSACTED, AckMode.INDIVIDUAL])
async def test_the_client_reports_delivered_at_half_its_prefetch(connection: Connection, mode: AckMode) -> None:
    address = name()
    await send(connection, address, *range(40))
    async with consuming(connection, address, mode, prefetch=10) as consumer:
        await receive_all(consumer, 4)
        assert [each["unsettled"] for each in await consumers(connection, address)] == [10]
        await receive(consumer)
        await holds(connection, address, delivering=15)


async def test_more_than_one_and_a_half_prefetch_in_client_is_an_error_and_no_hang(connection: Connection) -> None:
    address = name()
    await send(connection, address, *range(20))
    async with consuming(connection, address, AckMode.CLIENT, prefetch=10) as consumer:
        await receive_all(consumer, 15)
        with pytest.raises(homing.ConsumerError) as full:
            await asyncio.wait_for(consumer.receive(), 20)
        assert full.value.code == "too-many-unacknowledged"
        assert "1.5 times prefetch 10" in full.value.message
        await consumer.acknowledge()
        await receive_all(consumer, 5)
        await consumer.acknowledge(confirm=True)


async def test_the_default_window_is_1000_or_what_the_settings_say(connection: Connection, raw: Raw) -> None:
    address = name()
    async with consuming(connection, address):
        assert [each["prefetch"] for each in await consumers(connection, address)] == [1000]
    answer = await raw.ask(Op.SUBSCRIBE, 1, name("narrow"), {})
    assert answer[2]["prefetch"] == 7


async def test_prefetch_0_asks_for_one_message_at_a_time(connection: Connection) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    async with consuming(connection, address, prefetch=0) as consumer:
        assert (await queue(connection, address))["pending"] == 3
        first = await receive(consumer)
        assert (await queue(connection, address))["pending"] == 2
        await first.acknowledge()
        await (await receive(consumer)).acknowledge()
        await (await receive(consumer)).acknowledge()
        assert await consumer.receive(timeout_ms=100) is None
        waiting = asyncio.create_task(consumer.receive())
        await send(connection, address, 4)
        message = await waiting
        assert message is not None
        assert message.body == b"4"
        await message.acknowledge(confirm=True)
        with pytest.raises(homing.UsageError, match="prefetch 0"):
            await consumer.listen(print)


async def test_a_pull_that_timed_out_leaves_no_credit_behind(connection: Connection, raw: Raw) -> None:
    address = name()
    await raw.subscribe(1, address, prefetch=0)
    await raw.write(Op.PULL, 1, 50)
    await raw.read(Op.PULL_EMPTY)
    await send(connection, address, 1)
    assert await raw.no_delivery()
    assert (await queue(connection, address))["pending"] == 1
    await raw.write(Op.PULL, 1, -1)
    await raw.deliveries(1)


# -- options ---------------------------------------------------------------------------------------------------------


async def test_the_nearer_option_wins(server: Server) -> None:
    for url, argument, source, expected in (
        (server.url, None, "{}", 10),
        (f"{server.url}?prefetch=20", None, "{}", 20),
        (f"{server.url}?prefetch=20", 30, "{}", 30),
        (f"{server.url}?prefetch=20", 30, "{}?prefetch=40", 40),
    ):
        address = name()
        async with homing.connect(url, prefetch=10) as connection, consuming(connection, source.format(address), prefetch=argument):
            assert [each["prefetch"] for each in await consumers(connection, address)] == [expected]


async def test_a_policy_from_the_connection_string_is_applied(server: Server) -> None:
    url = f"{server.url}?redeliveryPolicy.maximumRedeliveries=1&redeliveryPolicy.initialRedeliveryDelay=0"
    address = name()
    async with homing.connect(url) as connection, consuming(connection, address) as consumer:
        await send(connection, address, 1)
        for _ in range(2):
            await (await receive(consumer)).nack()
        await holds(connection, f"DLQ.{address}", messages=1)


async def test_an_unknown_option_is_an_error(server: Server, connection: Connection) -> None:
    for use in (
        lambda: homing.connect(f"{server.url}?prefetched=1"),
        lambda: connection.session().consumer("orders?colour=red"),
        lambda: connection.session().producer("orders?prefetch=1"),
    ):
        with pytest.raises(homing.UsageError) as unknown:
            use()
        assert unknown.value.code == "unknown-option"


# -- the consumer timeout --------------------------------------------------------------------------------------------


async def test_only_what_was_given_times_out_and_only_that_message_returns(connection: Connection) -> None:
    address = name("hasty")
    await send(connection, address, 1, 2, 3)
    async with consuming(connection, address) as consumer:
        late = await receive(consumer)
        await holds(connection, address, scheduled=1)
        first, *rest = await look(connection, address)
        assert (first["state"], counts(first)) == ("scheduled", (1, 1))
        assert [each["state"] for each in rest] == ["delivering"] * 2, "unread messages never time out"
        (attempt,) = (await history(connection, late.message_id))["attempts"]
        assert attempt["outcome"] == "timeout"
        with pytest.raises(homing.SettleError) as stale:
            await late.acknowledge(confirm=True)
        assert stale.value.code == "not-held"
    assert [counts(each) for each in await settled(connection, address, 3)] == [(1, 1), (0, 0), (0, 0)]


async def test_consumers_of_a_higher_priority_are_served_first(connection: Connection) -> None:
    address = name()
    async with (
        consuming(connection, address, prefetch=3) as low,
        consuming(connection, f"{address}?consumer.priority=10", prefetch=3) as high,
    ):
        await send(connection, address, *range(5))
        assert [message.body for message in await receive_all(high, 3)] == [b"0", b"1", b"2"]
        assert [message.body for message in await receive_all(low, 2)] == [b"3", b"4"]
        assert [each["priority"] for each in await consumers(connection, address)] == [0, 10]


async def test_a_late_acknowledgement_is_answered_not_held_and_the_rest_of_its_range_is_settled(connection: Connection, raw: Raw) -> None:
    address = name("hasty")
    await send(connection, address, 1, 2, 3)
    await raw.subscribe(1, address)
    await raw.deliveries(3)
    await raw.write(Op.GIVEN, 1, 1)
    await holds(connection, address, scheduled=1)
    assert await raw.ack(1, AckType.STANDARD, [1, 3]) == {"not_held": [1, 1]}
    assert [each["body"] for each in await look(connection, address)] == [b"1"]


@tried_again
async def test_touch_extends_the_timeout(connection: Connection) -> None:
    address = name("touched")
    await send(connection, address, 1, 2)
    async with consuming(connection, address) as consumer:
        touched, left_alone = await receive_all(consumer, 2)

        async def timed_out() -> bool:
            await touched.touch()
            shown = await queue(connection, address)
            return int(shown["scheduled"]) == 1

        await until("the one nobody touches times out", timed_out)
        await touched.acknowledge(confirm=True)
        (left,) = await settled(connection, address)
        assert left["message_id"] == left_alone.message_id
