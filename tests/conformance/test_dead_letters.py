"""Three programs that are well known among users of dead-letter exchanges, side by side with RabbitMQ where it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.amqp_support import AMQP, amqp_port
from tests.conformance import rabbitmq
from tests.process import ROOT, Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("homing"), {**AMQP, "address-settings": {}})
    yield server.start()
    server.close()


@pytest.fixture(scope="module")
def rabbit_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int | None]:
    """Where a real RabbitMQ listens; None where none is asked for, and then ours alone is held against the documentation."""
    if not rabbitmq.asked_for():
        yield None
        return
    server = rabbitmq.RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    try:
        yield server.start().port
    finally:
        server.close()


def run_program(name: str, port: int) -> dict[str, Any]:
    command = [sys.executable, "-m", f"examples.rabbitmq_dead_letters.{name}", "--port", str(port)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


@pytest.mark.parametrize(
    ("name", "reason", "body", "left", "seconds"),
    [
        ("rejected", "rejected", "cannot be handled", 0, 0),
        ("expired", "expired", "too late", 0, 5),
        ("overflow", "maxlen", "message 1", 5, 0),
    ],
)
def test_the_well_known_programs(
    broker: Server, rabbit_port: int | None, name: str, reason: str, body: str, left: int, seconds: int
) -> None:
    ours = run_program(name, amqp_port(broker))
    death = {
        "count": 1,
        "reason": reason,
        "queue": "normal.queue.test",
        "exchange": "normal.exchange.test",
        "routing-keys": ["prefix.normal.routing.key"],
    }
    # Not before its time; the machine may add its own.
    assert seconds <= ours.pop("seconds") < seconds + 30
    assert ours == {
        "body": body,
        "exchange": "dl.exchange.test",
        "routing_key": "dl.routing.key",
        "x-death": [death],
        "x-first-death-exchange": "normal.exchange.test",
        "x-first-death-queue": "normal.queue.test",
        "x-first-death-reason": reason,
        "left": left,
    }
    if rabbit_port is not None:
        theirs = run_program(name, rabbit_port)
        theirs.pop("seconds")
        assert ours == theirs
