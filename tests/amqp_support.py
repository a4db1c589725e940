"""What AMQP tests share: a server that listens for it, pika connections that are closed with the test."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.process import Server

PERSISTENT = pika.BasicProperties(delivery_mode=2)

#: Laid over a test server's configuration.
AMQP: dict[str, Any] = {"amqp": {"port": 0}}


def amqp_port(server: Server) -> int:
    return int(server.ready["amqp"].rpartition(":")[2])


def amqp_url(server: Server) -> str:
    return f"amqp://guest:guest@127.0.0.1:{amqp_port(server)}/"


def connect(server: Server, **parameters: Any) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port(server), **parameters))


@contextmanager
def connection(server: Server, **parameters: Any) -> Iterator[Any]:
    opened = connect(server, **parameters)
    try:
        yield opened
    finally:
        if opened.is_open:
            opened.close()


@contextmanager
def channel(server: Server) -> Iterator[BlockingChannel]:
    with connection(server) as opened:
        yield opened.channel()


def cut(opened: Any) -> None:
    """The socket goes without a word, as when a program is killed."""
    opened._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    with suppress(pika.exceptions.AMQPConnectionError):
        while opened.is_open:
            opened.process_data_events(1)


def get(channel: BlockingChannel, queue: str, timeout_s: float = 15.0, auto_ack: bool = True) -> tuple[Any, Any, bytes]:
    """The next message, waited for."""
    end = time.monotonic() + timeout_s
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        if method is not None:
            return method, properties, body
        assert time.monotonic() < end, f"no message came to {queue} within {timeout_s} s"
        time.sleep(0.02)


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def wait_for_count(channel: BlockingChannel, queue: str, wanted: int, timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while (found := count(channel, queue)) != wanted:
        assert time.monotonic() < end, f"{queue} holds {found} messages, not {wanted}"
        time.sleep(0.02)


def consume(channel: BlockingChannel, queue: str, wanted: int, handle: Callable[[Any, Any, bytes], None], **options: Any) -> str:
    """Consumes ``wanted`` messages; ``handle`` settles each. Returns the consumer's tag, still subscribed."""
    seen = 0

    def one(_: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal seen
        seen += 1
        handle(method, properties, body)

    tag: str = channel.basic_consume(queue, one, **options)
    end = time.monotonic() + 15
    while seen < wanted:
        assert time.monotonic() < end, f"{seen} of {wanted} messages came"
        channel.connection.process_data_events(0.05)
    return tag


def wait_until_seen(ch: BlockingChannel, held: list[Any], wanted: int) -> None:
    """Until callbacks have put so many things into ``held``."""
    end = time.monotonic() + 15
    while len(held) < wanted:
        assert time.monotonic() < end
        ch.connection.process_data_events(0.05)


def named(seen: list[str], name: str) -> Callable[..., None]:
    """A callback that notes whose it is."""
    return lambda *_: seen.append(name)
