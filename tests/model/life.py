"""The few steps that most tests of the model are made of."""

from __future__ import annotations

from typing import Any

from homing.broker.core.consumer import Consumer, ConsumerOptions
from homing.broker.core.message import Message
from homing.broker.core.queue import Queue
from tests import inside
from tests.model.world import Client, Delivery, World

#: What failed is there again at once.
AT_ONCE = {"redelivery-delay": 0}


class Life:
    """A world with the few steps that most of these lives are made of."""

    def __init__(self, settings: dict[str, Any] | None = None, **layers: dict[str, Any]) -> None:
        self.world = World({"#": {**AT_ONCE, **(settings or {})}, **layers})
        self.seen: list[Delivery] = []
        self.number = 0

    def client(self) -> Client:
        self.number += 1
        return self.world.client(f"client-{self.number}", self.seen.append)

    def send(self, client: Client, address: str, *bodies: str, **more: Any) -> None:
        assert client.connection is not None
        producer = client.producers.get(address)
        if producer is None:
            producer = inside.producers(self.world.broker).open(client.connection, len(client.producers) + 1, address)
            client.producers[address] = producer
        messages = [Message(0, address, body.encode(), **more) for body in bodies]
        assert self.world.send(producer, messages) is None

    def subscribe(self, client: Client, queue: str, **options: Any) -> Consumer:
        assert client.connection is not None
        number = len(client.consumers) + 1
        consumer = client.consumers[number] = inside.subscriptions(self.world.broker).subscribe(
            client.connection, number, queue, ConsumerOptions(**options)
        )
        return consumer

    def queue(self, name: str) -> Queue:
        return inside.queues(self.world.broker)[name]

    def keys(self) -> list[str]:
        """What was delivered since the last look."""
        keys = [delivery.key for delivery in self.seen]
        self.seen.clear()
        return keys

    def lose(self, client: Client) -> None:
        """Everything held was delivered, and then the connection breaks."""
        assert client.connection is not None
        for consumer in client.consumers.values():
            consumer.delivered(consumer.next_tag - 1, self.world.time_ms)
        inside.connections(self.world.broker).disconnect(client.connection, lost=True)
