"""Suspects: alone with their consumer, and in nobody else's way."""

from __future__ import annotations

from typing import Any

from homing.broker.cli.one_message import sentence
from homing.broker.core.consumer import Consumer
from homing.broker.core.redelivery import Failure
from homing.broker.core.suspects import UNTIL_FREE
from homing.broker.management.one_message import why
from homing.broker.management.queues import consumers
from homing.broker.management.retries import peek
from tests import inside
from tests.model.life import Life
from tests.model.world import ANYBODY, Client, call


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
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(counts=False), "nack", {})
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
        inside.consumers(life.world.broker).pull(second.connection, consumer, -1)
        life.world.commit()
        inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
        life.world.commit()
    assert life.keys() == ["one", "two", "three"]


def test_who_asks_for_one_is_not_set_apart_for_a_suspect_that_has_expired() -> None:
    life = Life({"max-delivery-attempts": 2})
    sender, first, second = life.client(), life.client(), life.client()
    life.send(sender, "a", "one", "two", expires_at_ms=life.world.time_ms + 1_000)
    life.send(sender, "a", "three")
    life.subscribe(first, "a", prefetch=2)
    life.world.commit()
    life.lose(first)
    life.world.commit()
    assert len(life.queue("a").suspects) == 2
    life.world.time_ms += 2_000
    assert second.connection is not None
    found = inside.gets(life.world.broker).get(second.connection, 1, life.queue("a"))
    assert found is not None
    assert (found.message.body, life.queue("a").apart) == (b"three", {})


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


# -- beside consumers that are never empty -------------------------------------------------------------------------------


class Busy(Life):
    """A queue of many messages, consumers that hold some of them, and suspects that another one lost. ``suspect-timeout`` is 1 s."""

    def __init__(self, *prefetches: int, suspects: int = 2) -> None:
        super().__init__({"suspect-timeout": 1000}, a={"max-delivery-attempts": 2})
        sender, first = self.client(), self.client()
        self.send(sender, "a", *[f"suspect-{number}" for number in range(suspects)])
        self.subscribe(first, "a", prefetch=suspects)
        self.world.commit()
        self.send(sender, "a", *[str(number) for number in range(1000)])
        self.workers = [self.client() for _ in prefetches]
        self.consumers = [self.subscribe(each, "a", prefetch=prefetch) for each, prefetch in zip(self.workers, prefetches, strict=True)]
        self.world.commit()
        self.lose(first)
        self.world.commit()
        self.keys()
        assert len(self.queue("a").suspects) == suspects

    def settles(self, consumer: Consumer) -> list[str]:
        """Its oldest message, after a tenth of a second's work; what came of that."""
        self.world.time_ms += 100
        inside.settlement(self.world.broker).acknowledge(consumer, [next(iter(consumer.unsettled.values()))])
        self.world.commit()
        return self.keys()

    def held(self, consumer: Consumer) -> list[str]:
        return [reference.message.body.decode() for reference in consumer.unsettled.values()]


def test_a_suspect_waits_for_what_one_consumer_holds_and_no_longer() -> None:
    life = Busy(50)
    (consumer,) = life.consumers
    for _ in range(49):
        assert life.settles(consumer) == [], "nothing more begins, though that takes five times suspect-timeout"
    assert life.settles(consumer) == ["suspect-0"]
    assert life.settles(consumer) == ["suspect-1"]
    assert len(life.settles(consumer)) == 50
    assert not life.queue("a").apart


def test_it_is_the_one_that_holds_least_and_others_go_on() -> None:
    life = Busy(50, 5, 20)
    many, few, some = life.consumers
    for _ in range(5):
        assert len(life.settles(many)) == len(life.settles(some)) == 1
        came = life.settles(few)
    assert came == ["suspect-0"]
    assert life.settles(many) != []
    assert life.settles(some) != [], "as long as one suspect is watched nobody makes room for the next"
    life.world.time_ms += 1000
    life.world.commit()
    assert len(life.keys()) == 4, "who works on it for long goes on with others"
    assert life.settles(many) != []
    assert life.settles(some) == [], "and of the rest the one that holds least makes room"


def test_a_connection_counts_as_one_consumer() -> None:
    life = Busy(3, 4)
    beside = life.subscribe(life.workers[0], "a", prefetch=3)
    life.world.commit()
    assert life.held(beside) == [], "no other consumer of it is given anything"
    life.subscribe(life.workers[1], "a", prefetch=1)
    life.world.commit()
    assert len(life.keys()) == 1
    for _ in range(3):
        came = life.settles(life.consumers[0])
    assert came == ["suspect-0"]
    assert life.settles(life.consumers[1]) != []


def test_who_works_on_a_suspect_for_long_goes_on_with_others_beside_it() -> None:
    life = Busy(2)
    (consumer,) = life.consumers
    life.settles(consumer)
    assert life.settles(consumer) == ["suspect-0"]
    life.world.time_ms += 999
    life.world.commit()
    assert life.held(consumer) == ["suspect-0"]
    life.world.time_ms += 1000
    life.world.commit()
    assert len(life.keys()) == 1
    for _ in range(20):
        life.world.time_ms += 1000
        inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values())[1:])
        life.world.commit()
        assert len(life.keys()) == 1, "the other suspect cannot be helped by keeping everything back"
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values())[:1])
    life.world.commit()
    assert life.keys() == [], "the second makes room"
    assert life.settles(consumer) == ["suspect-1"]


def test_where_the_suspects_are_gone_nobody_makes_room_any_more() -> None:
    life = Busy(3)
    assert life.settles(life.consumers[0]) == []
    for reference in list(life.queue("a").suspects.values()):
        life.world.run(life.world.broker.hand.delete(ANYBODY, [reference]))
    life.world.time_ms += 1000
    life.world.commit()
    assert (len(life.keys()), life.queue("a").apart) == (1, {})


def test_a_consumer_that_leaves_makes_room_no_more_and_another_does() -> None:
    life = Busy(2, 3)
    assert life.queue("a").apart == {life.consumers[0].connection: UNTIL_FREE}
    inside.consumers(life.world.broker).unsubscribe(life.workers[0].connection, life.consumers[0])  # type: ignore[arg-type]
    life.world.commit()
    assert life.queue("a").apart == {life.consumers[1].connection: UNTIL_FREE}


def test_a_single_get_brings_a_suspect_to_who_holds_nothing_and_nothing_beside_it() -> None:
    life = Busy(suspects=2)
    getter, other = life.client(), life.client()
    for client in (getter, other):
        assert client.connection is not None
        client.connection.returns_at_once = True
    got = [_get(life, getter, 1), _get(life, getter, 2), _get(life, other, 1), _get(life, other, 2)]
    assert got == ["suspect-0", None, "suspect-1", None]
    assert other.connection is not None
    inside.consumers(life.world.broker).release(other.connection, list(other.connection.retired.values()))
    life.world.commit()
    assert life.keys() == []
    life.world.time_ms += 1000
    assert _get(life, getter, 3) == "0", "suspect-timeout has passed, and it holds something"
    assert _get(life, other, 3) == "suspect-1"


def _get(life: Life, client: Client, number: int) -> str | None:
    assert client.connection is not None
    found = inside.gets(life.world.broker).get(client.connection, number, life.queue("a"))
    return None if found is None else found.message.body.decode()


def test_why_and_retrying_tell_what_it_waits_for() -> None:
    life = Busy(50, 5)
    many, few = life.consumers
    suspect = min(life.queue("a").suspects.values())

    def reasons() -> list[Any]:
        (place,) = life.world.run(why(life.world.broker, ANYBODY, None, message_id=suspect.message.message_id))["places"]
        return list(place["reasons"])

    first, *others = reasons()
    assert first == {"code": "suspect", "waits_for": {"connection": few.connection, "unsettled": 5, "has_suspect": False}}
    assert [(each["code"], each["consumer"]) for each in others] == [
        ("holds-others", many.name),
        ("makes-room-for-a-suspect", few.name),
    ]
    assert sentence(first, 0).endswith(
        f"; connection {few.connection}, which holds 5 messages still, gets nothing more until it has settled them, and then this"
    )
    shown = life.world.run(peek(life.world.broker, ANYBODY, queue=life.queue("a")))["messages"]
    assert [(each["message_id"], each["suspect"], each["waits_for"]["unsettled"]) for each in shown] == [
        (each.message.message_id, True, 5) for each in sorted(life.queue("a").suspects.values())
    ]
    assert blocked(life)[few.name] == "it makes room for a suspect"
    for _ in range(5):
        life.settles(few)
    suspect = min(life.queue("a").suspects.values())
    first, *others = reasons()
    assert first["waits_for"] == {"connection": few.connection, "unsettled": 1, "has_suspect": True}
    assert [each["code"] for each in others] == ["holds-others", "works-on-a-suspect"]
    assert sentence(first, 0).endswith(f"; connection {few.connection} works on another such message")
    assert blocked(life) == {many.name: "it holds as many as it may", few.name: "its connection works on a suspect"}


def blocked(life: Life) -> dict[str, Any]:
    listed = life.world.run(call(consumers, life.world.broker, {"sockets": dict}))
    return {each["consumer"]: each["blocked"] for each in listed}
