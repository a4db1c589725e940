"""A real broker with real failures of pika's, and the console beside it: of all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from examples.failure_reports.with_pika import reporting
from homing.client import blocking
from tests.amqp_support import AMQP, channel, get
from tests.console_support import Api, Fail, Visitor, book, console
from tests.process import Server, wait_until

#: Each is tried twice, at once.
SETTINGS = {"*": {"redelivery-delay": 0, "max-delivery-attempts": 2}}


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("console"), {**AMQP, "address-settings": SETTINGS})
    yield server.start()
    server.close()


@pytest.fixture(scope="package")
def address(broker: Server) -> Iterator[str]:
    with console(broker.url) as found:
        yield found


@pytest.fixture
def visitor(address: str) -> Visitor:
    found = Visitor(address)
    assert found.log_in().leads_to == "/"
    return found


@pytest.fixture
def ch(broker: Server) -> Iterator[BlockingChannel]:
    with channel(broker) as opened:
        yield opened


@pytest.fixture(scope="package")
def native(broker: Server) -> Iterator[blocking.Connection]:
    with blocking.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def fail(ch: BlockingChannel, native: blocking.Connection) -> Fail:
    """Has all of these sent to a queue, where they fail until they are dead: nobody knows their currency."""

    def dead(queue: str) -> int:
        return sum(each["messages"] for each in native.call("dead-letters") if each["queue"] == f"DLQ.{queue}")

    def run(queue: str, bodies: list[str], headers: dict[str, str] | None = None) -> None:
        before = dead(queue)
        ch.queue_declare(queue, durable=True)
        for body in bodies:
            ch.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2, headers=headers))
        for _ in range(2 * len(bodies)):
            reporting(book)(ch, *get(ch, queue, auto_ack=False))
        wait_until(f"all of {queue} are dead", lambda: dead(queue) == before + len(bodies))

    return run


@pytest.fixture
def api(address: str) -> Api:
    return Api(address)
