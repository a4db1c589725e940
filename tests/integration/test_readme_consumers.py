"""Consumers as the READMEs of pika and aio-pika have them, but for one line that raises: it is a dead letter, and a kill keeps it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aio_pika
import pika
import pytest

from tests.amqp_support import AMQP, amqp_url, channel
from tests.instrumented.story import PATH
from tests.process import HomingCommand, Server, wait_until

PIKA = """
import pika
connection = pika.BlockingConnection(pika.URLParameters("BROKER"))
channel = connection.channel()

for method_frame, properties, body in channel.consume('test'):
    # Display the message parts and acknowledge the message
    print(method_frame, properties, body)
    raise KeyError("GBP")
    channel.basic_ack(method_frame.delivery_tag)

    # Escape out of the loop after 10 messages
    if method_frame.delivery_tag == 10:
        break

# Cancel the consumer and return any pending messages
requeued_messages = channel.cancel()
print('Requeued %i messages' % requeued_messages)
connection.close()
"""
AIO_PIKA = """
import asyncio
import aio_pika
import aio_pika.abc


async def main(loop):
    connection = await aio_pika.connect_robust("BROKER", loop=loop)

    async with connection:
        queue_name = "test_queue"

        # Creating channel
        channel: aio_pika.abc.AbstractChannel = await connection.channel()

        # Declaring queue
        queue: aio_pika.abc.AbstractQueue = await channel.declare_queue(
            queue_name,
            auto_delete=True
        )

        async with queue.iterator() as queue_iter:
            # Cancel consuming after __aexit__
            async for message in queue_iter:
                async with message.process():
                    print(message.body)
                    raise KeyError("GBP")

                    if queue.name in message.body.decode():
                        break


if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main(loop))
    loop.close()
"""


@pytest.fixture
def broker(start_server: Callable[..., Server], homing: HomingCommand) -> Server:
    server = start_server({**AMQP, "address-settings": {"test.#": {"max-delivery-attempts": 2, "redelivery-delay": 0}}})
    homing.url = server.url
    return server


def program(text: str, broker: Server, folder: Path, **environment: str) -> subprocess.Popen[str]:
    (folder / "consumer.py").write_text(text.replace("BROKER", amqp_url(broker)))
    command = [sys.executable, "-W", "ignore", "consumer.py"]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def raised(consumer: subprocess.Popen[str]) -> None:
    assert "KeyError: 'GBP'" in consumer.communicate(timeout=30)[0]


def dead(homing: HomingCommand) -> list[tuple[str, int, list[str]]]:
    return [(each["queue"], each["messages"], each["sources"]) for each in homing.json("dead")]


def kept(broker: Server, homing: HomingCommand, queue: str) -> None:
    before = dead(homing)
    broker.kill()
    broker.start()
    assert dead(homing) == before
    (life,) = homing.json_lines("history", "--queue", queue)
    assert not any(each.get("transient") for each in life["references"])


def test_pika(broker: Server, homing: HomingCommand, tmp_path: Path) -> None:
    with channel(broker) as ch:
        ch.exchange_declare("test")
        ch.queue_declare("test", durable=True)
        ch.queue_bind("test", "test", "test")
        ch.basic_publish(exchange="test", routing_key="test", body=b"Test message.", properties=pika.BasicProperties())
    # Whoever watches over it starts it again, and the second time says why.
    for environment in ({}, {"PYTHONPATH": PATH}):
        raised(program(PIKA, broker, tmp_path, **environment))
    wait_until("it is dead", lambda: dead(homing) == [("DLQ.test", 1, ["test"])])
    faults = {each["error_class"]: each for each in homing.json("faults", "test")}
    assert {name: each["dead"] for name, each in faults.items()} == {"connection-lost": 0, "KeyError": 1}
    assert 'raise KeyError("GBP")' in homing("faults", "show", faults["KeyError"]["fault"]).stdout
    kept(broker, homing, "DLQ.test")


async def test_aio_pika(broker: Server, homing: HomingCommand, tmp_path: Path) -> None:
    consumer = program(AIO_PIKA, broker, tmp_path)
    wait_until("it consumes", lambda: [each["queue"] for each in homing.json("consumers")] == ["test_queue"])
    async with await aio_pika.connect_robust(amqp_url(broker)) as connection:
        sender = await connection.channel()
        await sender.default_exchange.publish(aio_pika.Message(body=b"Hello test_queue"), routing_key="test_queue")
    raised(consumer)
    # Its queue went with it, and was a private one.
    wait_until("it is dead", lambda: dead(homing) == [("DLQ.temporary", 1, ["test_queue"])])
    kept(broker, homing, "DLQ.temporary")
