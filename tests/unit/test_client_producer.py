"""Producers: one frame a turn, credit, confirms, refusals, and what a reconnect sends again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import Op
from homing.client import AckMode, ReconnectPolicy, SendError, UsageError
from tests.unit.client_fake import FakeBroker, Frame, Peer, connected, fake_broker, on_both_loops, there_and_back

FAST = ReconnectPolicy(initial_delay_ms=1, maximum_delay_ms=5)


@on_both_loops
async def test_messages_of_one_turn_leave_as_one_frame() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        producer = session.producer("orders")
        await producer.send(b"first")
        confirmations = [producer.send_nowait(b"%d" % number) for number in range(500)]
        await producer.flush()
        assert all(confirmation.done for confirmation in confirmations)
        sends = broker.of(Op.SEND)
        assert [(frame[2], len(frame[3])) for frame in sends] == [(1, 1), (2, 500)]


@on_both_loops
async def test_fields_keep_their_places_and_trailing_defaults_are_left_out() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        producer = session.producer("orders", priority=7)
        await producer.send(b"a", priority=4)
        await producer.send(b"b")
        await producer.send(b"c", properties={"n": 1, "x": None}, priority=4, ttl_ms=60_000, durable=False)
        await producer.send(bytearray(b"d"), priority=4, duplicate_id="id-1")
        assert [frame[3][0] for frame in broker.of(Op.SEND)] == [
            [b"a"],
            [b"b", None, 7],
            [b"c", {"n": 1, "x": None}, 4, False, 60_000],
            [b"d", None, 4, True, 0, 0, "id-1"],
        ]


@on_both_loops
async def test_messages_that_differ_only_in_their_bodies_leave_as_these_where_the_broker_understands_it() -> None:
    async with fake_broker() as broker:
        broker.welcome = {"joins_bodies": True}
        async with homing.connect(broker.url) as connection, connection.session() as session:
            producer = session.producer("orders", priority=7, durable=False)
            for bodies in ([b"a", b"b"], [b"c"]):
                for body in bodies:
                    producer.send_nowait(body)
                await producer.flush()
            producer.send_nowait(b"d")
            producer.send_nowait(b"e", properties={"n": 1})
            await producer.flush()
        assert broker.of(Op.SEND_BODIES) == [[34, 1, 1, [7, False], [b"a", b"b"]], [34, 1, 3, [7, False], [b"c"]]]
        assert broker.of(Op.SEND) == [[12, 1, 4, [[b"d", None, 7, False], [b"e", {"n": 1}, 7, False]]]]


@on_both_loops
async def test_bodies_are_sent_again_in_full_to_a_broker_that_does_not_understand_them() -> None:
    async with fake_broker() as broker:
        broker.welcome = {"joins_bodies": True}
        async with homing.connect(broker.url, reconnect=FAST) as connection, connection.session() as session:
            producer = session.producer("orders")
            broker.silent(Op.SEND_BODIES)
            confirmation = producer.send_nowait(b"a")
            await broker.seen(Op.SEND_BODIES)
            broker.welcome = {}
            broker.peer.drop()
            await confirmation
        assert broker.of(Op.SEND) == [[12, 1, 1, [[b"a"]]]]


@on_both_loops
async def test_send_returns_only_when_confirmed() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        held: list[tuple[Peer, Frame]] = []
        broker.handlers[Op.SEND] = lambda peer, frame: held.append((peer, frame))
        task = asyncio.create_task(session.producer("orders").send(b"x"))
        await broker.seen(Op.SEND)
        await there_and_back(connection)
        assert not task.done()
        broker.peer.send([Op.CONFIRM, 1, 1])
        await task


@on_both_loops
async def test_messages_wait_in_the_client_for_credit() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        broker.credit = (3, 1_000_000)
        broker.silent(Op.SEND)
        producer = session.producer("orders")
        for number in range(8):
            producer.send_nowait(b"%d" % number)
        await broker.seen(Op.SEND)
        await there_and_back(connection)
        assert [len(frame[3]) for frame in broker.of(Op.SEND)] == [3]
        broker.peer.send([Op.CREDIT, 1, 0, 0, "disk-low"])
        await there_and_back(connection)
        reasons = [producer.blocked_reason]
        broker.peer.send([Op.CREDIT, 1, 5, 0, None])
        frames = await broker.seen(Op.SEND, 2)
        assert [*reasons, producer.blocked_reason] == ["disk-low", None]
        assert [(frame[2], len(frame[3])) for frame in frames] == [(1, 3), (4, 5)]
        broker.peer.send([Op.CONFIRM, 1, 8])
        await producer.flush()


@on_both_loops
async def test_byte_credit_may_end_below_zero_by_one_message() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        broker.credit = (100, 1000)
        broker.silent(Op.SEND)
        producer = session.producer("orders")
        for _ in range(5):
            producer.send_nowait(b"x" * 200)  # costs 600 each
        await broker.seen(Op.SEND)
        await there_and_back(connection)
        assert [len(frame[3]) for frame in broker.of(Op.SEND)] == [2]
        broker.peer.send([Op.CREDIT, 1, 0, 10_000, None], [Op.CONFIRM, 1, 2])
        await broker.seen(Op.SEND, 2)
        broker.peer.send([Op.CONFIRM, 1, 5])
        await producer.flush()


def refuse_number(broker: FakeBroker, refused: int) -> None:
    """The broker of protocol 2.2: refuses one number once, ignores what follows until that number comes again."""
    stored = 0
    done = False

    def on_send(peer: Peer, frame: Frame) -> None:
        nonlocal stored, done
        _, number, first, messages = frame
        for sequence in range(first, first + len(messages)):
            if sequence != stored + 1:
                break
            if sequence == refused and not done:
                done = True
                peer.send([Op.CONFIRM, number, sequence - 1, [sequence, "queue-full", "orders is full", "send later"]])
                return
            stored = sequence
        else:
            peer.send([Op.CONFIRM, number, stored])

    broker.handlers[Op.SEND] = on_send


@on_both_loops
async def test_refusal_fails_that_message_and_everything_behind_it() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        refuse_number(broker, 2)
        producer = session.producer("orders")
        outcomes = await asyncio.gather(*(producer.send_nowait(b"%d" % number) for number in range(1, 5)), return_exceptions=True)
        assert outcomes[0] is None
        codes = [error.code if isinstance(error, SendError) else error for error in outcomes[1:]]
        assert codes == ["queue-full", "not-sent-after-refusal", "not-sent-after-refusal"]
        await producer.send(b"again")
        assert [frame[2] for frame in broker.of(Op.SEND)] == [1, 2]
        await producer.flush()  # nothing is left that nobody looked at


@on_both_loops
async def test_failures_nobody_awaited_are_raised_by_flush_once() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        refuse_number(broker, 1)
        producer = session.producer("orders")
        for number in range(3):
            producer.send_nowait(b"%d" % number)
        with pytest.raises(SendError) as caught:
            await producer.flush()
        assert caught.value.code == "queue-full"
        await producer.flush()


@on_both_loops
async def test_drain_returns_at_once_below_the_limit_and_waits_at_it() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        broker.silent(Op.SEND)
        producer = session.producer("orders", max_unconfirmed=4)
        for _ in range(3):
            producer.send_nowait(b"x")
            with pytest.raises(StopIteration):  # ended without suspending once
                producer.drain().send(None)
        producer.send_nowait(b"x")
        task = asyncio.create_task(producer.drain())
        await broker.seen(Op.SEND)
        assert not task.done()
        broker.peer.send([Op.CONFIRM, 1, 1])
        await task
        for _ in range(5):
            producer.send_nowait(b"x")
        with pytest.raises(UsageError) as caught:
            producer.send_nowait(b"one too many")
        assert caught.value.code == "too-many-unconfirmed"
        await broker.seen(Op.SEND, 2)
        broker.peer.send([Op.CONFIRM, 1, 9])
        await producer.flush()


@on_both_loops
async def test_reconnect_drops_what_was_stored_and_resends_the_rest_with_the_same_numbers() -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session() as session:
        broker.silent(Op.SEND)
        producer = session.producer("orders")
        confirmations = [producer.send_nowait(b"%d" % number) for number in range(1, 6)]
        await broker.seen(Op.SEND)
        broker.high_watermarks[1] = 2  # numbers 1 and 2 reached the disk, their confirm did not come back
        broker.handlers[Op.SEND] = broker.on_send
        broker.peer.drop()
        await asyncio.gather(*confirmations)
        assert broker.peers[1].frames[1][:1] == [Op.PRODUCER]
        assert [frame for frame in broker.peers[1].frames if frame[0] == Op.SEND] == [[Op.SEND, 1, 3, [[b"3"], [b"4"], [b"5"]]]]
        assert broker.of(Op.HELLO)[0][3]["client_id"] == broker.of(Op.HELLO)[1][3]["client_id"]


@on_both_loops
async def test_a_number_used_before_goes_on_behind_its_mark() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        broker.high_watermarks[1] = 41
        await session.producer("orders").send(b"x")
        assert broker.of(Op.SEND)[0][2] == 42


@on_both_loops
async def test_cancelled_send_stays_on_its_way_and_is_sent_once() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        broker.silent(Op.SEND)
        producer = session.producer("orders")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.send(b"x")
        assert producer.unconfirmed == 1
        await broker.seen(Op.SEND)
        broker.peer.send([Op.CONFIRM, 1, 1])
        await producer.flush()
        assert len(broker.of(Op.SEND)) == 1


@on_both_loops
async def test_refused_producer_fails_its_messages() -> None:
    async with connected() as (broker, connection):
        broker.handlers[Op.PRODUCER] = lambda peer, frame: peer.send([Op.REFUSED, frame[1], "no-such-address", "there is none", "make it"])
        async with connection.session() as session:
            producer = session.producer("orders")
            with pytest.raises(SendError) as caught:
                await producer.send(b"x")
            assert caught.value.code == "no-such-address"
            with pytest.raises(SendError):
                producer.send_nowait(b"y")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"body": "text"}, "invalid-message"),
        ({"body": b"", "properties": {"": 1}}, "invalid-message"),
        ({"body": b"", "properties": {"_AMQ_X": 1}}, "invalid-message"),
        ({"body": b"", "properties": {"n": 2**63}}, "invalid-message"),
        ({"body": b"", "properties": {"n": float("nan")}}, "invalid-message"),
        ({"body": b"", "properties": {"n": [1]}}, "invalid-message"),
        ({"body": b"", "properties": {"n": "\ud800"}}, "invalid-message"),
        ({"body": b"", "properties": {"n": "x" * 70_000}}, "invalid-message"),
        ({"body": b"", "priority": 10}, "invalid-argument"),
        pytest.param({"body": b"", "priority": True}, "invalid-argument", marks=pytest.mark.plain),
        ({"body": b"", "ttl_ms": -1}, "invalid-argument"),
        pytest.param({"body": b"", "durable": 1}, "invalid-argument", marks=pytest.mark.plain),
        ({"body": b"", "duplicate_id": ""}, "invalid-argument"),
        ({"body": b"x" * 2**24}, "message-too-large"),
    ],
)
@on_both_loops
async def test_what_cannot_be_sent_raises_at_once(arguments: dict[str, Any], code: str) -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        with pytest.raises(UsageError) as caught:
            session.producer("orders").send_nowait(**arguments)
        assert caught.value.code == code
    assert broker.of(Op.SEND) == []


@on_both_loops
async def test_lost_for_good_fails_everything_unconfirmed() -> None:
    async with connected(reconnect=False) as (broker, connection):
        session = connection.session()
        broker.silent(Op.SEND)
        producer = session.producer("orders")
        task = asyncio.create_task(producer.send(b"x"))
        await broker.seen(Op.SEND)
        broker.peer.drop()
        with pytest.raises(homing.ConnectionLost) as caught:
            await task
        assert caught.value.connection_lost
        with pytest.raises(homing.ConnectionLost):
            await producer.send(b"y")
