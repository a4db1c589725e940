"""Other clients than pika's blocking one: aio-pika, pika on its own event loop, kombu; and messages that change protocols."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import kombu
import pika
import pytest

import homing
from tests.amqp_support import amqp_port, channel, get
from tests.process import Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@asynccontextmanager
async def aio(server: Server) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port(server)}/")
    async with connection:
        yield await connection.channel()


# -- aio-pika ----------------------------------------------------------------------------------------------------------


async def test_aio_pika_publishes_consumes_and_rejects(broker: Server) -> None:
    async with aio(broker) as opened:
        await opened.set_qos(prefetch_count=5)
        exchange = await opened.declare_exchange("aio", aio_pika.ExchangeType.TOPIC, durable=True)
        dead = await opened.declare_queue("aio.dead", durable=True)
        queue = await opened.declare_queue(
            "aio.work", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "aio.dead"}
        )
        await queue.bind(exchange, "work.#")
        for number in range(50):
            message = aio_pika.Message(str(number).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"number": number})
            confirmed = await exchange.publish(message, "work.any")
            assert confirmed is not None
        seen: list[int] = []
        async with queue.iterator() as messages:
            async for message in messages:
                number = message.headers["number"]
                seen.append(number)
                if number % 10 == 9:
                    await message.reject(requeue=False)
                else:
                    await message.ack()
                if len(seen) == 50:
                    break
        assert seen == list(range(50))
        dead_bodies: list[bytes] = []
        async with dead.iterator(no_ack=True, timeout=15) as letters:
            async for letter in letters:
                dead_bodies.append(letter.body)
                if len(dead_bodies) == 5:
                    break
        assert dead_bodies == [b"9", b"19", b"29", b"39", b"49"]


async def test_aio_pika_learns_of_what_cannot_be_delivered(broker: Server) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port(broker)}/")
    async with connection:
        opened = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.PublishError):
            await opened.default_exchange.publish(aio_pika.Message(b"x"), "nobody-there", mandatory=True)


async def test_aio_pika_in_a_transaction(broker: Server) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port(broker)}/")
    async with connection:
        opened = await connection.channel(publisher_confirms=False)
        queue = await opened.declare_queue("aio.tx", auto_delete=True)
        async with opened.transaction():
            await opened.default_exchange.publish(aio_pika.Message(b"both"), "aio.tx")
            await opened.default_exchange.publish(aio_pika.Message(b"or none"), "aio.tx")
            assert await queue.get(fail=False) is None
        assert [(await queue.get()).body for _ in range(2)] == [b"both", b"or none"]


# -- pika without blocking, kombu --------------------------------------------------------------------------------------


def test_pika_on_its_own_loop(broker: Server) -> None:
    got: list[bytes] = []

    def on_open(connection: Any) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(opened: Any) -> None:
        def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(body)
            opened.basic_ack(method.delivery_tag)
            if len(got) == 100:
                opened.connection.close()

        def on_declared(frame: Any) -> None:
            opened.basic_consume(frame.method.queue, on_message)
            for number in range(100):
                opened.basic_publish("", frame.method.queue, str(number).encode())

        opened.queue_declare("", exclusive=True, callback=on_declared)

    parameters = pika.ConnectionParameters("127.0.0.1", amqp_port(broker))
    connection = pika.SelectConnection(parameters, on_open_callback=on_open, on_close_callback=lambda c, _: c.ioloop.stop())
    connection.ioloop.start()
    assert got == [str(number).encode() for number in range(100)]


def test_kombu_simple_queues(broker: Server) -> None:
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{amqp_port(broker)}//") as connection:
        queue = connection.SimpleQueue("kombu.simple")
        queue.put({"a": [1, 2, {"b": None}]})
        message = queue.get(timeout=10)
        assert message.payload == {"a": [1, 2, {"b": None}]}
        message.ack()
        queue.close()


# -- one message, two protocols ----------------------------------------------------------------------------------------


async def test_sent_with_amqp_read_with_homing(broker: Server) -> None:
    def send() -> None:
        with channel(broker) as ch:
            ch.queue_declare("mixed.out", durable=True)
            properties = pika.BasicProperties(headers={"colour": "red", "n": 7}, correlation_id="c-1", type="order", delivery_mode=2)
            ch.basic_publish("", "mixed.out", b"from amqp", properties)

    await asyncio.to_thread(send)
    async with homing.connect(broker.url) as connection:
        consumer = connection.session(homing.AckMode.INDIVIDUAL).consumer("mixed.out", selector="colour = 'red' AND n > 6")
        message = await consumer.receive(timeout_ms=10_000)
        assert message is not None
        assert message.body == b"from amqp"
        shown = {name: message.properties[name] for name in ("colour", "n", "JMSCorrelationID", "JMSType")}
        assert "_HOMING_AMQP" not in message.properties
        assert shown == {"colour": "red", "n": 7, "JMSCorrelationID": "c-1", "JMSType": "order"}
        await message.acknowledge()


async def test_sent_with_homing_read_with_amqp(broker: Server) -> None:
    async with homing.connect(broker.url) as connection:
        await (
            connection.session().producer("mixed.in").send(b"from homing", properties={"colour": "blue", "n": 8, "JMSCorrelationID": "c-2"})
        )
    found: list[Any] = []

    def take() -> None:
        with channel(broker) as ch:
            found.append(get(ch, "mixed.in"))

    await asyncio.to_thread(take)
    method, properties, body = found[0]
    assert (method.exchange, method.routing_key, body) == ("", "mixed.in", b"from homing")
    assert (properties.headers, properties.correlation_id, properties.delivery_mode) == ({"colour": "blue", "n": 8}, "c-2", 2)


def test_consumers_share_a_queue_fairly(broker: Server) -> None:
    shares: list[int] = []
    with channel(broker) as one, channel(broker) as other:
        one.queue_declare("fair")
        for opened in (one, other):
            opened.basic_qos(prefetch_count=10)
            opened.basic_consume("fair", _counter(shares, opened))
        for _ in range(20):
            one.basic_publish("", "fair", b"x")
        end = time.monotonic() + 15
        while len(shares) < 20:
            assert time.monotonic() < end, f"{len(shares)} of 20 came"
            one.connection.process_data_events(0.02)
            other.connection.process_data_events(0.02)
    assert sorted(shares.count(id(opened)) for opened in (one, other)) == [10, 10]


def _counter(shares: list[int], opened: Any) -> Callable[..., None]:
    return lambda *_: shares.append(id(opened))


def test_direct_replies(broker: Server) -> None:
    with channel(broker) as asking, channel(broker) as answering:
        answering.queue_declare("questions")
        answers: list[bytes] = []
        asking.basic_consume("amq.rabbitmq.reply-to", lambda _, method, properties, body: answers.append(body), auto_ack=True)
        asking.basic_publish("", "questions", b"2 + 2", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        _, properties, _ = get(answering, "questions")
        assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        there = answering.queue_declare(properties.reply_to, passive=True).method
        assert (there.queue, there.message_count, there.consumer_count) == (properties.reply_to, 0, 1)
        answering.basic_publish("", properties.reply_to, b"4")
        for _ in range(200):
            asking.connection.process_data_events(0.05)
            if answers:
                break
        assert answers == [b"4"]
        asking.connection.close()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as gone:
            answering.queue_declare(properties.reply_to, passive=True)
        assert gone.value.reply_code == 404
