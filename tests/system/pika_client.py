"""pika, the Python client of RabbitMQ's makers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.system.check import IN_ORDER, ORDER, PREFETCH, SHARED, Place, check, expect

CLOSES: Final = 100
DURABLE: Final = pika.BasicProperties(delivery_mode=2)
_GIVE_BACK: Final[dict[str, Callable[[BlockingChannel, int], Any]]] = {
    "nack": lambda channel, tag: channel.basic_nack(tag),
    "reject": lambda channel, tag: channel.basic_reject(tag),
    "recover": lambda channel, tag: channel.basic_recover(requeue=True),
    "transaction": lambda channel, tag: (channel.basic_nack(tag), channel.tx_commit()),
    "window": lambda channel, tag: channel.basic_nack(tag, multiple=True),
}


@contextmanager
def _queue(place: Place, name: str, bodies: str, properties: pika.BasicProperties = DURABLE, **arguments: Any) -> Iterator[BlockingChannel]:
    """A channel, and a durable queue that these messages are in."""
    connection = pika.BlockingConnection(pika.URLParameters(place.url))
    channel = connection.channel()
    channel.queue_declare(name, durable=True, arguments=arguments or None)
    for body in bodies:
        channel.basic_publish("", name, body.encode(), properties)
    yield channel
    connection.close()


@check
def pika_clean_closes(place: Place) -> str:
    heard: list[Any] = []

    def opened(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=lambda channel: connection.close())

    def closed(connection: pika.SelectConnection, reason: Exception) -> None:
        heard.append((reason.reply_code, reason.reply_text) if isinstance(reason, pika.exceptions.ConnectionClosedByClient) else reason)
        connection.ioloop.stop()

    for _ in range(CLOSES):
        pika.SelectConnection(pika.URLParameters(place.url), on_open_callback=opened, on_close_callback=closed).ioloop.start()
    expect(heard, [(200, "Normal shutdown")] * CLOSES)
    return f"{CLOSES} of {CLOSES} connections ended with the client's own close"


@check
def pika_redelivered_headers(place: Place) -> str:
    sent = {"id": "7"}
    for kind, added in (("classic", {}), ("quorum", {"x-delivery-count": 1})):
        properties = pika.BasicProperties(delivery_mode=2, headers=sent)
        with _queue(place, kind, "A", properties, **{"x-queue-type": kind}) as channel:
            seen = []
            for method, came, _ in islice(channel.consume(kind), 2):
                seen.append(came.headers)
                channel.basic_nack(method.delivery_tag)
        expect(seen, [sent, sent | added])
    return "what came back to a classic queue had exactly the headers it was sent with"


@check
def pika_order(place: Place) -> str:
    seen = {}
    for way, give_back in _GIVE_BACK.items():
        prefetch, last = (3, 6) if way == "window" else (1, 4)
        with _queue(place, way, "ABCDEFGH") as channel:
            if way == "transaction":
                channel.tx_select()
            channel.basic_qos(prefetch_count=prefetch)
            came: list[str] = []
            for method, _, body in channel.consume(way):
                came.append(body.decode() + "'" * method.redelivered)
                if len(came) == last:
                    break
                if len(came) % prefetch == 0:
                    give_back(channel, method.delivery_tag)
        seen[way] = " ".join(came)
    expect(seen, ORDER)
    return IN_ORDER


@check
def pika_prefetch(place: Place) -> str:
    seen = {}
    for name, for_all in (("each", False), ("channel", True)):
        with _queue(place, name, "ABCDEFGHIJ") as channel:
            channel.basic_qos(prefetch_count=2, global_qos=for_all)
            for _ in range(2):
                channel.basic_consume(name, lambda *delivery: None)
            before = -1
            while (left := channel.queue_declare(name, durable=True, passive=True).method.message_count) != before:
                before = left
                time.sleep(0.1)
            seen[name] = left
    expect(seen, PREFETCH)
    return SHARED
