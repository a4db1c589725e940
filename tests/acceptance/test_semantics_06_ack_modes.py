"""docs/semantics.md, section 6: the five ack modes, listeners, nack, confirmed acknowledgements, close."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection, Message
from homing.client import settlement as client_settlement
from tests.acceptance.semantics_support import (
    Line,
    consumers,
    consuming,
    cut,
    drained,
    fail,
    history,
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

SETTINGS: dict[str, Any] = {"slow.#": {"redelivery-delay": 60_000}, "capped.#": {"max-nack-delay": "1h"}}
AN_HOUR_MS = 3_600_000


@pytest.fixture
async def other(server: Server) -> Any:
    """A connection that may be cut."""
    async with homing.connect(server.url, reconnect=False, close_timeout_ms=1000) as opened:
        yield opened


async def states(connection: Connection, address: str) -> list[str]:
    return [each["state"] for each in await look(connection, address)]


# -- AUTO ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["receive", "async for"])
async def test_auto_acknowledges_before_it_hands_out(connection: Connection, other: Connection, how: str) -> None:
    address = name()
    await send(connection, address, 1, 2)
    consumer = other.session(AckMode.AUTO).consumer(address)
    message = await anext(consumer) if how == "async for" else await receive(consumer)
    assert message.body == b"1"
    cut(other)  # at once: the application has not done anything with it
    assert [each["body"] for each in await settled(connection, address)] == [b"2"]


async def test_auto_with_a_listener_acknowledges_after_it_returns(connection: Connection) -> None:
    address, started, may_end = name(), asyncio.Event(), asyncio.Event()
    await send(connection, address, b"x")

    async def handler(message: Message) -> None:
        started.set()
        await may_end.wait()

    async with connection.session(AckMode.AUTO) as session:
        await session.listen(address, handler)
        await started.wait()
        assert await states(connection, address) == ["delivering"]
        may_end.set()
        await holds(connection, address, messages=0)


async def test_optimized_acknowledgements_wait_for_their_share_of_the_prefetch(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_settlement, "LAZY_FLUSH_MS", AN_HOUR_MS)
    address = name()
    await send(connection, address, *range(30))
    async with consuming(connection, address, AckMode.AUTO, prefetch=20, optimize_acknowledge=True) as consumer:
        await receive_all(consumer, 12)
        assert (await queue(connection, address))["messages"] == 30
        await receive(consumer)  # the 13th: 0.65 × 20
        await holds(connection, address, messages=17)


@pytest.mark.parametrize(("mode", "optimize"), [(AckMode.AUTO, True), (AckMode.DUPS_OK, None)])
async def test_held_acknowledgements_leave_after_300_ms(connection: Connection, mode: AckMode, optimize: bool | None) -> None:
    address, loop = name(), asyncio.get_running_loop()
    await send(connection, address, b"x")
    async with consuming(connection, address, mode, optimize_acknowledge=optimize) as consumer:
        before = loop.time()
        await receive(consumer)
        await holds(connection, address, messages=0)
        assert loop.time() - before >= 0.29


async def test_optimize_acknowledge_is_ignored_elsewhere_and_refused_with_prefetch_0(connection: Connection) -> None:
    address = name()
    await send(connection, address, *range(4))
    async with consuming(connection, address, AckMode.CLIENT, prefetch=2, optimize_acknowledge=True) as consumer:
        await receive_all(consumer, 3)
        assert (await queue(connection, address))["messages"] == 4
    with pytest.raises(homing.UsageError, match="prefetch 0"):
        connection.session(AckMode.AUTO).consumer(address, prefetch=0, optimize_acknowledge=True)


# -- CLIENT ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["message", "session", "consumer"])
async def test_client_acknowledges_everything_given(connection: Connection, how: str) -> None:
    first, second = name(), name()
    await send(connection, first, 1, 2, 3)
    await send(connection, second, 1, 2)
    async with connection.session(AckMode.CLIENT) as session:
        one, two = session.consumer(first), session.consumer(second)
        held = [*await receive_all(one, 2), await receive(two)]
        await {"message": held[1].acknowledge, "session": session.acknowledge, "consumer": one.acknowledge}[how](confirm=True)
        assert (await queue(connection, first))["messages"] == 1
        assert (await queue(connection, second))["messages"] == (2 if how == "consumer" else 1)


async def test_recover_returns_everything_given(connection: Connection) -> None:
    first, second = name(), name()
    await send(connection, first, 1, 2, 3)
    await send(connection, second, 1)
    async with connection.session(AckMode.CLIENT) as session:
        one, two = session.consumer(first), session.consumer(second)
        await receive_all(one, 2)
        await receive(two)
        await session.recover()
        again = {message.body: message.delivery_count for message in await receive_all(one, 3)}
        assert again == {b"1": 2, b"2": 2, b"3": 1}
        assert (await receive(two)).delivery_count == 2
        (attempt,) = (await history(connection, (await look(connection, second))[0]["message_id"]))["attempts"]
        assert attempt["outcome"] == "recover"


# -- DUPS_OK ---------------------------------------------------------------------------------------------------------


async def test_dups_ok_acknowledges_in_batches_and_at_close(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_settlement, "LAZY_FLUSH_MS", AN_HOUR_MS)
    address = name()
    await send(connection, address, *range(30))
    async with consuming(connection, address, AckMode.DUPS_OK, prefetch=20) as consumer:
        await receive_all(consumer, 9)
        assert (await queue(connection, address))["messages"] == 30
        await receive(consumer)  # the 10th: 0.5 × 20
        await holds(connection, address, messages=20)
        await receive_all(consumer, 3)
        assert (await queue(connection, address))["messages"] == 20
    assert len(await settled(connection, address, 17)) == 17


# -- INDIVIDUAL ------------------------------------------------------------------------------------------------------


async def test_individual_settles_just_that_one_in_any_order(connection: Connection) -> None:
    address = name()
    await send(connection, address, *range(5))
    async with consuming(connection, address) as consumer:
        messages = await receive_all(consumer, 5)
        for at, left in ((3, [0, 1, 2, 4]), (0, [1, 2, 4]), (4, [1, 2])):
            await messages[at].acknowledge(confirm=True)
            assert [int(each["body"]) for each in await look(connection, address)] == left
        with pytest.raises(homing.SettleError) as twice:
            await messages[3].acknowledge()
        assert twice.value.code == "not-held"


# -- listeners -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.DUPS_OK, AckMode.INDIVIDUAL, AckMode.CLIENT])
async def test_a_listener_that_raises_fails_that_one_message(connection: Connection, mode: AckMode) -> None:
    address, seen = name("slow"), list[bytes]()
    await send(connection, address, 1, 2, 3)

    async def handler(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"2":
            raise ValueError("two is wrong")
        if mode in (AckMode.INDIVIDUAL, AckMode.CLIENT):
            await message.acknowledge()

    async with connection.session(mode) as session:
        await session.listen(address, handler)
        (left,) = await settled(connection, address)
    assert seen == [b"1", b"2", b"3"]
    assert (left["body"], left["state"], left["failed"]) == (b"2", "scheduled", 1)
    (attempt,) = (await history(connection, left["message_id"]))["attempts"]
    assert (attempt["outcome"], attempt["fault"]["error_type"], attempt["fault"]["error_text"]) == (
        "listener",
        "ValueError",
        "two is wrong",
    )


async def test_a_listener_that_raises_rolls_a_transaction_back(connection: Connection) -> None:
    address, target = name("slow"), name()
    await send(connection, address, 1, 2)

    async with connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer(target)

        async def handler(message: Message) -> None:
            await producer.send(b"made of " + message.body)
            if message.body == b"2":
                raise ValueError("two is wrong")
            await session.commit()

        await session.listen(address, handler)
        (left,) = await settled(connection, address)
    assert (left["body"], left["state"], left["failed"]) == (b"2", "scheduled", 1)
    assert [each["body"] for each in await look(connection, target)] == [b"made of 1"]


async def test_workers_of_one_listener_are_sub_sessions(connection: Connection) -> None:
    """CLIENT: a worker's acknowledge settles what that worker was given, not its neighbours' work."""
    address, busy, release = name(), list[bytes](), asyncio.Event()
    all_busy = asyncio.Event()
    await send(connection, address, *range(3))

    async def handler(message: Message) -> None:
        busy.append(message.body)
        if len(busy) == 3:
            all_busy.set()
        await all_busy.wait()
        if message.body == b"1":
            await message.acknowledge(confirm=True)
        else:
            await release.wait()

    async with connection.session(AckMode.CLIENT) as session:
        await session.listen(address, handler, concurrency=3)
        await holds(connection, address, messages=2)
        assert sorted(each["body"] for each in await look(connection, address)) == [b"0", b"2"]
        release.set()


async def test_a_transaction_cannot_have_concurrent_listeners(connection: Connection) -> None:
    with pytest.raises(homing.UsageError, match="concurrent"):
        await connection.session(AckMode.TRANSACTED).listen(name(), print, concurrency=2)


async def test_a_consumer_with_a_listener_refuses_receive(connection: Connection) -> None:
    async with consuming(connection, name()) as consumer:
        await consumer.listen(print)
        with pytest.raises(homing.ConsumerError) as refused:
            await consumer.receive(0)
        assert refused.value.code == "consumer-has-listener"


async def test_listen_returns_a_handle_that_stops_and_waits(connection: Connection) -> None:
    address, started, release, ended = name(), asyncio.Event(), asyncio.Event(), list[bytes]()
    await send(connection, address, 1, 2, 3)

    async def handler(message: Message) -> None:
        started.set()
        await release.wait()
        ended.append(message.body)

    async with connection.session(AckMode.AUTO) as session:
        listener = await session.listen(address, handler)
        waiting = asyncio.create_task(listener.wait())
        await started.wait()
        stopping = asyncio.create_task(listener.stop())
        assert len(await look(connection, address)) == 3
        assert not stopping.done(), "it waits for the handler that runs"
        release.set()
        await stopping
        await waiting
        assert ended == [b"1"], "the handler that ran has ended, no other was begun"
        assert [each["delivery_count"] for each in await settled(connection, address, 2)] == [0, 0]


async def test_wait_tells_what_ended_a_listener(connection: Connection) -> None:
    address = name()
    await connection.call("create-queue", queue=address)
    async with connection.session(AckMode.AUTO) as session:
        listener = await session.listen(address, print)
        await connection.call("delete-queue", queue=address)
        with pytest.raises(homing.ConsumerError) as ended:
            await listener.wait()
        assert ended.value.code == "queue-deleted"


# -- nack and acknowledge --------------------------------------------------------------------------------------------


async def test_nack_with_a_reason_an_error_and_a_delay(connection: Connection) -> None:
    address = name("slow")
    await send(connection, address, b"x")
    (message,) = await fail(connection, address, 1, reason="out of stock", error=KeyError("item"), delay_ms=120_000)
    (waiting,) = await settled(connection, address)
    (attempt,) = (await history(connection, message.message_id))["attempts"]
    assert (attempt["outcome"], attempt["delay_ms"], attempt["due_at_ms"]) == ("nack", 120_000, waiting["due_at_ms"])
    assert (attempt["fault"]["reason"], attempt["fault"]["error_type"]) == ("out of stock", "KeyError")


async def test_nack_until_a_point_in_time(connection: Connection) -> None:
    address = name()
    await send(connection, address, b"x")
    until_ms = connection.now_ms() + 600_000
    await fail(connection, address, 1, until_ms=until_ms)
    (waiting,) = await settled(connection, address)
    assert abs(waiting["due_at_ms"] - until_ms) < 60_000


async def test_a_nacks_delay_has_its_own_cap(connection: Connection) -> None:
    for address, most_ms in ((name("capped"), AN_HOUR_MS), (name(), 24 * AN_HOUR_MS)):
        await send(connection, address, b"x")
        (message,) = await fail(connection, address, 1, delay_ms=48 * AN_HOUR_MS)
        (attempt,) = (await history(connection, message.message_id))["attempts"]
        assert attempt["delay_ms"] == most_ms


async def test_what_is_not_retryable_is_dead_lettered_now(connection: Connection) -> None:
    address = name()
    await send(connection, address, b"x")
    await fail(connection, address, 1, retryable=False)
    (dead,) = await settled(connection, f"DLQ.{address}")
    assert (dead["hops"][0]["reason"], dead["hops"][0]["attempts"]) == ("not-retryable", 1)


async def test_a_confirmed_acknowledgement_is_on_disk(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with homing.connect(server.url) as connection, consuming(connection, "orders") as consumer:
            await send(connection, "orders", *range(20))
            messages = await receive_all(consumer, 20)
            for message in messages[::2]:
                await message.acknowledge(confirm=True)
            server.kill()
            server.start()
        async with homing.connect(server.url) as connection:
            assert [int(each["body"]) for each in await look(connection, "orders")] == list(range(1, 20, 2))


# -- close -----------------------------------------------------------------------------------------------------------


async def test_close_flushes_unconfirmed_sends_and_held_acknowledgements(
    connection: Connection, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_settlement, "LAZY_FLUSH_MS", AN_HOUR_MS)
    source, target = name(), name()
    await send(connection, source, 1, 2, 3)
    async with homing.connect(server.url) as closing:
        session = closing.session(AckMode.DUPS_OK)
        await receive_all(session.consumer(source), 2)
        producer = session.producer(target)
        for number in range(500):
            producer.send_nowait(b"%d" % number)
        assert producer.unconfirmed == 500
    assert [int(each["body"]) for each in await settled(connection, source)] == [3]
    assert len(await drained(connection, target, 500)) == 500


async def test_close_is_bounded_in_time_and_reports_what_stayed_unknown(server: Server) -> None:
    async with Line.to(server) as line:
        stuck = await homing.connect(line.url, close_timeout_ms=400, reconnect=False)
        producer = stuck.session().producer(name())
        await producer.send(b"first")
        line.to_client = lambda frame: "drop"
        for _ in range(3):
            producer.send_nowait(b"x")
        with pytest.raises(homing.CloseIncomplete) as incomplete:
            await asyncio.wait_for(stuck.close(), 20)
        assert (incomplete.value.unconfirmed_sends, incomplete.value.answered) == (3, False)


async def test_a_slow_consumer_is_shown_and_others_are_served(connection: Connection) -> None:
    address = name()
    async with consuming(connection, address, AckMode.CLIENT, prefetch=2) as slow, consuming(connection, address, prefetch=2) as quick:
        await send(connection, address, *range(40))
        held = await receive_all(slow, 3)  # 1.5 × prefetch: the window is extended no further

        async def is_slow() -> bool:
            return [each["slow"] for each in await consumers(connection, address)] == [True, False]

        for _ in range(37):
            message = await receive(quick)
            await message.acknowledge()
        await until("the one that holds all it may is shown as slow", is_slow)
        assert (await queue(connection, address))["slow_consumers"] == 1
        await held[0].acknowledge(confirm=True)
        assert (await queue(connection, address))["slow_consumers"] == 0
