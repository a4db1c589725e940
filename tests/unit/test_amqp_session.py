"""An AMQP session without a socket: the life of a connection, bad behaviour, and random behaviour against a whole broker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.memory import Kind
from homing.broker.core.message import Where
from homing.broker.errors import Refused
from homing.broker.protocols.amqp091.codec import AckEvent, FrameReader, MethodEvent, content_frames, method_frame
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, PROTOCOL_HEADER, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from homing.broker.protocols.amqp091.codec_tables import write_fields
from homing.broker.protocols.amqp091.options import AmqpOptions
from homing.broker.protocols.amqp091.session import AmqpSession
from homing.broker.steps import at_once
from tests import inside
from tests.model.world import World


class Peer:
    """A client that writes bytes, and remembers the methods that came back."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.out = b""
        self.ended = False
        #: The broker has hung up, and does not wait for the client to do so.
        self.hung_up = False
        self.reading = True
        self.heartbeat_ms: int | None = None
        self.writable = True
        #: The loop's turn has taken long; how often the session waited for another.
        self.is_late, self.waits = False, 0
        self.endpoint = "127.0.0.1:4000"
        self.session = AmqpSession(
            world.broker, self, AmqpOptions("RabbitMQ", "3.13.7", broker_version="0.1", **options), self._authenticate
        )

    def _authenticate(self, user: str, password: str, done: Any) -> None:
        done(user if password == "right" else Refused("login-refused", "wrong", "try again"))

    # -- Output

    def write(self, data: bytes) -> None:
        self.out += data

    def end(self) -> None:
        self.ended = self.hung_up = True

    def leave(self) -> None:
        self.ended = True

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        self.heartbeat_ms = heartbeat_ms

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def late(self) -> bool:
        return self.is_late

    def wait_turn(self) -> None:
        self.waits += 1

    # -- the client

    def send(self, data: bytes) -> list[tuple[str, list[Any]]]:
        self.session.receive(data)
        return self.methods()

    def call(self, channel: int, name: str, *values: Any) -> list[tuple[str, list[Any]]]:
        return self.send(method_frame(channel, name, *values))

    def methods(self) -> list[tuple[str, list[Any]]]:
        """(name, arguments) of what came since the last time."""
        self.world.commit()
        out, self.out = self.out, b""
        reader = FrameReader(set(), 1 << 20)
        reader.frame_max = 1 << 20
        said: list[tuple[str, list[Any]]] = []
        for event in reader.feed(out):
            if isinstance(event, MethodEvent):
                said.append((METHODS[event.number].name, event.values))
            elif isinstance(event, AckEvent):
                said += [("basic.ack", [tag, event.multiple]) for tag in event.tags]
        return said

    def log_in(self, password: str = "right", vhost: str = "/") -> list[tuple[str, list[Any]]]:
        self.send(PROTOCOL_HEADER)
        self.call(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00" + password.encode(), "en_US")
        self.call(0, "connection.tune-ok", 100, 8192, 7)
        return self.call(0, "connection.open", vhost, "", False)


@pytest.fixture
def world() -> World:
    return World({})


#: A client that is notified when its login is refused.
TOLD = {"capabilities": {"authentication_failure_close": True}}


def codes(methods: list[tuple[str, list[Any]]]) -> list[tuple[str, int]]:
    return [(name, values[0]) for name, values in methods if name.endswith(".close")]


# -- the life of a connection ------------------------------------------------------------------------------------------


def test_a_connection_opens_step_by_step(world: World) -> None:
    peer = Peer(world)
    assert [name for name, _ in peer.send(PROTOCOL_HEADER[:3])] == []
    (name, values), *_ = peer.send(PROTOCOL_HEADER[3:])
    assert (name, values[:2], values[3:]) == ("connection.start", [0, 9], [b"PLAIN AMQPLAIN", b"en_US"])
    assert {name: values[2][name] for name in ("product", "version", "broker", "broker_version")} == {
        "product": "RabbitMQ",
        "version": "3.13.7",
        "broker": "Homing",
        "broker_version": "0.1",
    }
    assert peer.call(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00right", "en_US") == [("connection.tune", [2047, 131_072, 60])]
    assert peer.call(0, "connection.tune-ok", 100, 8192, 7) == []
    assert peer.call(0, "connection.open", "/", "", False) == [("connection.open-ok", [""])]
    assert peer.heartbeat_ms == 7000
    assert peer.call(1, "channel.open", "") == [("channel.open-ok", [b""])]
    assert peer.call(1, "channel.close", 200, "bye", 0, 0) == [("channel.close-ok", [])]
    assert peer.call(0, "connection.close", 200, "bye", 0, 0) == [("connection.close-ok", [])]
    assert peer.ended
    assert not inside.connections(world.broker).all


def test_nothing_is_done_that_comes_behind_a_goodbye(world: World) -> None:
    """Nobody would end what a connection that is gone had declared or consumed."""
    other = Peer(world)
    other.log_in()
    other.call(1, "channel.open", "")
    other.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    # The answer waits for the disk, on which the first queue is not yet.
    peer.session.receive(
        method_frame(1, "queue.declare", 0, "before", False, True, False, False, False, {})
        + method_frame(0, "connection.close", 200, "bye", 0, 0)
        + method_frame(1, "channel.open", "")
        + method_frame(1, "queue.declare", 0, "behind", False, False, True, False, False, {})
    )
    peer.session.receive(
        method_frame(2, "channel.open", "") + method_frame(2, "basic.consume", 0, "q", "c", False, False, False, False, {})
    )
    assert [name for name, _ in peer.methods()] == ["queue.declare-ok", "connection.close-ok"]
    assert peer.ended
    peer.session.lost()
    assert sorted(inside.queues(world.broker)) == ["before", "q"]
    assert inside.queues(world.broker)["q"].consumers == []


def test_who_says_goodbye_hangs_up_himself(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    assert peer.call(0, "connection.close", 200, "bye", 0, 0) == [("connection.close-ok", [])]
    assert peer.send(method_frame(1, "channel.open", "") + b"junk") == []
    assert (peer.ended, peer.hung_up) == (True, False)


def test_an_error_of_the_connection_waits_for_its_answer(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    assert codes(peer.call(0, "connection.tune-ok", 0, 0, 0)) == [("connection.close", 504)]
    assert peer.call(1, "channel.open", "") == []
    assert peer.call(0, "connection.close", 200, "bye", 0, 0) == [("connection.close-ok", [])], "both said goodbye at once"
    assert (peer.ended, peer.hung_up) == (True, False)
    assert peer.call(0, "connection.close-ok") == []
    assert peer.hung_up


def test_where_no_answer_can_be_read_none_is_waited_for(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    assert codes(peer.send(b"\x01\x00\x00\x00\x00\x20\x01")) == [("connection.close", 501)]
    assert peer.hung_up


def test_an_error_while_an_answer_is_held_back_ends_the_waiting(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.session.defer()
    peer.send(method_frame(1, "channel.close", 200, "", 0, 0))
    peer.session.end("broker-stopping", "the broker is stopping", "")
    assert codes(peer.methods()) == [("connection.close", 320)]
    peer.session.go_on()
    assert peer.call(0, "connection.close-ok") == []
    assert peer.hung_up


def test_amqplain_is_understood(world: World) -> None:
    peer = Peer(world)
    peer.send(PROTOCOL_HEADER)
    response = write_arguments(METHODS[NUMBER["connection.start"]], (0, 9, {"LOGIN": "guest", "PASSWORD": "right"}, b"", b""))[10:-8]
    assert [name for name, _ in peer.call(0, "connection.start-ok", {}, "AMQPLAIN", response, "en_US")] == ["connection.tune"]


def test_another_protocol_is_answered_with_ours(world: World) -> None:
    peer = Peer(world)
    peer.session.receive(b"GET / HTTP/1.1\r\n")
    assert peer.out == PROTOCOL_HEADER
    assert peer.ended


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([method_frame(0, "connection.open", "/", "", False)], 503),
        ([method_frame(1, "channel.open", "")], 505),
        ([method_frame(0, "connection.start-ok", {}, "PLAIN", b"no zeros", "en_US")], 501),
        ([method_frame(0, "connection.start-ok", {}, "EXTERNAL", b"", "en_US")], 504),
        ([method_frame(0, "connection.start-ok", TOLD, "PLAIN", b"\x00guest\x00wrong", "en_US")], 403),
        ([method_frame(0, "connection.start-ok", {"a": "x" * 5000}, "PLAIN", b"", "en_US")], 501),
    ],
)
def test_what_ends_a_connection_before_it_is_open(world: World, frames: list[bytes], code: int) -> None:
    peer = Peer(world)
    peer.send(PROTOCOL_HEADER)
    assert codes(peer.send(b"".join(frames))) == [("connection.close", code)]
    assert peer.ended
    assert not inside.connections(world.broker).all


def test_a_refused_login_is_not_explained_to_whoever_does_not_announce_that_he_reads_it(world: World) -> None:
    peer = Peer(world)
    peer.send(PROTOCOL_HEADER)
    assert peer.call(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00wrong", "en_US") == []
    assert peer.hung_up
    assert not inside.connections(world.broker).all


@pytest.mark.parametrize(("channel_max", "frame_max"), [(3000, 8192), (100, 4095), (100, 200_000)])
def test_tuning_beyond_the_bounds_is_not_allowed(world: World, channel_max: int, frame_max: int) -> None:
    peer = Peer(world)
    peer.send(PROTOCOL_HEADER)
    peer.call(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00right", "en_US")
    assert codes(peer.call(0, "connection.tune-ok", channel_max, frame_max, 0)) == [("connection.close", 530)]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (method_frame(1, "queue.declare", 0, "q", False, False, False, False, False, {}), 504),
        (method_frame(2, "channel.open", "") * 2, 504),
        (method_frame(101, "channel.open", ""), 530),
        (method_frame(0, "basic.ack", 1, False), 504),
        (method_frame(0, "connection.open", "/", "", False), 504),
        (method_frame(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00right", "en_US"), 504),
        (method_frame(0, "connection.tune-ok", 0, 0, 0), 504),
        (method_frame(2, "channel.open", "") + method_frame(2, "basic.deliver", "t", 1, False, "", ""), 503),
        (
            method_frame(2, "channel.open", "") + method_frame(2, "exchange.declare", 0, "x", "odd", False, False, False, False, False, {}),
            503,
        ),
        (method_frame(2, "channel.open", "") + method_frame(2, "basic.recover", False), 540),
        (b"\x01\x00\x00\x00\x00\x20\x01", 501),
    ],
)
def test_what_ends_an_open_connection(world: World, frames: bytes, code: int) -> None:
    peer = Peer(world)
    peer.log_in()
    assert codes(peer.send(frames)) == [("connection.close", code)]
    assert not inside.connections(world.broker).all
    assert peer.send(method_frame(1, "channel.open", "")) == [], "nothing is answered after the close"


def test_a_closed_channel_ignores_everything_until_its_close_is_answered(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
    peer.call(1, "confirm.select", False)
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "q", False, False))
    published = b"".join(content_frames(1, payload, b"\x10\x00\x02", b"body", 8192))
    answers = peer.send(published + method_frame(1, "queue.purge", 0, "missing", False))
    assert [(name, values[0]) for name, values in answers] == [("channel.close", 404)], "and what comes to disk later is not confirmed"
    assert peer.send(published + method_frame(1, "basic.ack", 1, False) + method_frame(1, "queue.purge", 0, "missing", False)) == []
    assert peer.call(1, "channel.close-ok") == []
    assert peer.call(1, "channel.open", "") == [("channel.open-ok", [b""])]


def test_what_is_told_of_failures_is_charged_until_it_is_matched_or_its_channel_or_connection_ends(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    peer.send(published_alike("q", [b"1", b"2", b"3"]))
    for _ in range(3):
        peer.call(1, "basic.get", 0, "q", False)

    def charged() -> int:
        return inside.memory(world.broker).by_kind[Kind.CONNECTIONS]

    before = charged()

    def report(tag: int) -> None:
        payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "homing.failure", "", False, False))
        headers = write_fields({"delivery_tag": tag, "error_type": "KeyError"})
        assert peer.send(b"".join(content_frames(1, payload, write_properties(ContentProperties(headers=headers)), b"", 8192))) == []

    report(1)
    report(1)
    one = charged() - before
    assert one > 1000
    report(2)
    assert charged() - before == 2 * one
    peer.call(1, "basic.nack", 1, False, True)
    assert charged() - before == one
    peer.call(1, "channel.close", 200, "bye", 0, 0)
    assert charged() == before
    peer.call(1, "channel.open", "")
    peer.call(1, "basic.get", 0, "q", False)
    report(1)
    peer.session.lost()
    assert charged() == before


def test_what_a_channel_holds_of_several_queues_is_settled_by_its_own_tags_whoever_holds_it() -> None:
    world = World({"counted": {"persist-delivery-count-before-delivery": True}})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    for queue in ("a", "b", "counted"):
        peer.call(1, "queue.declare", 0, queue, False, True, False, False, False, {})
        peer.send(published_alike(queue, [b"1", b"2", b"3"]).replace(b"\x10\x00\x01", b"\x10\x00\x02"))
    queues = inside.queues(world.broker)
    for _ in range(3):
        peer.call(1, "basic.get", 0, "a", False)
        peer.call(1, "basic.get", 0, "b", False)

    def held(queue: str) -> list[bytes]:
        return [each.message.body for each in queues[queue].references.values() if each.where is Where.DELIVERING]

    # a1 b1 a2 b2 a3 b3, by two holders.
    assert len(inside.connections(world.broker).all["c1"].retired) == 2
    peer.call(1, "basic.ack", 3, False)
    assert (held("a"), held("b")) == ([b"1", b"3"], [b"1", b"2", b"3"])
    peer.call(1, "basic.nack", 4, True, True)
    assert (held("a"), held("b")) == ([b"3"], [b"3"])
    assert [queues[each].count for each in "ab"] == [2, 3]
    peer.call(1, "basic.ack", 0, True)
    assert [queues[each].count for each in "ab"] == [1, 2]
    assert not inside.connections(world.broker).all["c1"].retired
    # The second of three is gone before they are handed out, which waits for the disk.
    peer.session.receive(method_frame(1, "basic.consume", 0, "counted", "", False, False, False, False, {}))
    world.loop.drain()
    second = next(each for each in queues["counted"].references.values() if each.message.body == b"2")
    inside.references(world.broker).leave(second, "purged", world.now_ms())
    deliveries = [values for name, values in peer.methods() if name == "basic.deliver"]
    assert [values[1] for values in deliveries] == [7, 8]
    peer.call(1, "basic.ack", 8, False)
    assert held("counted") == [b"1"]


def published_alike(key: str, bodies: list[bytes], *, mandatory: bool = False, immediate: bool = False) -> bytes:
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", key, mandatory, immediate))
    return b"".join(b"".join(content_frames(1, payload, b"\x10\x00\x01", body, 8192)) for body in bodies)


def test_publishes_alike_come_to_what_each_would_come_to_alone(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "plain", False, False, False, False, False, {})
    limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
    peer.call(1, "queue.declare", 0, "small", False, False, False, False, False, limits)
    bodies = [b"one", b"two", b"six"]
    assert peer.send(published_alike("plain", bodies)) == [], "no confirms unless they were asked for"
    peer.call(1, "confirm.select", False)
    assert peer.send(published_alike("plain", bodies, mandatory=True)) == [("basic.ack", [3, True])]
    assert peer.send(published_alike("small", bodies)) == [("basic.ack", [5, True]), ("basic.nack", [6, False, False])]
    answers = peer.send(published_alike("nowhere", bodies, mandatory=True))
    assert sorted(name for name, _ in answers) == ["basic.ack", "basic.return", "basic.return", "basic.return"]
    queue = inside.queues(world.broker)["plain"]
    assert [reference.message.body for reference in queue.pending] == bodies * 2
    assert codes(peer.send(published_alike("plain", bodies, immediate=True))) == [("connection.close", 540)]
    assert queue.count == 6


def test_a_fault_of_ours_ends_one_connection(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    peer, other = Peer(world), Peer(world)
    peer.log_in()
    other.log_in()
    peer.session.broken(ValueError("a fault"))
    assert codes(peer.methods()) == [("connection.close", 541)]
    assert other.call(1, "channel.open", "") == [("channel.open-ok", [b""])]
    assert "a fault" in caplog.text


def test_without_credit_a_publisher_is_not_read_and_told_why(world: World) -> None:
    peer = Peer(world)
    peer.send(PROTOCOL_HEADER)
    peer.call(0, "connection.start-ok", {"capabilities": {"connection.blocked": True}}, "PLAIN", b"\x00guest\x00right", "en_US")
    peer.call(0, "connection.tune-ok", 100, 131_072, 0)
    peer.call(0, "connection.open", "/", "", False)
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    inside.memory(world.broker).limit = 100_000
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "q", False, False))
    published = b"".join(content_frames(1, payload, b"\x00\x00", b"x" * 60_000, 131_072))
    reported = [name for _ in range(200) for name, _ in peer.send(published) if peer.reading or name]
    assert reported == ["connection.blocked"]
    assert not peer.reading
    queue = inside.queues(world.broker)["q"]
    at_once(inside.contents(world.broker).purge(BROKER, queue))
    inside.flow(world.broker).relieve()
    assert [name for name, _ in peer.methods()] == ["connection.unblocked"]
    assert peer.reading


def test_methods_that_take_long_are_acted_on_in_several_turns(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.is_late = True
    declared = b"".join([method_frame(1, "queue.declare", 0, name, False, False, False, False, False, {}) for name in "abc"])
    assert [values[0] for _, values in peer.send(declared)] == ["a"]
    assert (peer.reading, peer.waits) == (False, 1)
    peer.session.have_turn()
    assert [values[0] for _, values in peer.methods()] == ["b"]
    peer.is_late = False
    peer.session.have_turn()
    assert [values[0] for _, values in peer.methods()] == ["c"]
    assert (peer.reading, peer.waits) == (True, 2)
    peer.session.have_turn()
    assert peer.methods() == []


# -- anything at all ---------------------------------------------------------------------------------------------------


def random_value(rng: random.Random, kind: str) -> Any:
    names = ["", "q1", "q2", "x1", "amq.topic", "direct", "topic", "a.b", "#", "tag"]
    if kind == "b":
        return rng.random() < 0.4
    if kind in ("s", "k"):
        return rng.choice(names)
    if kind == "S":
        return b""
    if kind == "t":
        table = {"x-max-length": rng.randrange(5), "x-dead-letter-exchange": rng.choice(["", "x1"]), "x-max-priority": 3, "CC": ["q2"]}
        return {name: table[name] for name in rng.sample(sorted(table), rng.randrange(3))}
    return rng.choice([0, 0, 1, 2, 3, 7, 300]) if kind != "o" else 0


ANY = sorted(name for name in NUMBER if not name.startswith("connection.") and name != "basic.publish")
LIKELY = [
    *("queue.declare", "queue.bind", "exchange.declare", "basic.consume", "basic.get", "basic.ack", "basic.nack", "basic.reject"),
    *("confirm.select", "basic.qos", "channel.open", "channel.close-ok", "basic.cancel", "queue.purge"),
]


def random_frames(rng: random.Random) -> bytes:
    channel = rng.choice([1, 1, 1, 2])
    if rng.random() < 0.4:
        payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, rng.choice(["", "", "x1"]), rng.choice(["q1", "q2"]), False, False))
        properties = rng.choice([b"\x00\x00", b"\x10\x00\x02", b"\x08\x00\x05", b"\x01\x00\x015"])
        return b"".join(content_frames(channel, payload, properties, b"x" * rng.randrange(50), 8192))
    name = rng.choice(LIKELY if rng.random() < 0.9 else ANY)
    return method_frame(channel, name, *(random_value(rng, kind) for kind in METHODS[NUMBER[name]].arguments))


@pytest.mark.parametrize("seed", range(40))
def test_random_clients_leave_the_balance_right(seed: int) -> None:
    rng = random.Random(seed)
    world = World({"q2": {"max-delivery-attempts": 2, "redelivery-delay": 50}}, seed)
    peers: list[Peer] = []
    for _ in range(150):
        peers = [peer for peer in peers if not peer.ended]
        while len(peers) < 3:
            peer = Peer(world)
            peer.log_in()
            peer.call(1, "channel.open", "")
            peers.append(peer)
        peer = rng.choice(peers)
        peer.session.receive(b"".join(random_frames(rng) for _ in range(rng.randrange(1, 6))))
        if rng.random() < 0.3:
            world.time_ms += rng.randrange(200)
            world.turn()
        if rng.random() < 0.5:
            world.commit()
        if rng.random() < 0.03:
            peer.session.lost()
            peer.ended = True
        world.check_balance()
    for peer in peers:
        peer.session.lost()
    world.commit()
    world.check_balance()
    assert not inside.connections(world.broker).all
    assert all(not queue.consumers and not queue.delivering for queue in inside.queues(world.broker).values())
