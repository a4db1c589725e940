"""Random lives of one queue with a limit, whose consumers end in every way: nobody innocent dies, the guilty do, and no suspect starves."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from homing.broker.core.consumer import Consumer, ConsumerOptions
from homing.broker.core.message import MessageReference
from homing.broker.core.redelivery import Failure
from tests import inside
from tests.model.life import Life
from tests.model.world import Client

LIMIT = 3
STEPS = 80


class Ends(Life):
    """Clients with AMQP's channels, each a list of consumers of queue ``a``. ``company``: held when a neighbour's channel closed."""

    def __init__(self, seed: int) -> None:
        super().__init__({"suspect-timeout": 1000}, a={"max-delivery-attempts": LIMIT})
        self.draw = Random(seed)
        self.sender = self.client()
        self.sent = 0
        self.channels: dict[Client, list[list[Consumer]]] = {}
        self.company: set[tuple[Consumer, int]] = set()
        self.dead: set[bytes] = set()

    def step(self) -> None:
        do = self.draw.choice((self.send_some, self.come, self.come, self.settle, self.settle, self.fail, self.end, self.end, self.wait))
        do()
        if self.draw.random() < 0.7:
            self.world.commit()
        self.world.check_balance()

    def send_some(self) -> None:
        for _ in range(self.draw.choice((1, 4))):
            self.send(self.sender, "a", str(self.sent), priority=self.draw.choice((4, 4, 5)))
            self.sent += 1

    def come(self) -> None:
        client = self.draw.choice([*self.channels]) if len(self.channels) > 1 else self.client()
        channels = self.channels.setdefault(client, [])
        if len(channels) < 3:
            prefetch, selector = self.draw.choice((1, 2, 10)), self.draw.choice((None, None, None, "JMSPriority > 4"))
            assert client.connection is not None
            number = max(client.consumers, default=0) + 1
            options = ConsumerOptions(prefetch, selector)
            client.consumers[number] = inside.subscriptions(self.world.broker).subscribe(client.connection, number, "a", options)
            channels.append([client.consumers[number]])

    def held(self) -> Iterator[tuple[Consumer, MessageReference]]:
        for channels in self.channels.values():
            for channel in channels:
                for consumer in channel:
                    for reference in consumer.unsettled.values():
                        yield consumer, reference

    def settle(self) -> None:
        if held := list(self.held()):
            consumer, reference = self.draw.choice(held)
            inside.settlement(self.world.broker).acknowledge(consumer, [reference])

    def fail(self) -> None:
        """Requeued, unless that would be the end: the ends shall be."""
        held = [(consumer, reference) for consumer, reference in self.held() if reference.failed < LIMIT - 1]
        if held:
            consumer, reference = self.draw.choice(held)
            inside.settlement(self.world.broker).fail(consumer, [reference], Failure(), "nack", {})

    def wait(self) -> None:
        self.world.time_ms += self.draw.choice((10, 400, 1000))
        self.world.turn()

    def end(self) -> None:
        if not self.channels:
            return
        client = self.draw.choice([*self.channels])
        channels, how = self.channels[client], self.draw.choice(("lost", "closed", "by the broker", "channel", "channel"))
        ending = [self.draw.choice(channels)] if how == "channel" else channels
        consumers = [consumer for channel in ending for consumer in channel]
        for consumer in consumers:
            consumer.delivered(consumer.next_tag - 1, self.world.time_ms)
        before = [
            (reference, reference.failed, reference.suspect, (consumer, tag) in self.company)
            for consumer in consumers
            for tag, reference in consumer.unsettled.items()
        ]
        assert client.connection is not None
        if how == "channel":
            others = [consumer for channel in channels if channel not in ending for consumer in channel]
            beside = [(consumer, tag) for consumer in others for tag in consumer.unsettled]
            for consumer in consumers:
                inside.consumers(self.world.broker).unsubscribe(client.connection, consumer, keep_delivered=True)
                del client.consumers[consumer.number]
            inside.consumers(self.world.broker).release(client.connection, consumers)
            channels.remove(ending[0])
            if not channels:
                del self.channels[client]
            self.company |= set(beside) if before else set()
            alone = len(before) == 1 and not beside
        else:
            inside.connections(self.world.broker).disconnect(client.connection, how == "lost", how == "closed")
            del self.channels[client]
            alone = len(before) == 1
        for reference, failed, suspect, had_company in before:
            counts = how != "by the broker"
            assert reference.failed == failed + counts
            # A lost connection is the end of the last attempt; an orderly one may be a deploy, and spares a suspect once.
            last = failed + 1 >= LIMIT and not (how != "lost" and suspect and failed < LIMIT)
            self.check(reference, dead=counts and alone and not had_company and last)

    def check(self, reference: MessageReference, dead: bool) -> None:
        body = reference.message.body
        (place,) = [record.queue_id for record in self.world.journal.rows().values() if record.message.body == body]
        assert (place != self.queue("a").queue_id) is dead
        if dead:
            self.dead.add(body)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_ends_and_how(seed: int) -> None:
    life = Ends(seed)
    for _ in range(STEPS):
        life.step()
    life.world.commit()
    graves = inside.queues(life.world.broker).get("DLQ.a")
    assert life.dead == {each.message.body for each in graves.references.values()} if graves is not None else not life.dead
