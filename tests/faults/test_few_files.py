"""A broker with hardly any file descriptors left: nothing is loaded late, and no message is in between two states."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import homing
from homing.broker.protocols.native.codec import Op, encode
from homing.client import AckMode
from tests.amqp_support import AMQP, channel
from tests.faults.hostile import Raw
from tests.process import Server, wait_until

DEAD: dict[str, Any] = {
    "address-settings": {
        "#": {
            "redelivery-delay": 0,
            "expiry-address": "EXP",
            "auto-create-expiry-resources": True,
            "max-delivery-attempts": 2,
            "traceback-redactions": ["secret[0-9]+"],
        },
        "multi.#": {"default-address-routing-type": "multicast"},
    }
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "broker", {**AMQP, **DEAD, "http": {"port": 0}})
    yield server
    server.close()


async def fail_in_every_way(url: str) -> None:
    async with await homing.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        producer = session.producer("work")
        for number in range(8):
            await producer.send(b"body", properties={"n": number}, ttl_ms=0)
        await producer.send(b"short", ttl_ms=1)
        await session.producer("multi.a").send(b"for nobody")
        failures: list[dict[str, Any]] = [
            {"reason": "no"},
            {"error": ValueError("secret42")},
            {"error": UnicodeError("\u20ac"), "retryable": False},
            {"delay_ms": 1},
            {"count": False},
        ]
        consumer = session.consumer("work", selector="n < 100 OR n IS NULL")
        for failure in [*failures, *failures]:
            message = await consumer.receive(timeout_ms=5_000)
            assert message is not None
            await message.nack(**failure)


def fail_over_amqp(server: Server) -> None:
    with channel(server) as ch:
        ch.confirm_delivery()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 1}
        ch.queue_declare("amqp", durable=True, arguments=arguments)
        ch.queue_declare("dead", durable=True)
        for _ in range(3):
            ch.basic_publish("", "amqp", b"body", pika.BasicProperties(delivery_mode=2, headers={"a": 1}, expiration="60000"))
        method, _, _ = ch.basic_get("amqp")
        assert method is not None
        ch.basic_reject(method.delivery_tag, requeue=False)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            ch.queue_declare("amqp", durable=False)


def test_nothing_is_loaded_once_clients_are_let_in(server: Server) -> None:
    server.module = "tests.faults.late_imports"
    server.start()
    asyncio.run(fail_in_every_way(server.url))
    fail_over_amqp(server)
    with Raw(server.url) as raw:
        raw.raw(b"\xff" * 64)
    for path in ("livez", "readyz", "metrics"):
        with urllib.request.urlopen(f"http://{server.ready['http']}/{path}", timeout=20) as answer:
            assert answer.status == 200
    calls: dict[str, dict[str, Any]] = {
        "queues": {},
        "peek": {"queue": "DLQ.work"},
        "redrive": {"queue": "DLQ.work"},
        "history": {"message_id": 1},
        "explain": {"address": "work"},
        "set-policy": {"name": "p", "pattern": "[", "definition": {"message-ttl": 5}},
        "create-queue": {"queue": "q", "selector": "a LIKE"},
        "reload": {},
        "statistics": {},
        "nonsense": {},
    }
    with Raw(server.url) as raw:
        for number, (verb, values) in enumerate(calls.items(), 1):
            raw.send(Op.CALL, number, verb, values)
            while (frame := raw.next()) is not None and frame[:2] not in ([Op.RESULT, number], [Op.REFUSED, number]):
                assert frame[0] != Op.ERROR, frame
    assert server.stop() == 0
    (line,) = [each for each in server.log_path.read_text().splitlines() if each.startswith("loaded late:")]
    assert line.split()[2:] == []


def test_without_a_file_descriptor_every_message_keeps_its_place(server: Server) -> None:
    server.runner = ["/bin/sh", "-c", 'ulimit -n 80; exec "$@"', "sh"]
    server.start()
    server.logged("the limit of open files is 80")
    silent: list[socket.socket] = []
    host, _, port = server.url.removeprefix("homing://").rpartition(":")

    async def work() -> None:
        async with await homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer("work")
            for number in range(20):
                await producer.send(b"%d" % number)
            for _ in range(100):
                silent.append(socket.create_connection((host, int(port))))
                silent[-1].sendall(encode([Op.HELLO, "homing", 1, {"heartbeat_ms": 0}]))
            wait_until("no file is left", lambda: len(list(Path(f"/proc/{server.pid}/fd").iterdir())) == 80)
            consumer = session.consumer("work")
            for number in range(20):
                message = await consumer.receive(timeout_ms=20_000)
                assert message is not None
                await message.nack(reason="no", retryable=number % 2 == 0)
            # The dead ones stand in their queue, the others come again.
            for _ in range(10):
                message = await consumer.receive(timeout_ms=20_000)
                assert message is not None
                await message.acknowledge()
            dead = session.consumer("DLQ.work")
            for _ in range(10):
                message = await dead.receive(timeout_ms=20_000)
                assert message is not None
                await message.acknowledge()

    asyncio.run(work())
    for each in silent:
        each.close()
    assert server.stop() == 0
    log = server.log_path.read_text()
    assert "Traceback" not in log


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(server: Server) -> None:
    server.config["limits"] = {"max-connections": 500, "max-handshakes": 100}
    server.runner = ["/bin/sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh"]
    server.start()
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    (line,) = [each for each in limits.splitlines() if each.startswith("Max open files")]
    assert int(line.split()[3]) == 728
    assert server.stop() == 0
    assert "open files" not in server.log_path.read_text()


def test_a_stop_right_after_a_start_says_nothing(server: Server) -> None:
    server.config["address-settings"] = {}
    for _ in range(4):
        server.start()
        assert server.stop() == 0
    assert [line for line in server.log_path.read_text().splitlines() if " INFO " not in line] == []
