"""docs/semantics.md, section 6: transacted sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pika import spec

import homing
from homing.broker.protocols.native.codec import AckType, Frame, Op
from homing.client import AckMode, Connection, ReconnectPolicy, TransactionError
from tests.acceptance.semantics_support import (
    WAIT_S,
    Line,
    Raw,
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
from tests.amqp_wire import Wire
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "fixed.#": {"auto-create-queues": False, "auto-create-addresses": False},
    "full.#": {"max-length": 2, "overflow": "reject-publish"},
}


OPTIONS: dict[str, Any] = {"limits": {"max-transaction-operations": 50}}


def texts(entries: list[dict[str, Any]]) -> list[bytes]:
    return [each["body"] for each in entries]


async def test_sends_and_acknowledgements_take_effect_together(connection: Connection) -> None:
    source, target = name(), name()
    await send(connection, source, 1, 2)
    async with connection.session(AckMode.TRANSACTED) as session:
        await receive_all(session.consumer(source), 2)
        await session.producer(target).send(b"made")
        assert await look(connection, target) == []
        assert [each["state"] for each in await look(connection, source)] == ["delivering"] * 2
        await session.commit()
        assert await look(connection, source) == []
        assert texts(await settled(connection, target)) == [b"made"]


async def test_a_rollback_undoes_both_counts_what_was_given_and_releases_the_rest(connection: Connection) -> None:
    source, target = name(), name()
    await send(connection, source, 1, 2, 3)
    async with connection.session(AckMode.TRANSACTED) as session:
        consumer = session.consumer(source)
        await receive_all(consumer, 2)
        await session.producer(target).send(b"made")
        await session.rollback()
        counts = {message.body: message.delivery_count for message in await receive_all(consumer, 3)}
        assert counts == {b"1": 2, b"2": 2, b"3": 1}
        await session.commit()
    assert await look(connection, source) == await look(connection, target) == []


async def test_given_messages_belong_to_the_session_and_outlive_their_consumer(connection: Connection) -> None:
    source = name()
    await send(connection, source, 1, 2, 3)
    async with connection.session(AckMode.TRANSACTED) as session:
        consumer = session.consumer(source)
        await receive(consumer)
        await consumer.close()
        assert [each["state"] for each in await look(connection, source)] == ["delivering", "ready", "ready"]
        await session.commit()
        assert texts(await look(connection, source)) == [b"2", b"3"]
        consumer = session.consumer(source)
        await receive(consumer)
        await consumer.close()
        await session.rollback()
    assert [(each["delivery_count"], each["failed"]) for each in await settled(connection, source, 2)] == [(1, 1), (0, 0)]


@pytest.mark.parametrize(
    ("address", "options", "code"),
    [
        ("fixed.nowhere", {}, "no-such-address"),
        ("full.one", {}, "queue-full"),
        ("twice", {"duplicate_id": "the same"}, "duplicate-message"),
    ],
)
async def test_what_is_refused_at_commit_rolls_back_all(connection: Connection, address: str, options: dict[str, Any], code: str) -> None:
    """``send`` returns when it is written: routing, limits and duplicates are looked at only now."""
    source, target = name(), name()
    await send(connection, source, 1)
    if address == "full.one":
        await send(connection, address, 1, 2)
    async with connection.session(AckMode.TRANSACTED) as session:
        consumer = session.consumer(source)
        await receive(consumer)
        await session.producer(target).send(b"made")
        producer = session.producer(address)
        for number in range(2):
            await producer.send(b"%d" % number, **options)
        with pytest.raises(TransactionError) as refused:
            await session.commit()
        assert refused.value.code == code
        assert await look(connection, target) == []
        again = await receive(consumer)
        assert again.delivery_count == 2
        await session.commit()
    assert await look(connection, source) == []


async def test_the_messages_of_one_transaction_count_for_each_others_limits(connection: Connection) -> None:
    address = name("full")
    async with connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer(address)
        for number in range(3):
            await producer.send(b"%d" % number)
        with pytest.raises(TransactionError) as refused:
            await session.commit()
        assert refused.value.code == "queue-full"
        for number in range(2):
            await producer.send(b"%d" % number)
        await session.commit()
    assert texts(await settled(connection, address, 2)) == [b"0", b"1"]


async def test_acknowledged_messages_stay_delivering_until_the_commit(connection: Connection, server: Server) -> None:
    source = name()
    await send(connection, source, 1, 2)
    async with Raw.connect(server) as raw:
        await raw.subscribe(1, source, session=7, transacted=True)
        await raw.deliveries(2)
        await raw.write(Op.GIVEN, 1, 2)
        assert await raw.ack(1, AckType.STANDARD, [1, 2], session=7) == {"not_held": []}
        assert [each["state"] for each in await look(connection, source)] == ["delivering"] * 2
        assert (await raw.ask(Op.COMMIT, 7, name("transaction"), 0))[0] == Op.RESULT
        assert await look(connection, source) == []


def at(op: int, verdict: str, *, then: Callable[[], None] = lambda: None) -> Callable[[Frame], str]:
    """Lets everything pass but the first frame of a kind."""
    struck = False

    def watch(frame: Frame) -> str:
        nonlocal struck
        if frame[0] != op or struck:
            return "pass"
        struck = True
        then()
        return verdict

    return watch


async def test_after_a_lost_reply_the_client_asks_for_the_outcome(connection: Connection, server: Server) -> None:
    source, target = name(), name()
    await send(connection, source, 1)
    async with Line.to(server) as line, homing.connect(line.url) as other, other.session(AckMode.TRANSACTED) as session:
        await receive(session.consumer(source))
        await session.producer(target).send(b"made")
        requests: list[int] = []

        def note(frame: Frame) -> str:
            if frame[0] == Op.COMMIT:
                requests.append(frame[1])
            return "pass"

        line.to_broker = note
        line.to_client = lambda frame: "cut" if frame[0] == Op.RESULT and frame[1] in requests else "pass"
        await session.commit()
        assert line.connections == 2
        line.to_broker = line.to_client = lambda frame: "pass"
    assert texts(await settled(connection, target)) == [b"made"]
    assert await look(connection, source) == []


async def test_a_commit_that_never_arrived_is_told_as_rolled_back(connection: Connection, server: Server) -> None:
    source, target = name(), name()
    await send(connection, source, 1)
    async with Line.to(server) as line, homing.connect(line.url) as other, other.session(AckMode.TRANSACTED) as session:
        consumer = session.consumer(source)
        await receive(consumer)
        await session.producer(target).send(b"made")
        line.to_broker = at(Op.COMMIT, "cut")
        with pytest.raises(TransactionError) as lost:
            await session.commit()
        assert (lost.value.code, lost.value.connection_lost) == ("transaction-rolled-back", True)
        assert (await receive(consumer)).delivery_count == 2
        assert await look(connection, target) == []


async def test_unknown_is_raised_only_when_nobody_can_be_asked(server: Server) -> None:
    seldom = ReconnectPolicy(maximum_attempts=2, initial_delay_ms=10)
    async with Line.to(server) as line, homing.connect(line.url, reconnect=seldom) as other:
        session = other.session(AckMode.TRANSACTED)
        await session.producer(name()).send(b"made")

        def close_the_line() -> None:
            line.open = False

        line.to_broker = at(Op.COMMIT, "cut", then=close_the_line)
        with pytest.raises(TransactionError) as unknown:
            await session.commit()
        assert unknown.value.code == "outcome-unknown"


async def test_the_outcome_is_kept_over_a_crash_and_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """Messages are moved from one queue to another, three at a time, until the broker is killed in the middle of it."""
    with running(tmp_path) as server:
        async with homing.connect(server.url, reconnect=False, close_timeout_ms=500) as connection:
            await send(connection, "source", *range(300))
            moved: list[int] = []

            async def move(session: homing.Session) -> None:
                consumer, producer = session.consumer("source"), session.producer("target")
                while True:
                    for message in await receive_all(consumer, 3):
                        await producer.send(message.body)
                    await session.commit()
                    moved.append(3)
                    if len(moved) == 20:
                        # Strikes while the next commits are under way.
                        asyncio.get_running_loop().call_later(0.02, server.kill)

            with pytest.raises(homing.HomingError):
                await move(connection.session(AckMode.TRANSACTED))
        async with Raw.connect(server.start()) as raw:
            await raw.ask(Op.PRODUCER, 1, "one")
            await raw.write(Op.SEND, 1, 0, [[b"x"]], 3)
            assert (await raw.ask(Op.COMMIT, 3, "the id of it", 1))[0] == Op.RESULT
        server.kill()
        server.start()
        async with homing.connect(server.url) as connection:
            source, target = await look(connection, "source"), await look(connection, "target")
            assert sorted(int(each["body"]) for each in [*source, *target]) == list(range(300))
            assert len(target) % 3 == 0
            assert len(target) >= sum(moved) >= 60
            assert await connection.call("transaction-outcome", transaction_id="the id of it") == {"outcome": "committed"}
            assert await connection.call("transaction-outcome", transaction_id="another") == {"outcome": "unknown"}


async def test_close_without_commit_rolls_back(connection: Connection) -> None:
    source, target = name(), name()
    await send(connection, source, 1)
    async with connection.session(AckMode.TRANSACTED) as session:
        await receive(session.consumer(source))
        await session.producer(target).send(b"made")
    assert [each["failed"] for each in await settled(connection, source)] == [1]
    assert await look(connection, target) == []


async def test_a_transaction_that_is_open_too_long_is_rolled_back(tmp_path: Path) -> None:
    with running(tmp_path, limits={"transaction-timeout": "1s"}, amqp={"port": 0}) as server:
        wire = Wire(int(server.ready["amqp"].rpartition(":")[2]))
        for begins, begun in ((spec.Channel.Open(), spec.Channel.OpenOk), (spec.Tx.Select(), spec.Tx.SelectOk)):
            wire.send(1, begins)
            assert isinstance(wire.next(1), begun)
        wire.send(1, spec.Basic.Publish(routing_key="target"))
        wire.content(1, b"made", spec.BasicProperties())
        async with homing.connect(server.url) as connection, connection.session(AckMode.TRANSACTED) as session:
            await send(connection, "source", 1)
            await receive(session.consumer("source"))
            await session.producer("target").send(b"made")

            async def back() -> bool:
                return (await queue(connection, "source"))["delivering"] == 0 or any(
                    each["failed"] for each in await look(connection, "source")
                )

            await until("the broker has taken it back", back)
            with pytest.raises(TransactionError) as late:
                await session.commit()
            assert late.value.code == "transaction-timed-out"
            # Over AMQP the channel is closed.
            closed = await asyncio.to_thread(wire.next, 1, WAIT_S)
            assert (type(closed), closed.reply_code) == (spec.Channel.Close, 406)
            wire.cut()
            assert await look(connection, "target") == []


async def test_a_transaction_has_a_limit(connection: Connection) -> None:
    target = name()
    async with connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer(target)
        for number in range(51):
            await producer.send(b"%d" % number)
        with pytest.raises(TransactionError) as refused:
            await session.commit()
        assert refused.value.code == "transaction-too-large"
        assert await look(connection, target) == []
        await producer.send(b"small")
        await session.commit()
    await drained(connection, target, 1)


async def test_too_many_held_in_a_transaction_is_an_error_and_no_hang(connection: Connection) -> None:
    source = name()
    await send(connection, source, *range(20))
    async with connection.session(AckMode.TRANSACTED) as session:
        consumer = await session.consumer(source, prefetch=10).ready()
        await receive_all(consumer, 15)
        with pytest.raises(homing.ConsumerError) as full:
            await asyncio.wait_for(consumer.receive(), 20)
        assert full.value.code == "too-many-unacknowledged"
        await session.commit()
        await receive_all(consumer, 5)
        await session.commit()
    await holds(connection, source, messages=0)
