"""docs/semantics.md, section 5: what counts as a delivery and what as a failure, row by row; and innocents beside a guilty one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection, Consumer, Message, Session
from tests.acceptance.semantics_support import (
    Line,
    consumer_process,
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
    running,
    send,
    settled,
    until,
)
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "three.#": {"max-delivery-attempts": 3},
    "three.short.#": {"suspect-timeout": 300},
    "hasty.#": {"consumer-timeout": 300, "redelivery-delay": 60_000},
    "persisted.#": {"persist-delivery-count-before-delivery": True},
}


async def counts(connection: Connection, address: str, messages: int = 1) -> list[tuple[int, int]]:
    """(delivery count, failed) of everything in a queue, once it rests."""
    return [(each["delivery_count"], each["failed"]) for each in await settled(connection, address, messages)]


async def known_as_given(connection: Connection, address: str, messages: int = 1) -> None:
    """The broker has read that these were given; a proxy may still have held the report."""

    async def reported() -> bool:
        given: list[int] = [each["given"] for each in await consumers(connection, address)]
        return sum(given) == messages

    await until("the report has arrived", reported)


# -- +1 / +1 ---------------------------------------------------------------------------------------------------------


async def rolled_back(session: Session, consumer: Consumer, message: Message) -> None:
    await session.rollback()


async def recovered(session: Session, consumer: Consumer, message: Message) -> None:
    await session.recover()


async def nacked(session: Session, consumer: Consumer, message: Message) -> None:
    await message.nack(reason="no")


@pytest.mark.parametrize(
    ("mode", "end"),
    [(AckMode.TRANSACTED, rolled_back), (AckMode.CLIENT, recovered), (AckMode.INDIVIDUAL, nacked), (AckMode.CLIENT, nacked)],
)
async def test_what_ends_badly_is_delivered_and_failed(
    connection: Connection, mode: AckMode, end: Callable[[Session, Consumer, Message], Awaitable[None]]
) -> None:
    address = name()
    await send(connection, address, b"x")
    async with connection.session(mode) as session:
        consumer = session.consumer(address)
        for attempt in (1, 2):
            message = await receive(consumer)
            assert (message.delivery_count, message.redelivered) == (attempt, attempt > 1)
            await end(session, consumer, message)
        await consumer.close()
        assert await counts(connection, address) == [(2, 2)]


@pytest.mark.parametrize("mode", list(AckMode))
async def test_a_listener_that_raises_is_a_failure(connection: Connection, mode: AckMode) -> None:
    address, seen = name(), list[int]()
    await send(connection, address, b"x")
    done = asyncio.Event()

    async def handler(message: Message) -> None:
        seen.append(message.delivery_count)
        if len(seen) < 3:
            raise ValueError("not yet")
        done.set()
        await asyncio.sleep(60)

    async with homing.connect(connection.url.__repr__(), close_timeout_ms=500) as other:
        await other.session(mode).listen(address, handler)
        await asyncio.wait_for(done.wait(), 20)
        assert seen == [1, 2, 3]
        (held,) = await look(connection, address)
        assert (held["delivery_count"], held["failed"]) == (2, 2)
        cut(other)


async def test_a_consumer_timeout_is_a_failure(connection: Connection) -> None:
    address = name("hasty")
    await send(connection, address, b"x")
    async with consuming(connection, address) as consumer:
        await receive(consumer)
        assert await counts(connection, address) == [(1, 1)]


@pytest.mark.parametrize("block", ["consumer", "session", "connection"])
async def test_leaving_a_block_by_an_exception_fails_the_message_last_handed_out(
    connection: Connection, server: Server, block: str
) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)

    async def work() -> None:
        async with homing.connect(server.url) as other:
            session = other.session(AckMode.INDIVIDUAL)
            consumer = session.consumer(address)
            async with contextlib.AsyncExitStack() as stack:
                if block != "connection":
                    await stack.enter_async_context(session if block == "session" else consumer)
                await receive(consumer)
                await receive(consumer)
                raise LookupError("lost the plot")

    with pytest.raises(LookupError):
        await work()
    assert await counts(connection, address, 3) == [(1, 0), (1, 1), (0, 0)]
    second = (await look(connection, address))[1]
    (attempt,) = (await history(connection, second["message_id"]))["attempts"]
    assert (attempt["outcome"], attempt["fault"]["error_type"]) == ("error", "LookupError")


# -- +1 / – ----------------------------------------------------------------------------------------------------------


async def test_a_nack_that_does_not_count_is_a_delivery_only(connection: Connection) -> None:
    address = name()
    await send(connection, address, b"x")
    for attempt in range(1, 13):
        (message,) = await fail(connection, address, 1, count=False)
        assert message.delivery_count == attempt
    assert await counts(connection, address) == [(12, 0)]


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
async def test_a_clean_close_counts_what_was_given_but_blames_nobody(
    connection: Connection, server: Server, what: str, mode: AckMode
) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    async with homing.connect(server.url) as other:
        session = other.session(mode)
        consumer = session.consumer(address)
        await receive(consumer)
        await receive(consumer)
        ends = {"consumer": consumer.close, "session": session.close, "connection": other.close}
        await ends[what]()
        assert await counts(connection, address, 3) == [(1, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("what", ["session", "connection"])
async def test_closing_a_transacted_session_is_a_rollback(connection: Connection, server: Server, what: str) -> None:
    address = name()
    await send(connection, address, 1, 2)
    async with homing.connect(server.url) as other:
        session = other.session(AckMode.TRANSACTED)
        await receive(session.consumer(address))
        ends = {"session": session.close, "connection": other.close}
        await ends[what]()
        assert await counts(connection, address, 2) == [(1, 1), (0, 0)]


# -- – / – -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True])
async def test_unread_prefetched_messages_come_back_as_if_nothing_had_been(connection: Connection, server: Server, lost: bool) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    async with homing.connect(server.url, reconnect=False) as other:
        await other.session(AckMode.INDIVIDUAL).consumer(address).ready()
        await holds(connection, address, delivering=3)
        cut(other) if lost else await other.close()
        assert await counts(connection, address, 3) == [(0, 0)] * 3
    # "Assigned" counts windows, not deliveries.
    assert [each["assigned"] for each in await look(connection, address)] == [1, 1, 1]


async def test_the_frame_carries_one_more_than_is_stored(connection: Connection) -> None:
    address = name()
    await send(connection, address, b"x")
    for stored in range(4):
        async with consuming(connection, address) as consumer:
            message = await receive(consumer)
            (held,) = await look(connection, address)
            assert (held["delivery_count"], message.delivery_count, message.redelivered) == (stored, stored + 1, stored >= 1)
            await message.nack()


# -- loss, crash, redrive --------------------------------------------------------------------------------------------


async def test_a_lost_connection_fails_what_was_given(connection: Connection, server: Server) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    async with homing.connect(server.url, reconnect=False) as other:
        consumer = other.session(AckMode.CLIENT).consumer(address)
        await receive(consumer)
        await receive(consumer)
        cut(other)
        assert await counts(connection, address, 3) == [(1, 1), (1, 1), (0, 0)]
    (attempt,) = (await history(connection, (await look(connection, address))[0]["message_id"]))["attempts"]
    assert attempt["outcome"] == "connection-lost"


async def test_a_line_that_is_cut_is_a_lost_connection(connection: Connection, server: Server) -> None:
    address = name()
    await send(connection, address, b"x")
    async with Line.to(server) as line, homing.connect(line.url) as other:
        consumer = other.session(AckMode.INDIVIDUAL).consumer(address)
        held = await receive(consumer)
        await known_as_given(connection, address)
        line.cut()
        again = await receive(consumer)
        assert (again.message_id, again.delivery_count) == (held.message_id, 2)
        with pytest.raises(homing.SettleError) as stale:
            await held.acknowledge()
        assert stale.value.code == "not-held"
        await again.acknowledge(confirm=True)
    assert await look(connection, address) == []


async def test_after_a_crash_counts_stand_as_they_were_persisted(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with homing.connect(server.url) as connection:
            for address in ("plain", "persisted"):
                await send(connection, address, 1)
                await fail(connection, address, 2)
                await send(connection, address, 2)
            async with consuming(connection, "plain") as plain, consuming(connection, "persisted", prefetch=1) as persisted:
                await receive(plain)
                await receive(persisted)
                server.kill()
                server.start()
            async with homing.connect(server.url) as other:
                assert [(each["delivery_count"], each["failed"]) for each in await settled(other, "plain", 2)] == [(2, 2), (0, 0)]
                first, second = await settled(other, "persisted", 2)
                assert (first["failed"], second["failed"]) == (2, 0)
                assert (first["delivery_count"], second["delivery_count"]) == (3, 0)


async def test_a_redrive_forgives_the_failures_and_keeps_the_rest(connection: Connection) -> None:
    address = name("three")
    await send(connection, address, b"x")
    messages = await fail(connection, address, 3)
    await holds(connection, f"DLQ.{address}", messages=1)
    assert await connection.call("redrive", queue=f"DLQ.{address}") == {"messages": 1}
    assert await counts(connection, address) == [(3, 0)]
    (again,) = await drained(connection, address, 1)
    assert (again.message_id, again.delivery_count, again.redelivered) == (messages[0].message_id, 4, True)
    reported = await history(connection, again.message_id)
    assert [each["failed"] for each in reported["attempts"]] == [1, 2, 3]
    assert [each["outcome"] for each in reported["outcomes"]][:2] == ["dead-lettered", "redriven"]


async def test_with_persist_before_the_count_is_on_disk_before_the_frame_leaves(connection: Connection, server: Server) -> None:
    """The message in the consumer's hands shows a stored count of 1; one merely prefetched is uncounted again when it comes back."""
    address = name("persisted")
    await send(connection, address, 1, 2)
    async with consuming(connection, address) as consumer:
        message = await receive(consumer)
        assert message.delivery_count == 1
        assert [each["delivery_count"] for each in await look(connection, address)] == [1, 1]
    assert await counts(connection, address, 2) == [(1, 0), (0, 0)]


# -- the innocent and the guilty -------------------------------------------------------------------------------------


async def test_a_handler_that_kills_its_process_is_dead_lettered_after_as_many_processes_as_attempts(
    connection: Connection, server: Server
) -> None:
    address = name("three")
    await send(connection, address, b"guilty")
    for attempt in range(1, 4):
        assert await asyncio.to_thread(consumer_process, server, address, "alone") == -9
        (message,) = await settled(connection, address if attempt < 3 else f"DLQ.{address}")
        assert message["failed" if attempt < 3 else "state"] == (attempt if attempt < 3 else "ready")
    reported = await history(connection, message["message_id"])
    assert [each["outcome"] for each in reported["attempts"]] == ["connection-lost"] * 3
    assert message["hops"][0]["attempts"] == 3


async def test_of_a_hundred_held_messages_only_the_guilty_one_dies(connection: Connection, server: Server) -> None:
    address = name("three")
    guilty_at = 61
    await send(connection, address, *(b"guilty" if at == guilty_at else b"%d" % at for at in range(100)))
    endings: list[int] = []
    while not endings or endings[-1] != 0:
        assert len(endings) < 6, f"the processes ended with {endings}"
        endings.append(await asyncio.to_thread(consumer_process, server, address, "together", 60))
        if len(endings) < 3:
            rest = await settled(connection, address, 100)
            assert {each["failed"] for each in rest} <= {len(endings) - 1, len(endings)}
    assert endings == [-9, -9, -9, 0]
    (dead,) = await settled(connection, f"DLQ.{address}")
    assert dead["body"] == b"guilty"
    assert (await queue(connection, address))["messages"] == 0


async def test_a_suspect_goes_alone_and_any_settlement_clears_it(connection: Connection, server: Server) -> None:
    address = name("three")
    await send(connection, address, 1)
    await fail(connection, address, 2)
    await send(connection, address, 2)
    async with homing.connect(server.url, reconnect=False) as other:
        consumer = other.session(AckMode.INDIVIDUAL).consumer(address)
        await receive(consumer)
        await receive(consumer)
        cut(other)
        # It has failed as often as it may, but was not alone: the limit was not applied.
        assert await counts(connection, address, 2) == [(3, 3), (1, 1)]
    assert [each["suspect"] for each in await look(connection, address)] == [True, False]
    assert (await queue(connection, address))["suspects"] == 1
    async with consuming(connection, address) as one, homing.connect(server.url) as other, consuming(other, address) as two:
        suspect = await receive(one)
        beside = await receive(two)
        assert (suspect.body, beside.body) == (b"1", b"2")
        await send(connection, address, 3)
        assert (await receive(two)).body == b"3"
        assert [each["unsettled"] for each in await consumers(connection, address)] == [1, 2]
        await suspect.nack(count=False, delay_ms=0)
        await holds(connection, address, suspects=0)
        await send(connection, address, *range(4, 10))

        async def both_are_served() -> bool:
            return all(each["unsettled"] > 1 for each in await consumers(connection, address))

        await until("the connection gets other messages again", both_are_served)


async def test_alone_means_the_only_one_given_of_its_queue(connection: Connection, server: Server) -> None:
    """What another queue's consumer holds does not save it, nor does what was only prefetched."""
    guilty, other_queue = name("three"), name("three")
    await send(connection, guilty, 1)
    await fail(connection, guilty, 2)
    await send(connection, guilty, 2)
    await send(connection, other_queue, 1)
    async with homing.connect(server.url, reconnect=False) as other:
        session = other.session(AckMode.INDIVIDUAL)
        await receive(session.consumer(guilty))
        await receive(session.consumer(other_queue))
        await holds(connection, guilty, delivering=2)
        cut(other)
        (dead,) = await settled(connection, f"DLQ.{guilty}")
    assert dead["body"] == b"1"
    assert await counts(connection, guilty) == [(0, 0)]
    assert await counts(connection, other_queue) == [(1, 1)]


async def test_a_suspect_that_is_held_too_long_lets_others_pass(connection: Connection, server: Server) -> None:
    address = name("three.short")
    await send(connection, address, 1)
    await fail(connection, address, 2)
    await send(connection, address, 2)
    async with homing.connect(server.url, reconnect=False) as other:
        consumer = other.session(AckMode.INDIVIDUAL).consumer(address)
        await receive(consumer)
        await receive(consumer)
        cut(other)
        await settled(connection, address, 2)
    loop = asyncio.get_running_loop()
    before = loop.time()  # of the first; once it is here its time already runs
    async with consuming(connection, address) as consumer:
        assert (await receive(consumer)).body == b"1"
        assert (await receive(consumer)).body == b"2", "after suspect-timeout the rest comes although the suspect is still held"
        assert loop.time() - before > 0.25
