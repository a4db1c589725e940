"""A prefetch for the whole channel: who gets the room there is, and who has it back."""

from __future__ import annotations

from collections import Counter

import pytest

from homing.broker.protocols.amqp091.codec import FrameReader, MethodEvent, method_frame
from homing.broker.protocols.amqp091.codec_methods import METHODS
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_methods import declared, opened, published
from tests.unit.test_amqp_session import Peer

QUEUES = ("a", "b", "c")


class Consuming:
    """A channel with a prefetch for all of it that consumes three queues; a second connection publishes."""

    def __init__(self, prefetch: int, world: World | None = None, **messages: int) -> None:
        self.world = world or World({})
        self.peer, self.publisher = opened(self.world), opened(self.world)
        for queue in QUEUES:
            declared(self.peer, queue)
            self.publisher.send(published(queue) * messages.get(queue, 0))
        self.peer.call(1, "basic.qos", 0, prefetch, True)
        #: Delivery tag -> queue, of what is unacknowledged; and how many came of each queue.
        self.held: dict[int, str] = {}
        self.came: Counter[str] = Counter()

    def consume(self, *queues: str, no_ack: bool = False) -> None:
        frames = [method_frame(1, "basic.consume", 0, queue, queue, False, no_ack, False, True, {}) for queue in queues or QUEUES]
        self.peer.session.receive(b"".join(frames))
        self.look(no_ack)

    def look(self, no_ack: bool = False) -> None:
        self.world.commit()
        out, self.peer.out = self.peer.out, b""
        reader = FrameReader(set(), 1 << 20)
        reader.frame_max = 1 << 20
        for event in reader.feed(out):
            if isinstance(event, MethodEvent) and METHODS[event.number].name == "basic.deliver":
                self.came[event.values[0]] += 1
                self.held[event.values[1]] = event.values[0]

    def acknowledge(self, tag: int) -> None:
        del self.held[tag]
        self.peer.session.receive(method_frame(1, "basic.ack", tag, False))
        self.look()

    def holds(self) -> dict[str, int]:
        return dict(Counter(self.held.values()))


def test_one_by_one_the_queues_take_turns() -> None:
    consuming = Consuming(1, a=100, b=100, c=100)
    consuming.consume()
    for _ in range(98):
        (tag,) = consuming.held
        consuming.acknowledge(tag)
    assert consuming.came == {"a": 33, "b": 33, "c": 33}


@pytest.mark.parametrize(("prefetch", "expected"), [(99, (33, 33, 33)), (100, (34, 33, 33)), (3, (1, 1, 1)), (2, (1, 1, 0))])
def test_what_is_there_is_shared_alike(prefetch: int, expected: tuple[int, ...]) -> None:
    consuming = Consuming(prefetch, a=200, b=200, c=200)
    consuming.consume()
    assert sorted((consuming.holds().get(queue, 0) for queue in QUEUES), reverse=True) == list(expected)


def test_who_has_less_leaves_the_rest_to_the_others() -> None:
    consuming = Consuming(60, a=200, b=4, c=200)
    consuming.consume()
    assert consuming.holds() == {"a": 28, "b": 4, "c": 28}


def test_room_goes_to_whoever_holds_least() -> None:
    consuming = Consuming(9, a=100, b=100, c=100)
    consuming.consume()
    for tag in [tag for tag, queue in consuming.held.items() if queue == "b"]:
        consuming.acknowledge(tag)
    assert consuming.holds() == {"a": 3, "b": 3, "c": 3}


def test_one_that_comes_late_gets_its_part_as_room_comes() -> None:
    consuming = Consuming(6, a=100, b=100)
    consuming.consume("a")
    assert consuming.holds() == {"a": 6}
    consuming.consume("b")
    for _ in range(3):
        consuming.acknowledge(min(consuming.held))
    assert consuming.holds() == {"a": 3, "b": 3}


def test_who_does_not_acknowledge_waits_for_room_and_takes_none() -> None:
    consuming = Consuming(2, a=2, b=50)
    consuming.consume("a")
    consuming.consume("b", no_ack=True)
    assert consuming.came == {"a": 2}
    consuming.acknowledge(1)
    assert consuming.came == {"a": 2, "b": 50}
    consuming.publisher.send(published("b") + published("a") * 2)
    consuming.look()
    assert consuming.came == {"a": 3, "b": 51}
    consuming.publisher.send(published("b"))
    consuming.look()
    assert consuming.came == {"a": 3, "b": 51}, "there is no room again"
    consuming.peer.session.receive(method_frame(1, "basic.qos", 0, 0, True))
    consuming.look()
    assert consuming.came == {"a": 4, "b": 52}, "no limit any more"


def test_a_queue_that_is_deleted_gives_its_room_back() -> None:
    consuming = Consuming(4, a=4, b=10)
    consuming.consume("a")
    consuming.consume("b")
    assert consuming.came == {"a": 4}
    consuming.publisher.call(1, "queue.delete", 0, "a", False, False, False)
    consuming.look()
    assert consuming.came == {"a": 4, "b": 4}


def test_what_timed_out_gives_its_room_back() -> None:
    consuming = Consuming(4, World({"a": {"consumer-timeout": 5000}}), a=4, b=10)
    consuming.consume("a")
    consuming.consume("b")
    consuming.peer.call(1, "basic.cancel", "a", False)
    consuming.world.time_ms += 10_000
    consuming.world.loop.tick()
    consuming.look()
    assert consuming.came == {"a": 4, "b": 4}


def test_a_hundred_queues_are_filled_in_a_few_turns() -> None:
    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    names = [f"q{number}" for number in range(100)]
    for name in names:
        declared(peer, name)
    for name in ("q7", "q93"):
        peer.send(published(name) * 300)
    peer.call(1, "basic.qos", 0, 200, True)
    for name in names:
        peer.session.receive(method_frame(1, "basic.consume", 0, name, name, False, False, False, True, {}))
    turns = 0
    while inside.ready(world.broker):
        world.loop.drain()
        turns += 1
    queues = inside.queues(world.broker)
    assert [queues[name].delivering for name in ("q7", "q93")] == [100, 100]
    assert turns <= 4
