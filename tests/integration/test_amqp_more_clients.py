"""More clients, each as its own documentation uses it: py-amqp by itself, pika on asyncio, Debian's amqp-tools, and aio-pika's robust
connection over a crash of the broker."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aio_pika
import amqp
import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.amqp_support import AMQP, amqp_port, channel, count
from tests.process import Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
TOOLS = ("amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume", "amqp-delete-queue")


# -- py-amqp -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def py_amqp(broker: Server) -> Iterator[Any]:
    connection = amqp.Connection(f"127.0.0.1:{amqp_port(broker)}", "guest", "guest", confirm_publish=True, heartbeat=10)
    connection.connect()
    yield connection
    connection.close()


def test_py_amqp_publishes_gets_and_consumes(py_amqp: Any) -> None:
    ch = py_amqp.channel()
    ch.exchange_declare("py.x", "topic", durable=True, auto_delete=False)
    ch.queue_declare("py.q", durable=True, auto_delete=False)
    ch.queue_bind("py.q", "py.x", "a.#")
    headers = {"n": 1, "d": Decimal("1.5"), "t": datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None), "l": [1, "x"]}
    for number in range(5):
        ch.basic_publish_confirm(amqp.Message(f"{number}", application_headers=headers, delivery_mode=2), "py.x", "a.b")
    got = ch.basic_get("py.q")
    assert (got.body, got.delivery_info["routing_key"], got.headers) == ("0", "a.b", headers)
    ch.basic_ack(got.delivery_tag)
    ch.basic_qos(0, 2, False)
    seen: list[str] = []

    def take(message: Any) -> None:
        seen.append(message.body)
        ch.basic_ack(message.delivery_tag)

    tag = ch.basic_consume("py.q", callback=take)
    while len(seen) < 4:
        py_amqp.drain_events(timeout=10)
    ch.basic_cancel(tag)
    assert seen == ["1", "2", "3", "4"]
    assert ch.queue_delete("py.q") == 0


def test_py_amqp_knows_each_error_by_its_class(py_amqp: Any) -> None:
    with pytest.raises(amqp.NotFound, match=r"no queue 'py\.missing' in vhost '/'"):
        py_amqp.channel().queue_declare("py.missing", passive=True)
    with pytest.raises(amqp.AccessRefused):
        py_amqp.channel().queue_declare("amq.mine")
    with pytest.raises(amqp.PreconditionFailed):
        py_amqp.channel().exchange_declare("amq.topic", "direct", durable=True, auto_delete=False)
    ch = py_amqp.channel()
    returned: list[Any] = []
    ch.events["basic_return"].add(lambda *what: returned.append(what))
    ch.basic_publish_confirm(amqp.Message("x"), "", "py.nobody", mandatory=True)
    assert [(error.reply_code, key) for error, _, key, _ in returned] == [(312, "py.nobody")]


def test_py_amqp_in_a_transaction(py_amqp: Any, broker: Server) -> None:
    plain = amqp.Connection(f"127.0.0.1:{amqp_port(broker)}", "guest", "guest")
    plain.connect()
    ch = plain.channel()
    ch.queue_declare("py.tx", auto_delete=False)
    ch.tx_select()
    ch.basic_publish(amqp.Message("kept"), "", "py.tx")
    ch.tx_commit()
    ch.basic_publish(amqp.Message("not kept"), "", "py.tx")
    ch.tx_rollback()
    assert [ch.basic_get("py.tx", no_ack=True).body, ch.basic_get("py.tx")] == ["kept", None]
    plain.close()


# -- pika on asyncio ---------------------------------------------------------------------------------------------------


async def test_pika_on_asyncio_confirms_returns_and_consumes(broker: Server) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    confirmed: list[int] = []
    returned: list[str] = []
    got: list[bytes] = []

    def on_channel(ch: Any) -> None:
        def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(body)
            if len(got) % 10:
                ch.basic_ack(method.delivery_tag)
            else:
                ch.basic_ack(method.delivery_tag, multiple=True)
            finish()

        def on_confirm(frame: Any) -> None:
            method = frame.method
            last = confirmed[-1] if confirmed else 0
            confirmed.extend(range(last + 1, method.delivery_tag + 1) if method.multiple else [method.delivery_tag])
            finish()

        def finish() -> None:
            if len(got) == 50 and len(confirmed) == 51 and not done.done():
                done.set_result(None)

        def on_declared(frame: Any) -> None:
            queue = frame.method.queue
            ch.basic_consume(queue, on_message)
            for number in range(50):
                ch.basic_publish("", queue, str(number).encode())
            ch.basic_publish("", "asyncio.nobody", b"", mandatory=True)

        ch.add_on_return_callback(lambda _, method, properties, body: returned.append(method.routing_key))
        ch.confirm_delivery(on_confirm, lambda _: ch.queue_declare("", exclusive=True, callback=on_declared))

    parameters = pika.ConnectionParameters("127.0.0.1", amqp_port(broker))
    connection = AsyncioConnection(parameters, on_open_callback=lambda opened: opened.channel(on_open_callback=on_channel))
    await asyncio.wait_for(done, 20)
    connection.close()
    assert got == [str(number).encode() for number in range(50)]
    assert sorted(confirmed) == list(range(1, 52))
    assert returned == ["asyncio.nobody"]


# -- amqp-tools --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason="Debian's amqp-tools are not installed; enable: apt-get install amqp-tools"
)
def test_amqp_tools(broker: Server) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{amqp_port(broker)}"

    def run(tool: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        done = subprocess.run([tool, "-u", url, *arguments], input=stdin, capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("amqp-declare-queue", "-q", "tools", "-d") == (0, "tools\n", "")
    assert run("amqp-publish", "-r", "tools", "-p", "-C", "text/plain", "-b", "from the line") == (0, "", "")
    assert run("amqp-publish", "-r", "tools", "-p", stdin="from the pipe") == (0, "", "")
    assert run("amqp-publish", "-r", "tools", "-p", "-l", stdin="one\ntwo\nthree\n") == (0, "", "")
    assert run("amqp-get", "-q", "tools") == (0, "from the line", "")
    assert run("amqp-consume", "-q", "tools", "-c", "2", "-p", "1", "--", "cat") == (0, "from the pipeone\n", "")
    with channel(broker) as ch:
        assert count(ch, "tools") == 2
        assert ch.basic_get("tools", auto_ack=True)[1].delivery_mode == 2
    assert run("amqp-delete-queue", "-q", "tools") == (0, "1\n", "")
    code, _, said = run("amqp-get", "-q", "tools")
    assert code == 1
    assert "NOT_FOUND - no queue 'tools' in vhost '/'" in said


# -- aio-pika over a crash ---------------------------------------------------------------------------------------------


async def test_aio_pikas_robust_connection_goes_on_after_a_crash_with_nothing_lost(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)
    server.config["amqp"] = {"port": amqp_port(server)}
    url = f"amqp://guest:guest@127.0.0.1:{amqp_port(server)}/?reconnect_interval=0.1"
    confirmed: set[int] = set()
    seen: set[int] = set()
    enough = asyncio.Event()
    publishing, consuming = [await aio_pika.connect_robust(url, fail_fast=True) for _ in range(2)]
    async with publishing, consuming:
        ch = await publishing.channel()
        await (await ch.declare_queue("robust", durable=True)).purge()
        receiver = await consuming.channel()
        await receiver.set_qos(prefetch_count=5)
        queue = await receiver.declare_queue("robust", durable=True)

        async def take(message: Any) -> None:
            seen.add(int(message.body))
            # The acknowledgement of what came before the crash has nowhere to go.
            with suppress(aio_pika.exceptions.AMQPError, aio_pika.exceptions.ChannelInvalidStateError):
                await message.ack()

        await queue.consume(take)

        async def publish() -> None:
            number = 0
            while number < 300:
                message = aio_pika.Message(str(number).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                try:
                    await asyncio.wait_for(ch.default_exchange.publish(message, "robust"), 2)
                except (aio_pika.exceptions.AMQPError, aio_pika.exceptions.ChannelInvalidStateError, OSError, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    confirmed.add(number)
                    number += 1
                    if number == 50:
                        enough.set()

        publisher = asyncio.create_task(publish())
        await enough.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(publisher, 30)
        for _ in range(500):
            if seen == confirmed:
                break
            await asyncio.sleep(0.02)
    assert confirmed == seen == set(range(300))
