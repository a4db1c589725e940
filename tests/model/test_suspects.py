"""Suspects: alone with their consumer, and in nobody else's way."""

from __future__ import annotations

from homing.broker.core.redelivery import Failure
from tests.model.life import Life
from tests.model.world import Client


def lose_all(life: Life, client: Client) -> None:
    """What waits is delivered to the client together, and lost with it."""
    life.subscribe(client, "a", prefetch=10)
    life.world.commit()
    life.lose(client)
    life.world.commit()


def test_a_suspect_is_not_found_at_the_place_it_once_had_in_the_queue() -> None:
    life = Life({"max-delivery-attempts": 2})
    sender, first, second, third = (life.client() for _ in range(4))
    for client in (second, third):
        life.subscribe(client, "a", prefetch=10)
    life.send(sender, "a", "x", "y")
    life.world.commit()
    second.writable = third.writable = False
    consumer = life.subscribe(first, "a", prefetch=2)
    life.send(sender, "a", "one", "two")
    life.world.commit()
    # Given back without blame: the second time they come from among the returned ones.
    life.world.broker.fail(consumer, list(consumer.unsettled.values()), Failure(counts=False), "nack", {})
    life.world.commit()
    life.lose(first)
    second.writable = third.writable = True
    life.world.commit()
    assert len(life.queue("a").suspects) == 2
    life.keys()
    life.send(sender, "a", "three", "four")
    life.world.commit()
    assert sorted(life.keys()) == ["four", "three"], "suspects wait for a consumer of their own"
    assert len(life.queue("a").suspects) == 2


def test_pull_consumers_that_hold_nothing_are_not_kept_waiting_for_a_suspect() -> None:
    life = Life({"max-delivery-attempts": 2})
    sender, first, second = life.client(), life.client(), life.client()
    life.send(sender, "a", "one", "two")
    life.world.commit()
    lose_all(life, first)
    life.keys()
    life.send(sender, "a", "three")
    consumer = life.subscribe(second, "a", prefetch=0)
    life.world.commit()
    assert second.connection is not None
    for _ in range(3):
        life.world.broker.pull(second.connection, consumer, -1)
        life.world.commit()
        life.world.broker.acknowledge(consumer, list(consumer.unsettled.values()))
        life.world.commit()
    assert life.keys() == ["one", "two", "three"]


def test_a_suspect_that_no_consumer_takes_does_not_hold_up_the_others() -> None:
    life = Life({"max-delivery-attempts": 2})
    sender, first, second = life.client(), life.client(), life.client()
    life.send(sender, "a", "red", properties={"colour": "red"})
    life.send(sender, "a", "blue", properties={"colour": "blue"})
    life.world.commit()
    lose_all(life, first)
    assert len(life.queue("a").suspects) == 2
    life.keys()
    life.subscribe(second, "a", selector="colour = 'blue'")
    life.world.commit()
    assert life.keys() == ["blue"]


def test_suspects_keep_their_priority() -> None:
    life = Life({"max-delivery-attempts": 2})
    sender, first, second = life.client(), life.client(), life.client()
    life.send(sender, "a", "low", priority=1)
    life.send(sender, "a", "high", priority=9)
    life.world.commit()
    lose_all(life, first)
    life.keys()
    life.subscribe(second, "a")
    life.world.commit()
    assert life.keys() == ["high"]
