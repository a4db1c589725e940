"""Priorities up to 255 on a real broker: over a kill, on disk only, through deaths into queues with fewer, and what they cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pika

from homing import client
from homing.client import AckMode
from tests.amqp_support import AMQP, channel, wait_for_count
from tests.process import HomingCommand, Server

COUNT = 600
#: A start reads nothing, and the window holds a part of what there is.
SMALL = {"limits": {"window-messages": 200}, "journal": {"load-limit": 0}}


def sent(number: int, priority: int) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, priority=priority, message_id=str(number))


def test_all_of_them_survive_kills_and_deaths(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server({**AMQP, **SMALL})
    rng = random.Random(5)
    order = [rng.choice([0, 1, 9, 10, 100, 254, 255]) for _ in range(COUNT)]
    with channel(server) as ch:
        ch.tx_select()
        ch.queue_declare("fewer", durable=True, arguments={"x-max-priority": 20})
        through = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "fewer", "x-max-priority": 255}
        ch.queue_declare("steep", durable=True, arguments=through)
        for number, priority in enumerate(order):
            ch.basic_publish("", "steep", b"", sent(number, priority))
        ch.tx_commit()
    server.kill()
    assert homing.json("journal", "check", "--data", server.data)["problems"] == []
    server.start()
    expected = sorted(range(COUNT), key=lambda number: (-order[number], number))
    with channel(server) as ch:
        came: list[int] = []
        for method, properties, _ in ch.consume("steep"):
            came.append(int(properties.message_id))
            ch.basic_reject(method.delivery_tag, requeue=False)
            if len(came) == COUNT:
                break
        ch.cancel()
        assert came == expected
        wait_for_count(ch, "fewer", COUNT)
    server.kill()
    server.start()
    with channel(server) as ch:
        reported = [properties for _, (_, properties, _) in zip(range(COUNT), ch.consume("fewer", auto_ack=True), strict=False)]
        ch.cancel()
    assert homing.json("journal", "check", "--data", server.data)["problems"] == []
    # Above 20 all are alike, in the order in which they died.
    again = sorted(expected, key=lambda number: -min(order[number], 20))
    assert [int(properties.message_id) for properties in reported] == again
    assert [properties.priority for properties in reported] == [order[number] for number in again]


async def test_a_native_sender_and_a_native_reader_of_such_a_queue(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)
    with channel(server) as ch:
        ch.queue_declare("steep", durable=True, arguments={"x-max-priority": 3})
        for priority in (0, 2, 200):
            ch.basic_publish("", "steep", str(priority).encode(), sent(0, priority))
    async with await client.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        producer = session.producer("steep")
        for priority in (1, 9):
            await producer.send(f"native {priority}".encode(), priority=priority)
        consumer = session.consumer("steep")
        came = [(message.body.decode(), message.priority) for message in [await consumer.receive() for _ in range(5)] if message]
    assert came == [("200", 3), ("native 9", 3), ("2", 2), ("native 1", 1), ("0", 0)]


def test_many_priorities_that_nobody_uses_cost_little(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)

    def rss_kib() -> int:
        return int(Path(f"/proc/{server.pid}/status").read_text().split("VmRSS:")[1].split()[0])

    with channel(server) as ch:
        ch.queue_declare("first", arguments={"x-max-priority": 255})
        before = rss_kib()
        for number in range(400):
            ch.queue_declare(str(number), arguments={"x-max-priority": 255})
        grown = rss_kib() - before
    assert grown < 400 * 40, f"{grown / 400:.0f} KiB a queue"
