"""What AMQP's channels and connections hold when they close in order: it counts where a limit is in force, and no innocent dies of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.core.amqp.policy import read_policy
from homing.broker.core.event import FIRST_DEAD
from homing.broker.core.message import MessageReference
from homing.broker.core.queue import Queue
from homing.broker.protocols.amqp091.codec import method_frame
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_methods import declared, opened, published
from tests.unit.test_amqp_session import Peer, codes

LIMIT = 3
LIMITED = {"x-delivery-limit": LIMIT, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
PERSISTENT = b"\x10\x00\x02"


def life(arguments: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, messages: int = 1) -> World:
    world = World(settings or {})
    peer = opened(world)
    declared(peer, "dead")
    declared(peer, "q", LIMITED if arguments is None else arguments)
    peer.send(b"".join(published("q", b"%d" % number, PERSISTENT) for number in range(messages)))
    return world


def queue(world: World, name: str = "q") -> Queue:
    return inside.queues(world.broker)[name]


def worker(world: World, prefetch: int = 1, channels: int = 1) -> Peer:
    peer = opened(world)
    for channel in range(1, channels + 1):
        if channel > 1:
            peer.call(channel, "channel.open", "")
        peer.call(channel, "basic.qos", 0, prefetch, False)
        peer.call(channel, "basic.consume", 0, "q", f"c{channel}", False, False, False, False, {})
    return peer


def held(world: World) -> list[MessageReference]:
    """In the order in which they were delivered."""
    return sorted(
        (each for each in queue(world).references.values() if each.consumer is not None),
        key=lambda each: (each.dispatched_at_ms, each.tag),
    )


def close_connection(peer: Peer) -> None:
    assert peer.call(0, "connection.close", 200, "bye", 0, 0) == [("connection.close-ok", [])]


def close_channel(peer: Peer) -> None:
    assert ("channel.close-ok", []) in peer.call(1, "channel.close", 200, "bye", 0, 0)


def cancel_and_close(peer: Peer) -> None:
    """As pika does."""
    peer.call(1, "basic.cancel", "c1", False)
    close_channel(peer)
    close_connection(peer)


def unknown_tag(peer: Peer) -> None:
    assert codes(peer.call(1, "basic.ack", 99, False)) == [("channel.close", 406)]


def no_such_exchange(peer: Peer) -> None:
    assert codes(peer.send(published("q", exchange="nowhere"))) == [("channel.close", 404)]


def another_declaration(peer: Peer) -> None:
    wrong = peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {"x-delivery-limit": 7})
    assert codes(wrong) == [("channel.close", 406)]


def error_of_the_connection(peer: Peer) -> None:
    assert codes(peer.call(7, "basic.ack", 1, False)) == [("connection.close", 504)]


WAYS = (close_connection, close_channel, cancel_and_close, unknown_tag, no_such_exchange, another_declaration, error_of_the_connection)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_message_whose_clients_always_close_in_order_reaches_its_limit(way: Callable[[Peer], None]) -> None:
    world = life()
    deliveries = 0
    while deliveries < 12:
        peer = worker(world)
        if not (there := held(world)):
            break
        deliveries += 1
        (reference,) = there
        assert (reference.failed, reference.delivery_count) == (deliveries - 1, deliveries - 1)
        way(peer)
    assert deliveries == LIMIT + 1
    (letter,) = queue(world, "dead").references.values()
    assert letter.hops is not None
    assert letter.hops[0].detail["reason"] == "delivery_limit"
    assert {name for name, number in inside.events(world.broker).made.items() if number} == {FIRST_DEAD}, "of its death, not of the ends"


def test_a_single_get_counts_too() -> None:
    world, deliveries = life(), 0
    while deliveries < 12:
        peer = opened(world)
        ((answer, _),) = peer.call(1, "basic.get", 0, "q", False)
        close_channel(peer)
        if answer == "basic.get-empty":
            break
        deliveries += 1
    assert deliveries == LIMIT + 1
    assert queue(world, "dead").count == 1


@pytest.mark.parametrize(
    ("arguments", "settings", "failed"),
    [
        ({}, {}, 0),
        ({"x-delivery-limit": -1}, {}, 0),
        ({}, {"#": {"max-delivery-attempts": 2}}, 0),
        ({}, {"q": {"max-delivery-attempts": 5}}, 1),
        (
            {},
            {
                "q": {
                    "max-delivery-attempts": 5,
                    "redelivery-delay": "1m",
                    "rules": [{"header": {"JMSPriority": 4}, "action": "dead-letter"}],
                }
            },
            1,
        ),
        ({"x-queue-type": "quorum"}, {}, 1),
    ],
)
def test_it_counts_only_where_a_limit_is_in_force(arguments: dict[str, Any], settings: dict[str, Any], failed: int) -> None:
    world = life(arguments, settings)
    cancel_and_close(worker(world))
    (reference,) = queue(world).pending
    assert (reference.delivery_count, reference.failed, reference.due_at_ms) == (1, failed, None), "without a delay, and no rule has a say"
    assert reference.cause == 0, "no fault is seen in it"
    assert not inside.faults(world.broker).by_id
    inside.connections(world.broker).disconnect(worker(world).session.connection, lost=False)
    assert queue(world).consumers == []
    world.commit()
    assert reference.failed == failed, "nor does it count where the broker ends the connection of its own accord"


def test_cancel_returns_nothing() -> None:
    world = life()
    peer = worker(world)
    peer.call(1, "basic.cancel", "c1", False)
    (reference,) = held(world)
    peer.call(1, "basic.ack", 1, False)
    assert (reference.failed, queue(world).count) == (0, 0)


def test_a_policy_sets_a_limit_too() -> None:
    world = life({})
    inside.set_policy(world.broker, read_policy("p", "q", {"delivery-limit": 1}, "queues", 0))
    for _ in range(2):
        cancel_and_close(worker(world))
    assert queue(world).count == 0


# -- company -------------------------------------------------------------------------------------------------------------


def test_channels_of_one_connection_that_close_one_after_the_other_are_company() -> None:
    world = life(messages=2)
    for round_ in range(12):
        peer = worker(world, channels=2)
        assert len(held(world)) == 2 if round_ < LIMIT else len(held(world)) == 1, "then they are suspects, and one goes alone"
        if round_ == LIMIT:
            break
        for channel in (1, 2):
            peer.call(channel, "channel.close", 200, "bye", 0, 0)
    assert {(each.failed, each.suspect) for each in queue(world).references.values()} == {(LIMIT, True)}
    assert queue(world, "dead").count == 0


def test_of_fifty_that_one_worker_holds_only_the_poison_dies() -> None:
    """The worker that meets it closes in order; it works on the others, one after the other."""
    world, deliveries = life(messages=50), 0
    while queue(world).count:
        peer = worker(world, prefetch=50)
        while there := held(world):
            if there[0].message.body == b"7":
                deliveries += 1
                cancel_and_close(peer)
                break
            assert there[0].consumer is not None
            peer.call(1, "basic.ack", _tag(peer, there[0]), False)
        assert deliveries < 12
    assert [each.message.body for each in queue(world, "dead").references.values()] == [b"7"]
    assert deliveries == LIMIT + 2, "alone for the first time it is spared: that may be a worker that is stopped"


def _tag(peer: Peer, reference: MessageReference) -> int:
    """The channel's tag of what is held: each worker has one consumer, whose tags are the channel's."""
    return reference.tag


@pytest.mark.parametrize("done", [0, 1, 7, 30])
def test_twenty_deploys_of_a_worker_kill_nothing_and_let_no_suspect_wait(done: int) -> None:
    """Each worker settles so many of a thousand good messages, and is stopped in order while it works on the next."""
    world = life({"x-queue-type": "quorum"} if not done else None, messages=1000)
    for _ in range(20):
        peer = worker(world, prefetch=50)
        for number in range(done + 1):
            world.time_ms += 20
            world.turn()
            there = held(world)
            if queue(world).suspects:
                assert [each.suspect for each in there] == [True], "a suspect is worked on, and the next follows when that is settled"
            if number < done:
                peer.call(1, "basic.ack", _tag(peer, there[0]), False)
        cancel_and_close(peer)
    assert queue(world, "dead").count == 0
    assert queue(world).count == 1000 - 20 * done
    peer = worker(world, prefetch=50)
    while there := held(world):
        peer.send(b"".join(method_frame(1, "basic.ack", _tag(peer, each), False) for each in there))
    assert (queue(world).count, queue(world, "dead").count) == (0, 0)
