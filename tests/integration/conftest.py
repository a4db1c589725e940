"""What tests of AMQP share: a broker for a file's tests, and a channel for each; and a PostgreSQL for those of a cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.amqp_support import AMQP, channel
from tests.postgresql import Postgres
from tests.process import Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Files that need another configuration have one of their own."""
    server = Server(tmp_path_factory.mktemp("amqp"), AMQP)
    yield server.start()
    server.close()
    gc.collect()


@pytest.fixture
def ch(broker: Server) -> Iterator[BlockingChannel]:
    with channel(broker) as opened:
        yield opened


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server.start()
    finally:
        server.stop()
