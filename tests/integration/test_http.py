"""Probes and metrics, of a real broker over HTTP."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

import homing as client
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
    assert (code, json.loads(said)) == (200, {"state": "ready", "degraded": []})
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
    assert found["homing_messages_succeeded_total", ()] == 3
    queue = ("queue", "orders")
    assert found["homing_queue_events_total", (("event", "sent"), queue)] == 5
    assert found["homing_queue_messages", (queue, ("state", "delivering"))] == 2
    assert found["homing_queue_consumers", (queue,)] == 1
    assert found["homing_connections", ()] == 1
    assert found["homing_journal_commits_total", ()] > 0
    assert found["homing_memory_bytes", (("kind", "durable"),)] > 0
    assert found["homing_disk_low", ()] == 0


def test_a_file_without_the_section_has_no_such_port(start_server: StartServer) -> None:
    assert "http" not in start_server().ready
