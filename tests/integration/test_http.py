"""Probes and metrics, of a real broker over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

import homing as client
from homing.broker.http.listener import MOST_OPEN
from tests.process import HomingCommand, Server

StartServer = Callable[..., Server]
HTTP = {"http": {"port": 0}}


@pytest.fixture
def observed(start_server: StartServer) -> Server:
    return start_server(HTTP)


def ask(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.ready['http']}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def figures(server: Server) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    _, text = ask(server, "/metrics")
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


def test_a_broker_that_serves_lives_and_is_ready(observed: Server, homing: HomingCommand) -> None:
    assert ask(observed, "/livez") == (200, "ok\n")
    code, said = ask(observed, "/readyz")
    assert (code, json.loads(said)) == (200, {"state": "ready", "degraded": [], "producers_wait": []})
    assert ask(observed, "/anything")[0] == 404
    url = f"http://{observed.ready['http']}"
    shown = homing("health", "--url", url)
    assert (shown.returncode, shown.stdout) == (0, "ready\n")
    observed.stop()
    gone = homing("health", "--url", url)
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "no broker says how it is" in gone.stderr


def test_a_broker_that_hangs_answers_no_probe(observed: Server) -> None:
    os.kill(observed.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(f"http://{observed.ready['http']}/livez", timeout=0.3)
    finally:
        os.kill(observed.pid, signal.SIGCONT)
    assert ask(observed, "/livez") == (200, "ok\n")


def test_a_thousand_that_say_nothing_take_no_files_and_no_answers(observed: Server) -> None:
    host, _, port = observed.ready["http"].rpartition(":")
    before = len(os.listdir(f"/proc/{observed.pid}/fd"))
    with ExitStack() as silent:
        latest = deque[socket.socket]()
        for _ in range(1000):
            latest.append(silent.enter_context(socket.create_connection((host, int(port)), timeout=20)))
            if len(latest) > 2 * MOST_OPEN:
                latest.popleft().close()
        assert ask(observed, "/livez") == (200, "ok\n")
        assert len(os.listdir(f"/proc/{observed.pid}/fd")) <= before + 2 * MOST_OPEN


async def test_what_is_counted_is_what_was_done(observed: Server) -> None:
    async with client.connect(observed.url) as connection, connection.session(client.AckMode.INDIVIDUAL) as session:
        producer = session.producer("orders")
        for _ in range(5):
            await producer.send(b"x")
        consumer = session.consumer("orders", prefetch=5)
        messages = [await consumer.receive(20_000) for _ in range(5)]
        for message in messages[:3]:
            assert message is not None
            await message.acknowledge(confirm=True)
        found = figures(observed)
    assert found["homing_messages_sent_total", ()] == 5
    assert found["homing_messages_acknowledged_total", ()] == 3
    queue = ("queue", "orders")
    assert found["homing_queue_events_total", (("event", "sent"), queue)] == 5
    assert found["homing_queue_messages", (queue, ("state", "delivering"))] == 2
    assert found["homing_queue_consumers", (queue,)] == 1
    assert found["homing_connections", ()] == 1
    assert found["homing_journal_commits_total", ()] > 0
    assert found["homing_messages_bytes", (("kind", "durable"),)] > 0
    assert 0 < found["homing_memory_bytes", (("owner", "queues"),)] < found["homing_memory_limit_bytes", ()]
    assert found["homing_disk_low", ()] == 0


async def test_what_failed_is_told_by_reason_attempts_and_time(start_server: StartServer) -> None:
    server = start_server({**HTTP, "address-settings": {"#": {"redelivery-delay": "10ms", "max-delivery-attempts": 3}}})
    async with client.connect(server.url) as connection, connection.session(client.AckMode.INDIVIDUAL) as session:
        await session.producer("orders").send(b"recovers")
        async with session.consumer("orders") as consumer:
            for attempt in (1, 2, 3):
                message = await consumer.receive(20_000)
                assert message is not None
                if attempt < 3:
                    await message.nack()
                else:
                    await message.acknowledge(confirm=True)
            await session.producer("orders").send(b"dies")
            for _ in range(3):
                message = await consumer.receive(20_000)
                assert message is not None
                await message.nack()
            await session.producer("orders").send(b"succeeds at once")
            message = await consumer.receive(20_000)
            assert message is not None
            await message.acknowledge(confirm=True)
            await session.producer("orders").send(b"is held")
            assert await consumer.receive(20_000) is not None
            await session.producer("later").send(b"is late", delay_ms=3_600_000)
            await connection.call("reload")
            found = figures(server)
    assert found["homing_messages_dead_lettered_total", (("reason", "delivery_limit"),)] == 1
    assert found["homing_messages_dead_lettered_total", (("reason", "poison"),)] == 0
    events = {name: found["homing_events_total", (("event", name), ("outcome", "made"))] for name in ("fault.new", "disk.low")}
    assert events == {"fault.new": 1, "disk.low": 0}
    assert found["homing_queue_messages", (("queue", "DLQ.orders"), ("state", "dead"))] == 1
    assert found["homing_queue_messages", (("queue", "DLQ.orders"), ("state", "ready"))] == 0
    assert found["homing_queue_messages", (("queue", "later"), ("state", "scheduled"))] == 1
    attempts = {bound: found["homing_attempts_to_success_bucket", (("le", bound),)] for bound in ("1.0", "2.0", "3.0", "+Inf")}
    assert attempts == {"1.0": 1, "2.0": 1, "3.0": 2, "+Inf": 2}
    assert found["homing_attempts_to_success_sum", ()] == 4
    assert found["homing_due_lateness_seconds_count", ()] == 4
    assert found["homing_due_lateness_seconds_bucket", (("le", "600.0"),)] == 4
    assert 3500 < found["homing_next_due_seconds", ()] <= 3600
    assert found["homing_queue_oldest_held_seconds", (("queue", "orders"),)] >= 0
    assert found["homing_queue_oldest_ready_seconds", (("queue", "DLQ.orders"),)] >= 0
    assert found["homing_journal_sync_seconds_total", ()] < found["homing_journal_commit_seconds_total", ()]
    assert found["homing_disk_free_bytes", ()] > 0
    assert found["homing_journal_database_bytes", ()] > 0
    assert found["homing_loop_lag_seconds_count", ()] > 0
    for kind in ("sweep", "reload"):
        assert found["homing_step_seconds_count", (("kind", kind),)] > 0
    assert found["process_resident_memory_bytes", ()] > 0


def test_a_file_without_the_section_has_no_such_port(start_server: StartServer) -> None:
    assert "http" not in start_server().ready
