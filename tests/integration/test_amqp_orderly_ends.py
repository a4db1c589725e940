"""AMQP programs that end in order with a message that they cannot do: it reaches its limit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
import pika.exceptions
import pika.frame
import pika.spec
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from homing.client.blocking import connect as blocking
from tests.amqp_support import PERSISTENT, connection, count, wait_until_seen
from tests.process import Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def declare(ch: BlockingChannel, queue: str, exchange: str = "", key: str | None = None, **more: Any) -> None:
    arguments: dict[str, Any] = {"x-dead-letter-exchange": exchange, **more}
    if key is not None:
        arguments["x-dead-letter-routing-key"] = key
    ch.queue_declare(queue, durable=True, arguments=arguments)


def _catches_it_and_leaves(broker: Server, queue: str) -> None:
    """A worker in pika's words, whose program ends with 0 whatever a message does."""

    def work(*_: Any) -> None:
        raise ValueError("poison")

    with connection(broker) as opened, suppress(ValueError):
        ch = opened.channel()
        ch.basic_qos(prefetch_count=1)
        ch.basic_consume(queue, work)
        for _ in range(100):
            opened.process_data_events(0.05)


def _has_its_channel_closed(wrong: Callable[[BlockingChannel], Any]) -> Callable[[Server, str], None]:
    def work(broker: Server, queue: str) -> None:
        with connection(broker) as opened:
            ch = opened.channel()
            got: list[Any] = []
            ch.basic_consume(queue, lambda *_: got.append(1))
            wait_until_seen(ch, got, 1)
            with suppress(pika.exceptions.ChannelClosedByBroker):
                wrong(ch)
                opened.process_data_events(5)

    return work


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("caught", _catches_it_and_leaves),
        ("unknown.tag", _has_its_channel_closed(lambda ch: ch.basic_ack(99))),
        ("no.exchange", _has_its_channel_closed(lambda ch: ch.basic_publish("nowhere", "x", b""))),
        ("other.declaration", _has_its_channel_closed(lambda ch: ch.queue_declare("other.declaration", durable=False))),
    ],
)
def test_a_poison_whose_workers_end_in_order_reaches_its_limit(
    broker: Server, ch: BlockingChannel, name: str, work: Callable[[Server, str], None]
) -> None:
    declare(ch, name, "", f"{name}.dead", **{"x-delivery-limit": 3})
    ch.queue_declare(f"{name}.dead")
    ch.basic_publish("", name, b"poison", PERSISTENT)
    deliveries = 0
    while deliveries < 12 and count(ch, name):
        work(broker, name)
        deliveries += 1
    assert (deliveries, count(ch, f"{name}.dead")) == (4, 1)
    if name == "caught":
        with blocking(broker.url) as native:
            (letter,) = native.call("peek", queue=f"{name}.dead", limit=1)["messages"]
            history = native.call("history", message_id=letter["message_id"])
            assert [each["outcome"] for each in history["attempts"]] == ["closed"] * 4
            assert [each["error_class"] for each in native.call("faults", queue=name)["items"]] == ["delivery_limit"]
