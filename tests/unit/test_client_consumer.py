"""Consumers: what is on the wire before the application gets a message, and each ack mode's frames."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import AckMode, ConsumerError, ReconnectPolicy, RedeliveryPolicy, SettleError, UsageError
from tests.unit.client_fake import FakeBroker, Frame, connected, on_both_loops, there_and_back

FAST = ReconnectPolicy(initial_delay_ms=1, maximum_delay_ms=5)


async def take(consumer: homing.Consumer, count: int = 1) -> list[homing.Message]:
    messages = [await consumer.receive(timeout_ms=20_000) for _ in range(count)]
    assert None not in messages
    return [message for message in messages if message is not None]


def settling(broker: FakeBroker) -> list[Frame]:
    return broker.of(Op.GIVEN, Op.ACK)


@on_both_loops
async def test_subscribe_carries_its_options() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        policy = RedeliveryPolicy(maximum_redeliveries=2)
        await session.consumer("orders", prefetch=10, selector="k = 'v'", redelivery_policy=policy).ready()
        frame = broker.of(Op.SUBSCRIBE)[0]
        assert frame[2:4] == [1, "orders"]
        assert frame[4] == {
            "prefetch": 10,
            "selector": "k = 'v'",
            "redelivery_policy": policy.to_wire(),
            "session": 1,
            "transacted": True,
        }


@on_both_loops
async def test_message_has_what_the_broker_sent() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        consumer = await session.consumer("orders").ready()
        broker.peer.send([Op.DELIVER, 1, 1, [[7, 1, "orders", b"a"], [8, 3, "stock", b"b", {"k": 1}, 9, 11, 0, False]]])
        first, second = await take(consumer, 2)
        assert (first.message_id, first.body, first.properties, first.address, first.priority) == (7, b"a", {}, "orders", 4)
        assert (first.delivery_count, first.redelivered, first.durable) == (1, False, True)
        assert (second.properties, second.priority, second.sent_at_ms, second.durable) == ({"k": 1}, 9, 11, False)
        assert (second.delivery_count, second.redelivered) == (3, True)


@on_both_loops
async def test_messages_that_differ_only_in_their_bodies_may_come_as_these() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        assert broker.of(Op.HELLO)[0][3]["joins_bodies"] is True
        consumer = await session.consumer("orders").ready()
        broker.peer.send([Op.DELIVER_BODIES, 1, 5, 70, 2, "orders.eu", 6, 11, False, [b"a", b"b"]])
        first, second = await take(consumer, 2)
        assert (first.message_id, first.body, first.properties, first.address, first.priority) == (70, b"a", {}, "orders.eu", 6)
        assert (first.delivery_count, first.durable, first.sent_at_ms, first.expires_at_ms) == (2, False, 11, 0)
        assert (second.message_id, second.body) == (71, b"b")
        await second.acknowledge()
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.INDIVIDUAL, [6, 6]]]


@on_both_loops
async def test_auto_acknowledges_before_handing_over() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a", b"b")
        message = (await take(consumer))[0]
        await broker.seen(Op.ACK)
        assert settling(broker) == [[Op.ACK, 1, AckType.STANDARD, [1, 1]]]
        await message.acknowledge()  # nothing to do
        with pytest.raises(SettleError) as caught:
            await message.nack()
        assert caught.value.code == "not-held"


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.INDIVIDUAL])
@on_both_loops
async def test_the_report_is_with_the_kernel_before_the_message_is_with_the_application(mode: AckMode) -> None:
    async with connected() as (broker, connection), connection.session(mode) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a")
        peer = broker.peer.transport
        assert peer is not None
        wire = connection.wire
        assert wire is not None
        peer.pause_reading()
        filler = asyncio.create_task(connection.call("noise", data=b"x" * 12_000_000))  # more than the socket buffers hold
        async with asyncio.timeout(10):
            while not wire.unflushed(wire.written):  # noqa: ASYNC110 - the sockets' buffers fill
                await asyncio.sleep(0)
        receiving = asyncio.create_task(consumer.receive(timeout_ms=20_000))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not receiving.done()
        peer.resume_reading()
        assert await receiving is not None
        assert not wire.unflushed(wire.written)
        await filler
        await broker.until(lambda: bool(settling(broker)))


@on_both_loops
async def test_given_is_read_by_the_broker_even_if_the_handler_never_gives_the_loop_a_turn() -> None:
    """What os.kill at once would leave behind: nothing in user space."""
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        seen: list[bytes] = []

        def handler(message: homing.Message) -> None:
            raw = broker.peer.transport.get_extra_info("socket")  # type: ignore[union-attr]
            probe = socket.socket(fileno=socket.dup(raw.fileno()))
            with probe:
                seen.append(probe.recv(100, socket.MSG_PEEK))

        listener = await session.listen("orders", handler)
        broker.deliver(b"a")
        await broker.seen(Op.GIVEN)
        await listener.stop()
        assert seen[0].endswith(bytes([0x93, Op.GIVEN, 1, 1]))


@on_both_loops
async def test_client_mode_settles_everything_the_session_was_given() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        one, two = await session.consumer("orders").ready(), await session.consumer("stock").ready()
        broker.deliver(b"a", b"b", b"c")
        broker.deliver(b"x", consumer=2)
        await take(one, 2)
        message = (await take(two))[0]
        await message.acknowledge()
        await broker.seen(Op.ACK, 2)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 2]], [Op.ACK, 2, AckType.STANDARD, [1, 1]]]
        await take(one)
        await two.acknowledge()
        await one.acknowledge()
        frames = await broker.seen(Op.ACK, 3)
        assert frames[2:] == [[Op.ACK, 1, AckType.STANDARD, [3, 3]]]


@on_both_loops
async def test_individual_in_any_order_one_frame_a_turn() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(*[b"%d" % number for number in range(1, 7)])
        messages = await take(consumer, 6)
        for index in (5, 0, 1, 2):
            await messages[index].acknowledge()
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.INDIVIDUAL, [1, 3, 6, 6]]]
        with pytest.raises(SettleError):
            await messages[0].acknowledge()


@on_both_loops
async def test_dups_ok_acknowledges_at_half_the_prefetch_and_at_close() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.DUPS_OK) as session:
        consumer = await session.consumer("orders", prefetch=10).ready()
        broker.deliver(*[b"x"] * 7)
        await take(consumer, 7)
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 5]]]
        await consumer.close()
        assert broker.of(Op.ACK)[1:] == [[Op.ACK, 1, AckType.STANDARD, [6, 7]]]
        assert broker.frames[-1][0] == Op.UNSUBSCRIBE


@pytest.mark.parametrize("options", [{}, {"optimize_acknowledge": True}])
@on_both_loops
async def test_lazy_acknowledgements_leave_after_300_ms(options: dict[str, bool]) -> None:
    mode = AckMode.AUTO if options else AckMode.DUPS_OK
    async with connected(**options) as (broker, connection), connection.session(mode) as session:
        consumer = await session.consumer("orders").ready()
        started = time.monotonic()
        broker.deliver(b"x")
        await take(consumer)
        await broker.seen(Op.ACK)
        assert time.monotonic() - started > 0.2
        assert settling(broker) == [[Op.GIVEN, 1, 1], [Op.ACK, 1, AckType.STANDARD, [1, 1]]]


@on_both_loops
async def test_optimize_acknowledge_waits_for_65_percent() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        consumer = await session.consumer("orders?optimizeAcknowledge=true", prefetch=100).ready()
        broker.deliver(*[b"x"] * 66)
        await take(consumer, 66)
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK)[0] == [Op.ACK, 1, AckType.STANDARD, [1, 65]]
        with pytest.raises(UsageError):
            session.consumer("orders", prefetch=0, optimize_acknowledge=True)


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.TRANSACTED])
@on_both_loops
async def test_a_full_window_is_an_error_not_a_hang(mode: AckMode) -> None:
    async with connected() as (broker, connection), connection.session(mode) as session:
        consumer = await session.consumer("orders", prefetch=4).ready()
        broker.deliver(*[b"x"] * 6)
        await take(consumer, 6)
        await broker.seen(Op.ACK, 3)
        assert [Op.ACK, 1, AckType.DELIVERED, [1, 2]] in broker.of(Op.ACK)
        with pytest.raises(ConsumerError) as caught:
            await consumer.receive()
        assert caught.value.code == "too-many-unacknowledged"


@on_both_loops
async def test_a_second_waiting_receiver_is_told_when_the_window_fills() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        consumer = await session.consumer("orders", prefetch=1).ready()
        tasks = [asyncio.create_task(consumer.receive()) for _ in range(2)]
        await there_and_back(connection)
        broker.deliver(b"only")
        first, second = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, homing.Message)
        assert isinstance(second, ConsumerError)


@on_both_loops
async def test_nack_kinds() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(*[b"x"] * 5)
        one, two, three, four, five = await take(consumer, 5)
        await one.nack()
        await two.nack(retryable=False, reason="poison")
        await three.nack(count=False, until_ms=123)
        await four.release()
        await five.touch()
        with pytest.raises(UsageError):
            await five.nack(delay_ms=1, until_ms=2)
        await broker.seen(Op.TOUCH)
        assert broker.of(Op.ACK) == [
            [Op.ACK, 1, AckType.REDELIVERED, [1, 1], {"outcome": "nack"}],
            [Op.ACK, 1, AckType.POISON, [2, 2], {"outcome": "nack", "reason": "poison", "retryable": False}],
            [Op.ACK, 1, AckType.REDELIVERED, [3, 3], {"outcome": "nack", "count": False, "until_ms": 123}],
            [Op.ACK, 1, AckType.UNMATCHED, [4, 4]],
        ]


@on_both_loops
async def test_recover_returns_what_was_given() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a", b"b", b"c")
        messages = await take(consumer, 2)
        await session.recover()
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.REDELIVERED, [1, 2], {"outcome": "recover"}]]
        with pytest.raises(SettleError):
            await messages[0].acknowledge()
        assert (await take(consumer))[0].body == b"c"


@on_both_loops
async def test_confirmed_acknowledgement_waits_and_tells_what_was_not_held() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a", b"b")
        await take(consumer, 1)
        await session.acknowledge(confirm=True)
        assert broker.of(Op.ACK)[0][5] > 0
        broker.handlers[Op.ACK] = lambda peer, frame: peer.send([Op.RESULT, frame[5], {"not_held": [2, 2]}])
        message = (await take(consumer))[0]
        with pytest.raises(SettleError) as caught:
            await message.acknowledge(confirm=True)
        assert caught.value.code == "not-held"


@on_both_loops
async def test_leaving_the_block_by_an_exception_fails_the_message_last_handed_out() -> None:
    async with connected() as (broker, connection):

        async def block() -> None:
            async with connection.session(AckMode.CLIENT) as session:
                consumer = await session.consumer("orders").ready()
                broker.deliver(b"a", b"b")
                await take(consumer, 2)
                raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await block()
        (frame,) = broker.of(Op.ACK)
        assert frame[2:4] == [AckType.REDELIVERED, [2, 2]]
        assert (frame[4]["outcome"], frame[4]["error_type"], frame[4]["error_text"]) == ("error", "ValueError", "broken")
        assert "raise ValueError" in frame[4]["traceback"]
        assert broker.of(Op.UNSUBSCRIBE)


@on_both_loops
async def test_pull_asks_for_one_and_hears_of_nothing() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders", prefetch=0).ready()
        pulling = asyncio.create_task(consumer.receive())
        await broker.seen(Op.PULL)
        assert broker.of(Op.PULL) == [[Op.PULL, 1, -1]]
        broker.deliver(b"a")
        assert (await pulling) is not None
        broker.handlers[Op.PULL] = lambda peer, frame: peer.send([Op.PULL_EMPTY, 1])
        assert await consumer.receive(timeout_ms=0) is None
        assert broker.of(Op.PULL)[1] == [Op.PULL, 1, 0]
        with pytest.raises(UsageError):
            await session.listen("orders", print, prefetch=0)


@on_both_loops
async def test_a_cancelled_pull_is_used_by_the_next_receive() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders", prefetch=0).ready()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await consumer.receive()
        await broker.seen(Op.PULL)
        await there_and_back(connection)
        assert len(broker.of(Op.PULL)) == 1
        broker.deliver(b"a")
        assert (await take(consumer))[0].body == b"a"


@on_both_loops
async def test_cancelled_receives_neither_lose_nor_double() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.AUTO) as session:
        consumer = await session.consumer("orders").ready()
        got: list[bytes] = []

        async def impatient() -> None:
            while len(got) < 200:
                try:
                    async with asyncio.timeout(0.0005):
                        message = await consumer.receive()
                        assert message is not None
                        got.append(message.body)
                except TimeoutError:
                    continue

        readers = [asyncio.create_task(impatient()) for _ in range(3)]
        for number in range(200):
            broker.deliver(b"%d" % number, first_tag=number + 1)
            if number % 3 == 0:
                await asyncio.sleep(0.0007)
        await broker.until(lambda: len(broker.of(Op.ACK)) == 200)
        await asyncio.wait_for(asyncio.gather(*readers), 20)
        assert sorted(got) == sorted(b"%d" % number for number in range(200))


@on_both_loops
async def test_expired_while_it_waited_here_is_not_handed_out() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"old", expires_at_ms=1)
        broker.deliver(b"new", first_tag=2)
        assert (await take(consumer))[0].body == b"new"
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.EXPIRED, [1, 1]]]


@on_both_loops
async def test_messages_of_a_lost_connection_are_void() -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session(AckMode.CLIENT) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a", b"unread")
        message = (await take(consumer))[0]
        broker.peer.drop()
        await broker.seen(Op.SUBSCRIBE, 2)
        with pytest.raises(SettleError) as caught:
            await message.acknowledge()
        assert caught.value.code == "not-held"
        assert caught.value.connection_lost
        broker.deliver(b"a again", count=2)
        again = (await take(consumer))[0]
        assert again.redelivered
        await again.acknowledge()
        await broker.seen(Op.ACK)
        assert broker.of(Op.ACK) == [[Op.ACK, 1, AckType.STANDARD, [1, 1]]]


@on_both_loops
async def test_refused_and_cancelled_consumers_say_so() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        consumer = await session.consumer("orders").ready()
        waiting = asyncio.create_task(consumer.receive())
        await there_and_back(connection)
        broker.peer.send([Op.CANCELLED, 1, "queue-deleted", "orders was deleted", "nothing"])
        with pytest.raises(ConsumerError) as caught:
            await waiting
        assert caught.value.code == "queue-deleted"
        broker.handlers[Op.SUBSCRIBE] = lambda peer, frame: peer.send([Op.REFUSED, frame[1], "no-such-queue", "there is none", "make it"])
        with pytest.raises(ConsumerError) as refused:
            await session.consumer("nowhere").receive()
        assert refused.value.code == "no-such-queue"


@on_both_loops
async def test_async_for_ends_when_the_consumer_is_closed() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a", b"b")
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 2:
                await consumer.close()
        assert bodies == [b"a", b"b"]


@on_both_loops
async def test_late_acknowledgements_are_logged_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (broker, connection), connection.session(AckMode.CLIENT) as session:
        await session.consumer("orders").ready()
        broker.peer.send([Op.NOT_HELD, 1, [3, 4]])
        await there_and_back(connection)
    assert "[3, 4]" in caplog.text


@on_both_loops
async def test_browser_pages_through_peek() -> None:
    async with connected() as (broker, connection), connection.session() as session:
        pages = {
            None: {"messages": [{"message_id": 1}, {"message_id": 2}], "next": [0, 2]},
            2: {"messages": [{"message_id": 3}], "next": None},
        }

        def peek(peer: object, frame: Frame) -> None:
            after = frame[3]["after"]
            broker.peer.send([Op.RESULT, frame[1], pages[after and after[1]]])

        broker.handlers[Op.CALL] = peek
        assert [entry["message_id"] async for entry in session.browser("orders")] == [1, 2, 3]


@on_both_loops
async def test_a_pull_whose_message_was_void_by_a_rollback_is_asked_for_again() -> None:
    async with connected() as (broker, connection), connection.session(AckMode.TRANSACTED) as session:
        consumer = await session.consumer("orders", prefetch=0).ready()
        pulling = asyncio.create_task(consumer.receive())
        await broker.seen(Op.PULL)
        broker.silent(Op.ROLLBACK)
        rolling_back = asyncio.create_task(session.rollback())
        rollback = (await broker.seen(Op.ROLLBACK))[0]
        broker.deliver(b"void")
        broker.peer.send([Op.RESULT, rollback[1], None])
        await rolling_back
        await broker.seen(Op.PULL, 2)
        broker.deliver(b"again", first_tag=2)
        message = await asyncio.wait_for(pulling, 20)
        assert message is not None
        assert message.body == b"again"
