"""Who is slow by the settings of its queue, on a clock of the test's own."""

from __future__ import annotations

import pytest

from homing.broker.core.consumer import Consumer
from homing.broker.core.event import CONSUMER_SLOW
from tests import inside
from tests.model.world import World
from tests.unit.test_stomp_session import Peer

RATE = {"slow-consumer-threshold": 2, "slow-consumer-check-period": "5s"}


class Program:
    """Consumes from the queue ``a``, up to ``prefetch`` at a time, and settles what it is told to."""

    def __init__(self, world: World, prefetch: int) -> None:
        self.world, self.peer = world, Peer(world).log_in()
        self.peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client-individual", **{"activemq.prefetchSize": str(prefetch)})
        self.held: list[str] = []
        (self.consumer,) = inside.queues(world.broker)["a"].consumers

    def send(self, number: int) -> None:
        for _ in range(number):
            self._call("SEND", destination="/queue/a")

    def settle(self, number: int) -> None:
        for _ in range(number):
            self._call("ACK", id=self.held.pop(0))

    def _call(self, command: str, **headers: str) -> None:
        came = self.peer.call(command, **headers)
        self.held += [headers["ack"] for command, headers, _ in came if command == "MESSAGE"]

    def seconds(self, number: int, settles: int = 0) -> list[bool]:
        """Whether it was slow after each of so many, in which it settles so many."""
        found = []
        for _ in range(number):
            self.settle(settles)
            self.world.time_ms += 1000
            self.world.turn()
            found.append(self.consumer.slow)
        return found


def told(world: World) -> int:
    return inside.events(world.broker).describe()[CONSUMER_SLOW]["made"]


@pytest.mark.parametrize("prefetch", [1000, 1])
def test_whoever_settles_fewer_than_wanted_is_slow_until_it_settles_as_many(prefetch: int) -> None:
    world = World({"a": RATE})
    program = Program(world, prefetch)
    program.seconds(1)
    program.send(100)
    program.seconds(10, settles=3)
    assert (program.consumer.too_slow, told(world)) == (False, 0)
    program.seconds(10, settles=1)
    assert (program.consumer.too_slow, told(world)) == (True, 1)
    program.seconds(6)
    assert told(world) == 1  # once
    program.seconds(12, settles=3)
    assert not program.consumer.too_slow
    program.seconds(11, settles=1)
    assert told(world) == 2


def test_whoever_has_little_to_do_is_not_slow_nor_whoever_has_nothing() -> None:
    world = World({"a": RATE})
    program = Program(world, 1000)
    program.send(9)  # fewer than ten in five seconds
    program.seconds(12)
    program.settle(9)
    program.seconds(6)
    program.send(9)
    for _ in range(12):
        program.send(1)
        program.seconds(1, settles=1)
    assert (program.consumer.too_slow, told(world)) == (False, 0)


def test_whoever_has_one_for_too_long_is_slow_until_it_is_settled() -> None:
    world = World({"a": {"slow-consumer-age": "3s"}})
    program = Program(world, 10)
    program.send(4)
    assert (program.seconds(2), told(world)) == ([False, False], 0)
    assert (program.seconds(2), told(world)) == ([True, True], 1)
    program.settle(4)
    program.send(1)
    assert program.seconds(2) == [False, False]


def test_a_connection_may_be_ended_for_it_and_what_it_held_is_no_failure() -> None:
    world = World({"a": {**RATE, "slow-consumer-policy": "kill"}})
    program = Program(world, 100)
    program.send(30)
    other = Peer(world).log_in()
    program.seconds(12)
    ((command, headers, _),) = [each for each in program.peer.frames() if each[0] == "ERROR"]
    assert "it settled 0 messages a second over 5 s, and is to settle 2" in headers["message"], command
    world.turn()
    queue = inside.queues(world.broker)["a"]
    assert (queue.ready, [*queue.consumers], {each.failed for each in queue.references.values()}) == (30, [], {0})
    assert not other.ended


def test_who_reads_nothing_is_slow_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"a": RATE})
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="auto")
    (consumer,) = inside.queues(world.broker)["a"].consumers
    assert isinstance(consumer, Consumer)
    monkeypatch.setattr(peer, "writable", False)
    sender = Peer(world).log_in()
    for _ in range(20):
        sender.call("SEND", destination="/queue/a")
    for _ in range(12):
        world.time_ms += 1000
        world.turn()
    assert (consumer.too_slow, told(world)) == (True, 1)
