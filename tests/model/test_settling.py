"""Deliveries that end by the thousand do so in steps: others come between, and nobody sees a half of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from homing.broker.core.counts import COUNT_OF_OUTCOME
from homing.broker.protocols.amqp091.codec import method_frame
from homing.broker.protocols.native.codec import Op
from tests import inside
from tests.model.crowd import Client, sender
from tests.model.world import World
from tests.unit.test_amqp_session import Peer

#: More than may end at once; and of acknowledgements.
MANY = 1_500
MANY_ACKNOWLEDGED = 2_500
#: What one turn of the loop may settle of that.
A_TURN = 700
SETTINGS = {"#": {"max-delivery-attempts": 10, "redelivery-delay": 0}}


def filled(messages: int = MANY) -> tuple[World, Client]:
    """A queue ``work`` with messages of which each says its place."""
    world = World(SETTINGS)
    client = sender(world, "sends", "work")
    client.say([Op.SEND, 1, 1, [[str(number).encode()] for number in range(messages)]])
    world.commit()
    return world, client


def holder(world: World) -> Peer:
    """It was delivered all that there is."""
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "basic.consume", 0, "work", "all", False, False, False, False, {})
    assert not work(world).ready
    return peer


def work(world: World) -> Any:
    return inside.queues(world.broker)["work"]


def turn(world: World) -> int:
    """How many deliveries end in it."""
    before = work(world).delivering
    world.loop.drain()
    world.journal.commit()
    return int(before - work(world).delivering)


def until_over(world: World, between: Callable[[], None] = lambda: None) -> list[int]:
    """How many deliveries ended in each turn."""
    ended: list[int] = []
    while inside.settles(world.broker) or work(world).shut:
        between()
        ended.append(turn(world))
        assert len(ended) < MANY
    world.commit()
    world.check_balance()
    return ended


def bodies(world: World, name: str) -> list[int]:
    """What is ready in a queue, in the order in which it goes out."""
    return [int(reference.message.body) for reference in inside.queues(world.broker)[name].pending]


WAYS: dict[str, tuple[Any, ...]] = {
    "ack": ("basic.ack", 0, True),
    "nack": ("basic.nack", 0, True, False),
    "requeue": ("basic.nack", 0, True, True),
    "recover": ("basic.recover", True),
    "close": ("channel.close", 200, "bye", 0, 0),
    "goodbye": ("connection.close", 200, "bye", 0, 0),
    "lost": (),
}


def end(peer: Peer, how: str, *behind: bytes) -> None:
    """In one read."""
    if how == "lost":
        peer.session.lost()
        return
    name, *values = WAYS[how]
    stop = b"" if how == "lost" else method_frame(1, "basic.cancel", "all", False)
    first = method_frame(0 if how == "goodbye" else 1, name, *values)
    peer.session.receive((stop if how in ("requeue", "recover") else b"") + first + b"".join(behind))


@pytest.mark.parametrize("how", WAYS)
def test_no_turn_settles_more_than_it_may_and_others_are_confirmed_between(how: str) -> None:
    messages = MANY_ACKNOWLEDGED if how == "ack" else MANY
    world, other = filled(messages)
    peer = holder(world)
    end(peer, how)
    assert work(world).delivering >= messages - A_TURN

    def send() -> None:
        number = len(other.of(Op.CONFIRM)) + 1
        other.say([Op.PRODUCER, number + 1, number + 1, "elsewhere"], [Op.SEND, number + 1, 1, [[b"x"]]])
        for _ in range(2):
            ended.append(turn(world))
        assert other.of(Op.CONFIRM)[-1][1] == number + 1, "confirmed with the next commit"

    ended: list[int] = []
    ended += until_over(world, send)
    assert max(ended) <= A_TURN
    assert len(ended) > messages // A_TURN
    expected = list(range(messages))
    assert bodies(world, "work") == ([] if how in ("ack", "nack") else expected)
    if how == "nack":
        assert bodies(world, "DLQ.work") == expected


def test_what_very_many_consumers_did_not_settle_in_time_comes_back_in_steps() -> None:
    consumers, each = 30, 50
    world, _ = filled(consumers * each)
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "basic.qos", 0, each, False)
    for number in range(consumers):
        peer.call(1, "basic.consume", 0, "work", f"c{number}", False, False, False, False, {})
    for number in range(consumers):
        peer.call(1, "basic.cancel", f"c{number}", False)
    held = [work(world).delivering]
    assert held == [consumers * each]
    world.time_ms += work(world).settings.consumer_timeout_ms
    world.loop.tick()
    while held[-1]:
        held.append(work(world).delivering)
        turn(world)
        assert len(held) < consumers
    assert max(before - after for before, after in pairwise(held)) <= A_TURN
    world.commit()
    world.check_balance()
    assert bodies(world, "work") == list(range(consumers * each))


@pytest.mark.parametrize("how", ["requeue", "close", "lost"])
def test_what_comes_back_is_there_all_at_once_and_in_its_order(how: str) -> None:
    world, other = filled()
    peer = holder(world)
    end(peer, how)
    other.say([Op.SEND, 1, MANY + 1, [[str(number).encode()] for number in range(MANY, MANY + 10)]])
    seen: list[int] = []
    second = Peer(world)
    second.log_in()
    second.call(1, "channel.open", "")
    second.session.receive(method_frame(1, "basic.consume", 0, "work", "second", False, False, False, False, {}))

    def look() -> None:
        held = next(iter(work(world).consumers)).unsettled if work(world).consumers else {}
        seen.append(len(held))

    until_over(world, look)
    for _ in range(20):
        turn(world)
    held = [int(each.message.body) for each in work(world).consumers[0].unsettled.values()]
    assert sorted(held) == list(range(MANY + 10))
    came_back = [each for each in held if each < MANY]
    assert came_back == list(range(MANY)), "nothing overtook what came back"
    assert {each for each in seen if each > 10} <= {MANY + 10}, "it got nothing of it before all was there"


@pytest.mark.parametrize("how", ["nack", "requeue", "recover"])
def test_what_was_asked_behind_it_is_answered_behind_it(how: str) -> None:
    world, _ = filled()
    peer = holder(world)
    end(peer, how, method_frame(1, "queue.declare", 0, "work", True, False, False, False, False, {}))
    peer.out = b""
    until_over(world)
    said = peer.methods()
    assert [values[1] for name, values in said if name == "queue.declare-ok"] == [0 if how == "nack" else MANY]
    assert [name for name, _ in said if name.endswith("-ok")][-1] == "queue.declare-ok"


@pytest.mark.parametrize("after", [1, 7])
def test_a_connection_that_is_lost_in_the_middle_ends_first_what_it_had_asked_for(after: int) -> None:
    world, _ = filled()
    peer = holder(world)
    end(peer, "nack", method_frame(1, "queue.delete", 0, "work", False, False, True))
    for _ in range(after):
        turn(world)
    assert work(world).delivering > 0
    peer.session.lost()
    until_over(world)
    assert bodies(world, "DLQ.work") == list(range(MANY))
    assert not work(world).count, "and what came behind it was not acted on"


@pytest.mark.parametrize("how", ["nack", "requeue"])
def test_a_kill_in_the_middle_loses_nothing_and_doubles_nothing(how: str) -> None:
    world, _ = filled()
    peer = holder(world)
    end(peer, how)
    for _ in range(5):
        turn(world)
    left = work(world).delivering
    assert 0 < left < MANY
    world.crash()
    world.commit()
    here, dead = bodies(world, "work"), bodies(world, "DLQ.work") if how == "nack" else []
    assert here == sorted(here)
    ended = MANY - len(here)
    assert here == list(range(ended, MANY))
    assert dead == list(range(ended))
    assert 0 < ended <= MANY - left if how == "nack" else not ended


def test_a_get_waits_for_what_comes_back() -> None:
    world, _ = filled(MANY_ACKNOWLEDGED)
    end(holder(world), "requeue")
    while not work(world).shut:
        turn(world)
    assert work(world).pending.count, "some of it is there"
    connection = next(iter(inside.connections(world.broker).all.values()))
    assert inside.gets(world.broker).get(connection, 99, work(world)) is None
    answered: list[bool] = []
    assert inside.gets(world.broker).when_read(connection, work(world), lambda: answered.append(work(world).shut))
    until_over(world)
    assert answered == [False]


def test_a_queue_that_is_deleted_in_the_middle_takes_the_rest_along() -> None:
    world, _ = filled()
    peer = holder(world)
    end(peer, "requeue")
    for _ in range(5):
        turn(world)
    inside.deletion(world.broker).delete_queue(work(world))
    while inside.settles(world.broker):
        world.loop.drain()
        world.journal.commit()
    world.commit()
    world.check_balance()
    assert "work" not in inside.queues(world.broker)


def test_a_broker_that_stops_settles_all_of_it_at_once() -> None:
    world, _ = filled()
    peer = holder(world)
    end(peer, "nack")
    for connection in list(inside.connections(world.broker).all.values()):
        inside.connections(world.broker).disconnect(connection, lost=False)
    world.broker.settling.finish()
    assert not work(world).delivering
    world.commit()
    assert bodies(world, "DLQ.work") == list(range(MANY))


@pytest.mark.parametrize(("kind", "left", "dead"), [(1, 0, MANY), (3, MANY, 0), (5, MANY, 0)])
def test_native_acknowledgements_of_very_many_are_answered_when_all_is_done(kind: int, left: int, dead: int) -> None:
    world, _ = filled()
    reader = Client(world, "reads")
    reader.say([Op.SUBSCRIBE, 1, 1, "work", {"prefetch": 100_000}])
    while work(world).ready:
        turn(world)
    reader.say([Op.GIVEN, 1, MANY], [Op.ACK, 1, kind, [1, MANY], None, 7], [Op.UNSUBSCRIBE, 8, 1])
    assert work(world).delivering
    while inside.settles(world.broker):
        assert (len(work(world).consumers), reader.of(Op.RESULT)[-1][1]) == (1, 1), "what came behind it waits"
        turn(world)
    until_over(world)
    assert [frame[1] for frame in reader.of(Op.RESULT)] == [1, 7, 8]
    assert bodies(world, "work") == list(range(left))
    assert bodies(world, "DLQ.work") == list(range(dead)) if dead else "DLQ.work" not in inside.queues(world.broker)


@pytest.mark.parametrize("killed", [False, True])
def test_a_queue_that_is_deleted_with_very_much_in_it_is_gone_at_once_and_its_memory_in_steps(killed: bool) -> None:
    world, _ = filled()
    peer, queue = holder(world), work(world)
    before = inside.memory(world.broker).bytes
    peer.session.receive(method_frame(1, "queue.delete", 0, "work", False, False, False))
    assert "work" not in inside.queues(world.broker)
    assert len(queue.references) > MANY - A_TURN, "most of it is still to be let go"
    # What is still acknowledged of it is nothing any more, and what dies of it goes nowhere.
    peer.session.receive(method_frame(1, "basic.nack", 0, True, False))
    if killed:
        world.journal.commit()
        world.crash()
    else:
        seen = len(queue.references)
        while queue.references:
            world.loop.drain()
            assert 0 < seen - len(queue.references) <= A_TURN
            seen = len(queue.references)
        assert inside.memory(world.broker).bytes < before - 300 * MANY
        assert queue.counts[COUNT_OF_OUTCOME["purged"]] == MANY
    world.commit()
    world.check_balance()
    assert not {"work", "DLQ.work"} & set(inside.queues(world.broker))
