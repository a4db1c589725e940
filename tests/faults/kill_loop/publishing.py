"""A producer over AMQP: messages as its library sends them, not durable, to a quorum queue, which keeps them, and to another."""

from __future__ import annotations

import itertools
import time
from typing import Final

import pika
from pika.exceptions import AMQPError

from tests.faults.kill_loop.events import OK, UNKNOWN
from tests.faults.kill_loop.worker import QUORUM, WORK, Worker

_LARGEST_PADDING: Final = 2000
_MOST_REST_S: Final = 0.02


def declare(port: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        connection.channel().queue_declare(QUORUM, durable=True, arguments={"x-queue-type": "quorum"})


def publish(worker: Worker, port: int) -> None:
    """One after the other, each confirmed before the next. What was under way when a broker was killed is not sent again."""
    rng, keys = worker.rng, (f"{worker.name}-{number}" for number in itertools.count())
    while worker.stage.producing:
        key = ""
        try:
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while worker.stage.producing:
                    key, queue = next(keys), rng.choice((QUORUM, WORK[0]))
                    worker.log("send", key=key, queue=queue, durable=queue == QUORUM)
                    # What comes before its queue is there comes back, and is no error else.
                    body = b"%s\n%s" % (key.encode(), b"x" * rng.randint(0, _LARGEST_PADDING))
                    channel.basic_publish("", queue, body, mandatory=True)
                    worker.log("sent", key=key, outcome=OK)
                    key = ""
                    time.sleep(rng.uniform(0, _MOST_REST_S))
        except AMQPError as error:
            worker.note(f"publish: {error!r}")
            if key:
                worker.log("sent", key=key, outcome=UNKNOWN)
            time.sleep(rng.uniform(0.02, 0.15))
