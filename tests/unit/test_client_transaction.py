"""Transactions: one group or none, also over a lost connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode, ReconnectPolicy, SettleError, TransactionError, UsageError
from tests.unit.client_fake import Frame, Peer, connected, on_both_loops, there_and_back

FAST = ReconnectPolicy(initial_delay_ms=1, maximum_delay_ms=5)


@on_both_loops
async def test_commit_carries_sends_and_acknowledgements() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        consumer = await session.consumer("orders").ready()
        producer = session.producer("out")
        broker.deliver(b"a", b"b")
        assert await consumer.receive() is not None
        await producer.send(b"x")  # returns when written
        producer.send_nowait(b"y")
        assert await consumer.receive() is not None
        await session.commit()
        interesting = broker.of(Op.SEND, Op.GIVEN, Op.ACK, Op.COMMIT)
        sends = [frame for frame in interesting if frame[0] == Op.SEND]
        assert [frame[2] for frame in sends] == [0] * len(sends)
        assert {frame[4] for frame in sends} == {1}
        assert interesting[-2] == [Op.ACK, 1, AckType.STANDARD, [1, 2], None, 0, 1]
        assert interesting[-1][2] == 1
        assert interesting[-1][4] == 2
        await session.commit()  # nothing to commit: nothing is sent
        assert len(broker.of(Op.COMMIT)) == 1


@on_both_loops
async def test_refused_commit_raises_and_rolls_back() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        broker.handlers[Op.COMMIT] = lambda peer, frame: peer.send([Op.REFUSED, frame[1], "no-such-address", "there is none", "make it"])
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a")
        message = await consumer.receive()
        assert message is not None
        with pytest.raises(TransactionError) as caught:
            await session.commit()
        assert caught.value.code == "no-such-address"
        assert broker.of(Op.ROLLBACK)
        with pytest.raises(SettleError):
            await message.acknowledge()


@on_both_loops
async def test_rollback_discards_deliveries_until_its_answer() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"given", b"unread")
        await consumer.receive()

        def on_rollback(peer: Peer, frame: Frame) -> None:
            broker.deliver(b"void", first_tag=3)
            peer.send([Op.RESULT, frame[1], None], [Op.DELIVER, 1, 4, [[9, 2, "orders", b"again"]]])

        broker.handlers[Op.ROLLBACK] = on_rollback
        await session.rollback()
        message = await consumer.receive(timeout_ms=20_000)
        assert message is not None
        assert (message.body, message.delivery_count) == (b"again", 2)


@on_both_loops
async def test_what_an_ended_session_was_given_is_settled_by_nobody() -> None:
    with suppress(RuntimeError):
        async with connected() as (broker, connection):
            async with connection.session(AckMode.TRANSACTED) as session:
                consumer = await session.consumer("orders").ready()
                broker.deliver(b"a")
                message = await consumer.receive()
            assert message is not None
            with pytest.raises(SettleError):
                await message.acknowledge()
            raise RuntimeError("later")  # which the message last handed out is not to blame for
    assert broker.of(Op.SESSION_ENDED)
    assert not broker.of(Op.ACK)


@pytest.mark.parametrize("outcome", ["committed", "unknown"])
@on_both_loops
async def test_a_commit_whose_answer_was_lost_asks_for_its_outcome(outcome: str) -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        broker.handlers[Op.COMMIT] = lambda peer, frame: peer.drop()
        broker.handlers[Op.CALL] = lambda peer, frame: peer.send([Op.RESULT, frame[1], {"outcome": outcome}])
        await session.producer("out").send(b"x")
        if outcome == "committed":
            await session.commit()
        else:
            with pytest.raises(TransactionError) as caught:
                await session.commit()
            assert caught.value.code == "transaction-rolled-back"
            assert caught.value.connection_lost
        (call,) = broker.of(Op.CALL)
        assert call[2:] == ["transaction-outcome", {"transaction_id": broker.of(Op.COMMIT)[0][3]}]


@on_both_loops
async def test_outcome_unknown_only_when_it_cannot_be_asked() -> None:
    async with connected(reconnect=False) as (broker, connection):
        session = connection.session(AckMode.TRANSACTED)
        broker.handlers[Op.COMMIT] = lambda peer, frame: peer.drop()
        await session.producer("out").send(b"x")
        with pytest.raises(TransactionError) as caught:
            await session.commit()
        assert caught.value.code == "outcome-unknown"


@on_both_loops
async def test_a_transaction_open_over_a_lost_connection_is_rolled_back_and_says_so() -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer("out")
        await producer.send(b"x")
        await broker.seen(Op.SEND)
        broker.peer.drop()
        await broker.seen(Op.PRODUCER, 2)
        with pytest.raises(TransactionError) as caught:
            await producer.send(b"y")
        assert caught.value.code == "transaction-rolled-back"
        with pytest.raises(TransactionError):
            await session.commit()
        await producer.send(b"z")  # a new transaction
        await session.commit()
        assert broker.of(Op.COMMIT)[0][4] == 1


@on_both_loops
async def test_a_cancelled_commit_tells_its_outcome_to_the_next_call() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        commits: list[Frame] = []
        broker.handlers[Op.COMMIT] = lambda peer, frame: commits.append(frame)
        producer = session.producer("out")
        await producer.send(b"x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await session.commit()
        await broker.seen(Op.COMMIT)
        later = producer.send_nowait(b"next transaction")
        await there_and_back(connection)
        assert not later.done  # it waits for the commit
        broker.peer.send([Op.RESULT, commits[0][1], None])
        broker.handlers[Op.COMMIT] = broker.answer
        await session.commit()
        assert [frame[4] for frame in broker.of(Op.COMMIT)] == [1, 1]

        broker.handlers[Op.COMMIT] = lambda peer, frame: commits.append(frame)
        await producer.send(b"y")
        task = asyncio.create_task(session.commit())
        await broker.seen(Op.COMMIT, 3)
        task.cancel()
        broker.peer.send([Op.RESULT, commits[1][1], None])
        with pytest.raises(TransactionError) as caught:
            await session.rollback()
        assert caught.value.code == "already-committed"


@on_both_loops
async def test_given_messages_outlive_their_consumer() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a")
        await consumer.receive()
        await consumer.close()
        await session.commit()
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 1], None, 0, 1]]
        assert not session._subscriptions


@on_both_loops
async def test_close_without_commit_ends_the_session_at_the_broker() -> None:
    async with connected() as (broker, connection):
        async with connection.session(AckMode.TRANSACTED) as session:
            await session.producer("out").send(b"x")
        assert broker.of(Op.SESSION_ENDED)
        assert not broker.of(Op.COMMIT)


@on_both_loops
async def test_calls_that_do_not_fit_the_mode() -> None:
    async with connected() as (_, connection):
        async with connection.session(AckMode.TRANSACTED) as session:
            with pytest.raises(UsageError):
                await session.acknowledge()
            with pytest.raises(UsageError):
                await session.recover()
        async with connection.session(AckMode.CLIENT) as session:
            with pytest.raises(UsageError):
                await session.commit()
            with pytest.raises(UsageError):
                await session.rollback()
        assert connection.state is homing.ConnectionState.CONNECTED
