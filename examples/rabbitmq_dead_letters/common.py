"""What the three programs share: an exchange that works, one for the dead, a queue on each; and what the dead letter says of itself."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

NORMAL_EXCHANGE = "normal.exchange.test"
NORMAL_QUEUE = "normal.queue.test"
DEAD_EXCHANGE = "dl.exchange.test"
DEAD_QUEUE = "dl.queue.test"


@contextmanager
def opened() -> Iterator[BlockingChannel]:
    """A channel to the broker that ``--host`` and ``--port`` name, guest/guest on this machine's 5672 unless told otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    arguments = parser.parse_args()
    connection = pika.BlockingConnection(pika.ConnectionParameters(arguments.host, arguments.port))
    try:
        yield connection.channel()
    finally:
        connection.close()


def set_up(channel: BlockingChannel, **more: Any) -> None:
    """A clean start: both exchanges, both queues. ``more``: arguments of the normal queue, ``x_max_length=5`` for x-max-length."""
    for queue in (NORMAL_QUEUE, DEAD_QUEUE):
        channel.queue_delete(queue)
    channel.exchange_declare(DEAD_EXCHANGE, "topic", durable=True)
    channel.queue_declare(DEAD_QUEUE, durable=True)
    channel.queue_bind(DEAD_QUEUE, DEAD_EXCHANGE, "#.dl.routing.key")
    channel.exchange_declare(NORMAL_EXCHANGE, "topic", durable=True)
    arguments = {"x-dead-letter-exchange": DEAD_EXCHANGE, "x-dead-letter-routing-key": "dl.routing.key"}
    arguments |= {name.replace("_", "-"): value for name, value in more.items()}
    channel.queue_declare(NORMAL_QUEUE, durable=True, arguments=arguments)
    channel.queue_bind(NORMAL_QUEUE, NORMAL_EXCHANGE, "#.normal.routing.key")


def publish(channel: BlockingChannel, body: str) -> None:
    channel.basic_publish(NORMAL_EXCHANGE, "prefix.normal.routing.key", body.encode(), pika.BasicProperties(delivery_mode=2))


def next_message(channel: BlockingChannel, queue: str, timeout_s: float = 20.0) -> tuple[Any, Any, bytes]:
    end = time.monotonic() + timeout_s
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            return method, properties, body
        if time.monotonic() > end:
            raise SystemExit(f"nothing came to {queue} within {timeout_s:g} s")
        time.sleep(0.02)


def tell(channel: BlockingChannel, began: float) -> None:
    """Takes the dead letter and prints what it says of itself, as JSON."""
    method, properties, body = next_message(channel, DEAD_QUEUE)
    channel.basic_ack(method.delivery_tag)
    reported = {
        "body": body.decode(),
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "x-death": [{name: value for name, value in death.items() if name != "time"} for death in properties.headers["x-death"]],
        **{name: value for name, value in sorted(properties.headers.items()) if name.startswith("x-first-death")},
        "seconds": round(time.monotonic() - began, 1),
        "left": channel.queue_declare(NORMAL_QUEUE, passive=True).method.message_count,
    }
    print(json.dumps(reported))
