"""What a consumer gives back is not overtaken: the credit that it held is free when it stands in its place again, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.consumer import Consumer, SharedWindow
from homing.broker.core.message import MessageReference
from homing.broker.core.redelivery import Failure
from homing.broker.steps import at_once
from tests import inside
from tests.model.life import Life
from tests.model.world import ANYBODY, Client

AT_ONCE = {"redelivery-delay": 0, "max-delivery-attempts": -1}


class Reader(Life):
    """A queue ``a`` that holds A to H, and a consumer of it that was given what its prefetch allows."""

    def __init__(self, prefetch: int, settings: dict[str, Any] | None = None, wanted: str = "ABCDEFGH", **options: Any) -> None:
        super().__init__({**AT_ONCE, **(settings or {})})
        self.sender, self.reader = self.client(), self.client()
        self.send(self.sender, "a", *wanted)
        self.world.commit()
        self.consumer = self.subscribe(self.reader, "a", prefetch=prefetch, **options)
        self.world.turn()

    def held(self, *keys: str, consumer: Consumer | None = None) -> list[MessageReference]:
        consumer = consumer or self.consumer
        consumer.delivered(consumer.next_tag - 1, self.world.time_ms)
        return [each for each in consumer.unsettled.values() if not keys or each.message.body.decode() in keys]

    def turn(self) -> str:
        """What comes without a commit."""
        self.world.turn()
        return "".join(self.keys())

    def commit(self) -> str:
        self.world.commit()
        return "".join(self.keys())


def nacked(reader: Reader) -> None:
    inside.settlement(reader.world.broker).fail(reader.consumer, reader.held(), Failure(), "nack", {})


def nacked_one_by_one(reader: Reader) -> None:
    for reference in reader.held():
        inside.settlement(reader.world.broker).fail(reader.consumer, [reference], Failure(), "nack", {})


def released(reader: Reader) -> None:
    inside.settlement(reader.world.broker).fail(reader.consumer, reader.held(), Failure(counts=False), "nack", {})


def recalled(reader: Reader) -> None:
    inside.settlement(reader.world.broker).give_back(reader.consumer, list(reader.consumer.unsettled.values()))


def rolled_back(reader: Reader) -> None:
    connection = reader.reader.connection
    assert connection is not None
    inside.transactions(reader.world.broker).hold_acknowledgement(connection, 0, reader.consumer, reader.held())
    inside.transactions(reader.world.broker).roll_back(connection, 0)


def timed_out(reader: Reader) -> None:
    reader.held()
    reader.world.time_ms += reader.queue("a").settings.consumer_timeout_ms
    reader.world.loop.tick()


WAYS: list[Callable[[Reader], None]] = [nacked, nacked_one_by_one, released, recalled, rolled_back, timed_out]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("prefetch", [1, 2, 3, 10])
def test_it_comes_back_before_anything_else(way: Callable[[Reader], None], prefetch: int) -> None:
    reader = Reader(prefetch)
    first = "ABCDEFGH"[:prefetch]
    assert reader.turn() + "".join(reader.keys()) == first
    for _ in range(3):
        reader.send(
            reader.sender, "a", "Z"
        )  # and so something is on its way to the disk, also where the return itself changes nothing there
        way(reader)
        assert reader.turn() == "", "it is on its way"
        came = reader.commit()
        assert came.startswith(first)
        assert came.replace("Z", "") == first
    assert reader.consumer.credit == max(0, prefetch - 8 - 3)


def test_what_has_a_delay_frees_its_credit_at_once() -> None:
    reader = Reader(1)
    assert reader.turn() == "A"
    inside.settlement(reader.world.broker).fail(reader.consumer, reader.held(), Failure(delay_ms=1000), "nack", {})
    assert reader.turn() == "B"


def test_what_is_acknowledged_beside_it_lets_nothing_overtake() -> None:
    reader = Reader(3)
    assert reader.turn() == "ABC"
    inside.settlement(reader.world.broker).fail(reader.consumer, reader.held("A"), Failure(), "nack", {})
    inside.settlement(reader.world.broker).acknowledge(reader.consumer, reader.held("B"))
    assert reader.turn() == ""
    assert reader.commit() == "AD"


def test_others_go_on() -> None:
    reader = Reader(1)
    assert reader.turn() == "A"
    nacked(reader)
    reader.subscribe(reader.reader, "a", prefetch=1)
    assert reader.turn() == "B"
    assert reader.commit() == "A"


def test_what_is_not_durable_is_in_its_place_at_once() -> None:
    reader = Reader(1, wanted="")
    reader.send(reader.sender, "a", *"ABC", durable=False)
    assert reader.turn() == "A"
    reader.send(reader.sender, "b", "durable")
    assert reader.world.journal.busy()
    nacked(reader)
    assert reader.turn() == "A"


def test_but_not_before_what_is_durable() -> None:
    reader = Reader(2, wanted="A")
    reader.send(reader.sender, "a", "B", durable=False)
    assert reader.turn() == "AB"
    nacked_one_by_one(reader)
    assert reader.turn() == ""
    assert reader.commit() == "AB"


def test_a_pull_waits_for_it() -> None:
    reader = Reader(0)
    broker, connection, empty = reader.world.broker, reader.reader.connection, []
    assert connection is not None
    reader.reader.pull_empty = lambda consumer: empty.append(consumer)  # type: ignore[method-assign]
    inside.consumers(broker).pull(connection, reader.consumer, -1)
    assert reader.turn() == "A"
    nacked(reader)
    inside.consumers(broker).pull(connection, reader.consumer, 0)
    inside.consumers(broker).pull(connection, reader.consumer, -1)
    assert reader.turn() == ""
    assert not empty, "nobody is told that there is nothing while it is on its way"
    assert reader.commit() == "AB"


# -- what may become of it on the way ------------------------------------------------------------------------------------


def dead_lettered(reader: Reader) -> str:
    inside.settlement(reader.world.broker).poison(reader.consumer, reader.held(), {})
    return "B"


def parked(reader: Reader) -> str:
    settings = type(inside.settings(reader.world.broker))({"#": {**AT_ONCE, "dead-letter-address": None}})
    reader.queue("a").settings = settings.resolve("a")
    return dead_lettered(reader)


def expired_when_it_came_back(reader: Reader) -> str:
    reader.held()[0].expires_at_ms = reader.world.time_ms - 1
    nacked(reader)
    return "B"


def expired_on_its_way(reader: Reader) -> str:
    reference = reader.held()[0]
    reference.expires_at_ms = reader.world.time_ms + 10
    nacked(reader)
    reader.world.time_ms += 20
    return "B"


def purged_on_its_way(reader: Reader) -> str:
    nacked(reader)
    at_once(inside.contents(reader.world.broker).purge(BROKER, reader.queue("a")))
    return "A"


def deleted_on_its_way(reader: Reader) -> str:
    nacked(reader)
    inside.references(reader.world.broker).leave(next(iter(reader.queue("a").references.values())), "dropped", reader.world.time_ms)
    return "B"


@pytest.mark.parametrize(
    "fate",
    [dead_lettered, parked, expired_when_it_came_back, expired_on_its_way, purged_on_its_way, deleted_on_its_way],
    ids=lambda fate: fate.__name__,
)
def test_credit_is_never_lost(fate: Callable[[Reader], str]) -> None:
    reader = Reader(1)
    assert reader.turn() == "A"
    wanted = fate(reader)
    assert reader.turn() + reader.commit() == wanted
    assert (reader.consumer.returning, len(reader.consumer.unsettled)) == (0, 1)
    reader.world.check_balance()


def test_a_queue_that_is_deleted_and_a_connection_that_is_lost_meanwhile() -> None:
    reader = Reader(1)
    nacked(reader)
    inside.removal(reader.world.broker).delete(ANYBODY, reader.queue("a"))
    reader.world.commit()
    assert reader.consumer.returning == 0
    reader = Reader(2)
    inside.settlement(reader.world.broker).fail(reader.consumer, reader.held("A"), Failure(), "nack", {})
    reader.lose(reader.reader)
    other = reader.client()
    reader.keys()
    reader.subscribe(other, "a", prefetch=10)
    reader.world.commit()
    assert reader.consumer.returning == 0
    assert sorted(reader.keys()) == list("ABCDEFGH")


def test_a_window_that_is_shared_is_free_for_all_who_share_it() -> None:
    reader = Reader(5, wanted="A")
    reader.send(reader.sender, "b", "B")
    window = SharedWindow()
    window.limit = 1
    other = reader.subscribe(reader.reader, "b", prefetch=5)
    for consumer in (reader.consumer, other):
        window.join(consumer)
    assert reader.commit() == "A"
    nacked(reader)
    inside.references(reader.world.broker).leave(next(iter(reader.queue("a").references.values())), "dropped", reader.world.time_ms)
    assert (window.room_for(other), reader.turn()) == (0, "")
    assert reader.commit() == "B"


# -- one at a time -------------------------------------------------------------------------------------------------------


class Single(Life):
    """A queue ``q`` with a single active consumer: ``holder`` has A, B and C, ``following`` waits."""

    def __init__(self) -> None:
        super().__init__(AT_ONCE)
        self.sender, self.holders = self.client(), [self.client() for _ in range(3)]
        self.declared = inside.declared_queues(self.world.broker)
        connection = self.sender.connection
        assert connection is not None
        arguments = {"x-single-active-consumer": True}
        self.declared.declare(connection, "q", durable=True, exclusive=False, auto_delete=False, arguments=arguments)
        self.send(self.sender, "q", *"ABCDEF")
        self.world.commit()
        for holder, prefetch in zip(self.holders, (3, 10, 10), strict=True):
            self.join(holder, prefetch)
        self.world.turn()

    def join(self, client: Client, prefetch: int) -> None:
        self.declared.stand_by(self.queue("q"), self.subscribe(client, "q", prefetch=prefetch))

    def goes(self, client: Client, lost: bool) -> None:
        assert client.connection is not None
        consumer = client.consumers[1]
        consumer.delivered(consumer.next_tag - 1, self.world.time_ms)
        inside.connections(self.world.broker).disconnect(client.connection, lost)
        self.declared.promote([self.queue("q")])


@pytest.mark.parametrize("lost", [True, False])
def test_the_next_single_active_consumer_waits_for_what_the_last_one_gave_back(lost: bool) -> None:
    life = Single()
    assert life.keys() == ["A", "B", "C"]
    life.goes(life.holders[0], lost)
    life.world.turn()
    assert life.keys() == []
    life.goes(life.holders[1], lost)
    life.world.turn()
    assert life.keys() == [], "nor does the one after it get anything"
    life.world.commit()
    assert life.keys() == ["A", "B", "C", "D", "E", "F"]


def test_it_waits_for_what_a_cancelled_one_still_holds_whether_that_is_settled_or_comes_back() -> None:
    life = Single()
    life.keys()
    holder, broker = life.holders[0], life.world.broker
    assert holder.connection is not None
    cancelled = holder.consumers[1]
    cancelled.delivered(3, life.world.time_ms)
    inside.consumers(broker).unsubscribe(holder.connection, cancelled, keep_delivered=True)
    life.declared.promote([life.queue("q")])
    life.world.commit()
    assert life.keys() == [], "the channel holds them still"
    inside.settlement(broker).acknowledge(cancelled, [cancelled.unsettled[2]])
    life.world.commit()
    assert life.keys() == []
    inside.consumers(broker).release(holder.connection, [cancelled])
    life.world.turn()
    assert life.keys() == []
    life.world.commit()
    assert life.keys() == ["A", "C", "D", "E", "F"]


def test_but_not_for_what_its_own_channel_holds() -> None:
    """A program that stops its consumer for a while, and settles several together, would wait for itself."""
    life = Single()
    life.keys()
    holder, broker = life.holders[0], life.world.broker
    assert holder.connection is not None
    for other in life.holders[1:]:
        life.goes(other, lost=False)
    cancelled, window = holder.consumers[1], SharedWindow()
    cancelled.delivered(3, life.world.time_ms)
    window.join(cancelled)
    inside.consumers(broker).unsubscribe(holder.connection, cancelled, keep_delivered=True)
    again = life.subscribe(holder, "q", prefetch=10)
    window.join(again)
    life.declared.stand_by(life.queue("q"), again)
    life.world.commit()
    assert life.keys() == ["D", "E", "F"]


def test_nor_does_one_that_comes_when_all_are_gone_overtake_anything() -> None:
    life = Single()
    life.keys()
    for holder in life.holders:
        life.goes(holder, lost=True)
    life.join(life.client(), 10)
    life.world.turn()
    assert life.keys() == []
    life.world.commit()
    assert life.keys() == ["A", "B", "C", "D", "E", "F"]
