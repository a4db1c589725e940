"""Listeners: slices, workers, failures, stopping."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode, ConsumerError, UsageError
from tests.unit.client_fake import connected, on_both_loops, there_and_back


@on_both_loops
async def test_async_handlers_are_given_as_many_as_start_now() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        go = asyncio.Event()
        running = 0
        most = 0

        async def handler(message: homing.Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await go.wait()
            running -= 1
            await message.acknowledge()

        listener = await session.listen("orders", handler, concurrency=3)
        broker.deliver(*[b"x"] * 7)
        await broker.until(lambda: broker.of(Op.GIVEN)[-1:] == [[Op.GIVEN, 1, 3]])
        await there_and_back(connection)
        assert broker.of(Op.GIVEN)[-1] == [Op.GIVEN, 1, 3]
        go.set()
        await broker.until(lambda: sum(sum(f[3][1::2]) - sum(f[3][::2]) + len(f[3]) // 2 for f in broker.of(Op.ACK)) == 7)
        assert most == 3
        await listener.stop()


@on_both_loops
async def test_single_async_handler_is_given_one_at_a_time() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        given_when_called: list[int] = []

        async def handler(message: homing.Message) -> None:
            await there_and_back(connection)
            given_when_called.append(broker.of(Op.GIVEN)[-1][2])

        await session.listen("orders", handler)
        broker.deliver(b"a", b"b", b"c")
        await broker.seen(Op.ACK, 3)
        assert given_when_called == [1, 2, 3]


@on_both_loops
async def test_plain_functions_are_called_in_growing_slices() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        seen: list[bytes] = []
        await session.listen("orders", lambda message: seen.append(message.body))
        broker.deliver(*[b"%d" % number for number in range(500)])
        await broker.until(lambda: len(seen) == 500 and sum(frame[3][-1] == 500 for frame in broker.of(Op.ACK)) == 1)
        given = [frame[2] for frame in broker.of(Op.GIVEN)]
        assert given[0] == 1
        assert given[-1] == 500
        assert max(later - earlier for earlier, later in itertools.pairwise(given)) <= 64
        assert len(given) < 100
        assert seen == [b"%d" % number for number in range(500)]


@on_both_loops
async def test_a_worker_acknowledges_only_its_own_in_client_mode() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        both = asyncio.Barrier(2)
        done = asyncio.Event()

        async def handler(message: homing.Message) -> None:
            await both.wait()
            if message.body == b"a":
                await message.acknowledge()
                done.set()
            else:
                await done.wait()
                await asyncio.sleep(0)

        await session.listen("orders", handler, concurrency=2)
        broker.deliver(b"a", b"b")
        await broker.seen(Op.ACK)
        await there_and_back(connection)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 1]]]


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.DUPS_OK, AckMode.INDIVIDUAL, AckMode.CLIENT])
@on_both_loops
async def test_a_handler_that_raises_fails_that_one_message(mode: AckMode) -> None:
    async with connected() as (broker, connection), connection.session(mode) as session:

        def handler(message: homing.Message) -> None:
            if message.body == b"bad":
                raise KeyError("no such order")

        listener = await session.listen("orders", handler)
        broker.deliver(b"good", b"bad", b"good")
        await broker.until(lambda: broker.of(Op.GIVEN)[-1:] == [[Op.GIVEN, 1, 3]])
        await listener.stop()
        failed = [frame for frame in broker.of(Op.ACK) if frame[2] == AckType.REDELIVERED]
        assert [frame[3] for frame in failed] == [[2, 2]]
        failure = failed[0][4]
        assert (failure["outcome"], failure["error_type"], failure["error_text"]) == ("listener", "KeyError", "'no such order'")
        assert "handler" in failure["traceback"]


@on_both_loops
async def test_in_a_transaction_a_handler_that_raises_rolls_back() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        producer = session.producer("out")

        async def handler(message: homing.Message) -> None:
            await producer.send(b"half done")
            if message.body == b"bad":
                raise ValueError("bad")
            await session.commit()

        listener = await session.listen("orders", handler)
        broker.deliver(b"good")
        await broker.seen(Op.COMMIT)
        broker.deliver(b"bad", first_tag=2)
        await broker.seen(Op.ROLLBACK)
        await listener.stop()
        assert broker.of(Op.COMMIT)[0][4] == 1
        failed = [frame for frame in broker.of(Op.ACK) if frame[2] == AckType.REDELIVERED]
        assert failed[0][4]["error_text"] == "bad"


@on_both_loops
async def test_what_cannot_be_listened_to() -> None:
    async with connected() as (broker, connection):
        async with connection.session(AckMode.TRANSACTED) as session:
            with pytest.raises(UsageError):
                await session.listen("orders", print, concurrency=2)
        async with connection.session(AckMode.CLIENT) as session:
            consumer = session.consumer("orders")
            await consumer.listen(print)
            with pytest.raises(ConsumerError) as caught:
                await consumer.receive()
            assert caught.value.code == "consumer-has-listener"
            with pytest.raises(ConsumerError):
                await consumer.listen(print)
        broker.handlers[Op.SUBSCRIBE] = lambda peer, frame: peer.send([Op.REFUSED, frame[1], "no-such-queue", "there is none", "make it"])
        async with connection.session(AckMode.CLIENT) as session:
            with pytest.raises(ConsumerError) as refused:
                await session.listen("orders", print)
            assert refused.value.code == "no-such-queue"


@on_both_loops
async def test_a_listener_that_holds_too_much_ends_with_an_error() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        listener = await session.listen("orders", lambda message: None, prefetch=2)
        broker.deliver(b"a", b"b", b"c")
        with pytest.raises(ConsumerError) as caught:
            await listener.wait()
        assert caught.value.code == "too-many-unacknowledged"


@on_both_loops
async def test_stop_waits_for_running_handlers_and_leaves_the_rest_unread() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        started, finish = asyncio.Event(), asyncio.Event()
        finished: list[bytes] = []

        async def handler(message: homing.Message) -> None:
            started.set()
            await finish.wait()
            finished.append(message.body)

        listener = await session.listen("orders", handler)
        broker.deliver(b"a", b"b")
        await started.wait()
        stopping = asyncio.create_task(listener.stop())
        await there_and_back(connection)
        assert not stopping.done()
        finish.set()
        await stopping
        await listener.wait()
        assert finished == [b"a"]
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 1]]]
        assert broker.of(Op.UNSUBSCRIBE)


@on_both_loops
async def test_a_handler_may_stop_its_own_listener() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        seen: list[bytes] = []

        async def handler(message: homing.Message) -> None:
            seen.append(message.body)
            await listener.stop()

        listener = await session.listen("orders", handler)
        broker.deliver(b"a", b"b")
        await asyncio.wait_for(listener.wait(), 20)
        await broker.seen(Op.ACK)
        await there_and_back(connection)
        assert seen == [b"a"]
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 1]]]


@on_both_loops
async def test_plain_functions_may_settle_without_await() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:

        def handler(message: homing.Message) -> None:
            message.nack(reason="later") if message.body == b"b" else message.acknowledge()

        await session.listen("orders", handler)
        broker.deliver(b"a", b"b")
        frames = await broker.seen(Op.ACK, 2)
        assert [(frame[2], frame[3]) for frame in frames] == [(AckType.INDIVIDUAL, [1, 1]), (AckType.REDELIVERED, [2, 2])]
