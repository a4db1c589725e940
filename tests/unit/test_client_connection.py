"""Connections: login, heartbeats, coming back, closing."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import subprocess
import sys
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import AckType, Op
from homing.client import (
    AckMode,
    CloseIncomplete,
    ConnectError,
    ConnectionLost,
    ConnectionState,
    ReconnectPolicy,
    RedeliveryPolicy,
    UsageError,
)
from homing.client.reconnect import NEVER
from tests.pauses import tried_again
from tests.process import free_port
from tests.unit.client_fake import Frame, connected, fake_broker, on_both_loops

FAST = ReconnectPolicy(initial_delay_ms=1, maximum_delay_ms=5)


def test_import_stays_light() -> None:
    heavy = ["aiosqlite", "pydantic", "pyarrow", "uvloop", "typer", "homing.broker.broker", "journal"]
    program = f"import sys, homing, homing.client.blocking; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@on_both_loops
async def test_hello_says_who_and_how() -> None:
    async with fake_broker() as broker:
        policy = RedeliveryPolicy(maximum_redeliveries=1)
        url = broker.url.replace("//", "//ann:p%40ss@") + "?redeliveryPolicy.maximumRedeliveries=9&heartbeatMs=500"
        connection = await homing.connect(url, redelivery_policies={"orders.#": policy}, heartbeat_ms=7, product="test")
        await connection.close()
        _, magic, version, options = broker.of(Op.HELLO)[0]
        assert (magic, version) == ("homing", 1)
        assert (options["user"], options["password"], options["product"]) == ("ann", "p@ss", "test")
        assert options["heartbeat_ms"] == 500
        assert options["redelivery_policies"]["orders.#"]["maximum_redeliveries"] == 1
        assert options["redelivery_policies"]["#"]["maximum_redeliveries"] == 9


@on_both_loops
async def test_await_and_async_with_are_the_same() -> None:
    async with fake_broker() as broker:
        connection = await homing.connect(broker.url)
        async with connection as same:
            assert same is connection
            states = [connection.state]
        assert [*states, connection.state] == [ConnectionState.CONNECTED, ConnectionState.CLOSED]
        with pytest.raises(UsageError) as caught:
            connection.session()
        assert caught.value.code == "connection-closed"
        assert len(broker.of(Op.HELLO)) == 1


@on_both_loops
async def test_nobody_there_is_told_at_once() -> None:
    async with fake_broker() as broker:
        url = broker.url
    with pytest.raises(ConnectError) as caught:
        await homing.connect(url)
    assert caught.value.code == "no-broker"
    with pytest.raises(UsageError):
        homing.connect(url).session()


@on_both_loops
async def test_refused_login_is_not_tried_again() -> None:
    async with fake_broker() as broker:
        broker.handlers[Op.HELLO] = lambda peer, frame: peer.send([Op.ERROR, "login-refused", "wrong password", "check it"])
        with pytest.raises(ConnectError) as caught:
            await homing.connect(broker.url, reconnect=ReconnectPolicy(first_attempts=5))
        assert caught.value.code == "login-refused"
        assert len(broker.peers) == 1


@on_both_loops
async def test_silence_at_login_times_out() -> None:
    async with fake_broker() as broker:
        broker.silent(Op.HELLO)
        with pytest.raises(ConnectError) as caught:
            await homing.connect(broker.url, connect_timeout_ms=50)
        assert caught.value.code == "connect-timeout"


@pytest.mark.plain
@on_both_loops
async def test_of_several_hosts_none_is_waited_for_long_and_each_longer_where_all_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.client.connection._AMONG_HOSTS_MS", 20.0)
    async with fake_broker() as paused, fake_broker() as slow:
        paused.silent(Op.HELLO)
        slow.handlers[Op.HELLO] = lambda peer, frame: slow.on_hello(peer, frame) if len(slow.of(Op.HELLO)) > 2 else None
        several = f"{paused.url},127.0.0.1:{slow.port}"
        async with homing.connect(several) as connection:
            assert connection.state is ConnectionState.CONNECTED
        assert len(paused.peers) >= len(slow.peers) >= 3
        before = len(paused.peers)
        slow.handlers[Op.HELLO] = lambda peer, frame: peer.send([Op.ERROR, "no-leader", "no other leads", "come again"])
        with pytest.raises(ConnectError) as caught:
            await homing.connect(several)
        assert caught.value.code == "no-leader"
        assert len(paused.peers) == before + 1


@pytest.mark.plain
@on_both_loops
@pytest.mark.parametrize("silent_first", [True, False])
async def test_a_host_that_listens_again_is_found_while_a_silent_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, silent_first: bool
) -> None:
    """Which has as long as it may take, an hour, and is asked no third time."""
    monkeypatch.setattr("homing.client.connection._AMONG_HOSTS_MS", 20.0)
    async with fake_broker() as paused:
        paused.silent(Op.HELLO)
        again = free_port()
        places = [f"127.0.0.1:{paused.port}", f"127.0.0.1:{again}"]
        hosts = ",".join(places if silent_first else reversed(places))
        connecting = asyncio.ensure_future(homing.connect(f"homing://{hosts}", connect_timeout_ms=3_600_000))
        while len(paused.of(Op.HELLO)) < 2:  # noqa: ASYNC110 - the first was given 20 ms
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        async with fake_broker(port=again), asyncio.timeout(20):
            await (await connecting).close()
        assert len(paused.of(Op.HELLO)) == 2


@on_both_loops
@pytest.mark.parametrize("turns", [1, 2])
async def test_connecting_that_is_given_up_leaves_nothing_to_complain_of(turns: int) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connecting = asyncio.create_task(_connect(f"homing://127.0.0.1:{silent.getsockname()[1]}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        del connecting
        gc.collect()
    assert complaints == []


@on_both_loops
async def test_first_attempts_wait_for_a_broker_that_is_late() -> None:
    async with fake_broker() as broker:
        broker.handlers[Op.HELLO] = lambda peer, frame: peer.send([Op.ERROR, "broker-stopping", "not yet", "wait"])
        connecting = asyncio.create_task(_connect(broker.url))
        await broker.until(lambda: len(broker.peers) >= 2)
        assert not connecting.done()
        refused = len(broker.of(Op.HELLO))
        broker.handlers[Op.HELLO] = broker.on_hello
        connection = await connecting
        assert connection.state is ConnectionState.CONNECTED
        assert len(broker.of(Op.HELLO)) == refused + 1
        await connection.close()


async def _connect(url: str) -> homing.Connection:
    return await homing.connect(url, reconnect=ReconnectPolicy(initial_delay_ms=1, first_attempts=50))


@on_both_loops
async def test_heartbeats_go_out_and_silence_is_noticed() -> None:
    async with fake_broker() as broker:
        broker.heartbeat_ms = 40
        states: list[ConnectionState] = []
        connection = await homing.connect(broker.url, reconnect=FAST)
        connection.on_state.append(states.append)
        await broker.seen(Op.HEARTBEAT, 2)
        await broker.until(lambda: len(broker.peers) >= 2)  # the fake broker never says a word
        assert connection.last_error is not None
        assert connection.last_error.code == "heartbeat-missed"
        assert states[0] is ConnectionState.RECONNECTING
        broker.heartbeat_ms = 0
        await connection.close()


@on_both_loops
async def test_reconnect_gives_up_as_told() -> None:
    async with fake_broker() as broker:
        policy = ReconnectPolicy(maximum_attempts=2, initial_delay_ms=1)
        connection = await homing.connect(broker.url, reconnect=policy)
        session = connection.session()
        consumer = await session.consumer("orders").ready()
        broker.handlers[Op.HELLO] = lambda peer, frame: peer.drop()
        broker.peer.drop()
        with pytest.raises(ConnectionLost):
            await consumer.receive()
        assert connection.state is ConnectionState.FAILED
        assert len(broker.peers) == 3
        with pytest.raises(ConnectionLost):
            await connection.call("queues")
        for opens in (session.producer, session.consumer):
            with pytest.raises(ConnectionLost):
                opens("orders")
        await asyncio.wait_for(connection.close(), 20)


@on_both_loops
async def test_taken_over_does_not_come_back() -> None:
    """Unless its id is its own: then it was an older attempt of itself."""
    for client_id, comes_to in (("ours", ConnectionState.FAILED), (None, ConnectionState.CONNECTED)):
        async with connected(reconnect=FAST, client_id=client_id) as (broker, connection):
            over = asyncio.Event()
            connection.on_state.append(lambda state, wanted=comes_to, over=over: over.set() if state is wanted else None)  # type: ignore[misc]
            broker.peer.send([Op.ERROR, "taken-over", "the same client has connected again", "nothing"])
            broker.peer.transport.close()  # type: ignore[union-attr]
            await asyncio.wait_for(over.wait(), 20)
            assert len(broker.peers) == (1 if client_id else 2)


@on_both_loops
async def test_calls_and_their_refusals() -> None:
    async with connected() as (broker, connection):
        assert await connection.call("peek", queue="orders", limit=1) == {"verb": "peek", "arguments": {"queue": "orders", "limit": 1}}
        broker.handlers[Op.CALL] = lambda peer, frame: peer.send([Op.REFUSED, frame[1], "no-such-queue", "there is none", "make it"])
        with pytest.raises(homing.CallError) as caught:
            await connection.call("purge", queue="x")
        assert (caught.value.code, caught.value.fix) == ("no-such-queue", "make it")
        with pytest.raises(UsageError):
            await connection.call("peek", queue=object())


@pytest.mark.parametrize("frame", [[99], [Op.RESULT], [Op.CONFIRM, 1, 2, None, "surplus"], [Op.WELCOME, 1, {}]])
@on_both_loops
async def test_frames_of_the_wrong_shape_end_the_connection(frame: Frame) -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session() as session:
        session.producer("orders")
        await broker.seen(Op.PRODUCER)
        broker.peer.send(frame)
        await broker.until(lambda: len(broker.peers) == 2)
        assert connection.last_error is not None
        assert connection.last_error.code == "malformed-frame"


@on_both_loops
async def test_close_flushes_sends_and_held_acknowledgements_first() -> None:
    async with fake_broker() as broker:
        connection = await homing.connect(broker.url)
        session = connection.session(AckMode.DUPS_OK)
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a")
        await consumer.receive()
        session.producer("out").send_nowait(b"x")
        await connection.close()
        assert [frame[0] for frame in broker.frames[-3:]] == [Op.SEND, Op.ACK, Op.CLOSE]
        assert broker.of(Op.ACK)[0][2] == AckType.STANDARD


@pytest.mark.parametrize("what", ["connection", "session"])
@on_both_loops
@tried_again
async def test_close_is_bounded_and_reports_what_stayed_unknown(what: str) -> None:
    async with fake_broker() as broker:
        broker.silent(Op.SEND)
        connection = await homing.connect(broker.url)
        session = connection.session()
        producer = session.producer("orders")
        for _ in range(3):
            producer.send_nowait(b"x")
        with pytest.raises(CloseIncomplete) as caught:
            await (session if what == "session" else connection).close(timeout_ms=500)
        assert caught.value.unconfirmed_sends == 3
        assert caught.value.answered
        await connection.close()


@on_both_loops
async def test_close_without_an_answer_says_so() -> None:
    async with fake_broker() as broker:
        broker.silent(Op.CLOSE)
        connection = await homing.connect(broker.url)
        with pytest.raises(CloseIncomplete) as caught:
            await connection.close(timeout_ms=50)
        assert not caught.value.answered
        assert connection.state is ConnectionState.CLOSED


@pytest.mark.parametrize("held", [False, True])
@on_both_loops
async def test_a_broker_that_ends_the_connection_meanwhile_leaves_only_sessions_in_doubt(held: bool) -> None:
    async with fake_broker() as broker:
        broker.handlers[Op.CLOSE] = lambda peer, frame: peer.drop()
        connection = await homing.connect(broker.url)
        if not held:
            await connection.close()
            return
        await connection.session().consumer("orders").ready()
        with pytest.raises(CloseIncomplete):
            await connection.close()


@on_both_loops
async def test_leaving_by_an_exception_keeps_that_exception() -> None:
    async with fake_broker() as broker:
        broker.silent(Op.CLOSE)

        async def block() -> None:
            async with homing.connect(broker.url, close_timeout_ms=50):
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine") as caught:
            await block()
        assert "close-incomplete" in caught.value.__notes__[0]


@on_both_loops
async def test_confirmed_acknowledgement_over_a_lost_connection_is_told() -> None:
    async with connected(reconnect=FAST) as (broker, connection), connection.session(AckMode.CLIENT) as session:
        consumer = await session.consumer("orders").ready()
        broker.deliver(b"a")
        message = await consumer.receive()
        assert message is not None
        broker.handlers[Op.ACK] = lambda peer, frame: peer.drop()
        with pytest.raises(ConnectionLost) as caught:
            await message.acknowledge(confirm=True)
        assert caught.value.connection_lost


def test_back_off_grows_is_jittered_and_bounded() -> None:
    policy = ReconnectPolicy(initial_delay_ms=100, maximum_delay_ms=1000)
    rng = random.Random(7)
    waits = [policy.delay_ms(attempt, rng) for attempt in range(1, 10)]
    assert all(50 <= wait <= 1000 for wait in waits)
    assert 100 <= waits[1] <= 200
    assert 500 <= waits[8] <= 1000
    assert policy.delay_ms(10**9, rng) <= 1000
    assert not policy.gives_up(10**9, 1e12), "without a limit, never"
    assert ReconnectPolicy(maximum_time_ms=120_000).gives_up(5, 120_001)
    assert not policy.gives_up(10**6, 0)
    assert NEVER.gives_up(1, 0)
    with pytest.raises(UsageError):
        ReconnectPolicy(first_attempts=0)


@on_both_loops
async def test_blocked_sockets_do_not_stop_closing() -> None:
    async with fake_broker() as broker:
        connection = await homing.connect(broker.url)
        transport = broker.peer.transport
        assert transport is not None
        transport.pause_reading()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(connection.call("noise", data=b"x" * 12_000_000))]
        wire = connection.wire
        assert wire is not None
        while not wire.unflushed(wire.written):  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0)
        with pytest.raises(CloseIncomplete):
            await connection.close(timeout_ms=100)
        (result,) = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(result, homing.HomingError)
