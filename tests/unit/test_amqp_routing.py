"""Routes of AMQP's publishes: remembered as long as they stand, and found in several turns where they are long. In work done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from homing.broker.core.amqp.exchange import Binding, Destination, Exchange
from homing.broker.protocols.amqp091.codec import content_frames
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from homing.broker.protocols.amqp091.codec_tables import write_fields
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer


@pytest.fixture
def world() -> World:
    return World({})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Exchanges that were asked where a message goes, one after the other."""
    names: list[str] = []
    matches = Exchange.matches

    def watched(self: Exchange, *arguments: Any) -> Iterator[int]:
        names.append(self.name)
        return matches(self, *arguments)

    monkeypatch.setattr(Exchange, "matches", watched)
    return names


def opened(world: World) -> Peer:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    return peer


def declare(peer: Peer, queue: str) -> None:
    peer.call(1, "queue.declare", 0, queue, False, False, False, False, False, {})


def exchange(peer: Peer, name: str, kind: str, arguments: dict[str, str] | None = None) -> None:
    peer.call(1, "exchange.declare", 0, name, kind, False, False, False, False, False, arguments or {})


def published(name: str, key: str, cc: list[str] | None = None, body: bytes = b"m") -> bytes:
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, name, key, False, False))
    properties = b"\x00\x00" if cc is None else write_properties(ContentProperties(headers=write_fields({"CC": cc})))
    return b"".join(content_frames(1, payload, properties, body, 8192))


def publish(peer: Peer, name: str, key: str, cc: list[str] | None = None, body: bytes = b"m") -> list[tuple[str, list[Any]]]:
    return peer.send(published(name, key, cc, body))


def bodies(world: World, queue: str) -> list[bytes]:
    return [reference.message.body for reference in inside.queues(world.broker)[queue].pending]


def test_routes_fall_only_where_what_changed_is_in_them(world: World, asked: list[str]) -> None:
    peer, other = opened(world), opened(world)
    exchange(peer, "top", "topic")
    exchange(peer, "behind", "fanout")
    declare(peer, "q")
    peer.call(1, "queue.bind", 0, "q", "behind", "", False, {})
    peer.call(1, "exchange.bind", 0, "behind", "top", "a.#", False, {})
    publish(peer, "top", "a.b")
    assert asked == ["top", "behind"]
    for number in range(3):
        declare(other, f"else{number}")
        other.call(1, "queue.bind", 0, f"else{number}", "amq.topic", "a.#", False, {})
        publish(peer, "top", "a.b")
        publish(other, "top", "a.b")
        other.call(1, "queue.delete", 0, f"else{number}", False, False, False)
    assert asked == ["top", "behind"], "nothing on the way was changed"
    declare(other, "more")
    other.call(1, "queue.bind", 0, "more", "behind", "", False, {})
    publish(peer, "top", "a.b", body=b"last")
    assert asked == ["top", "behind"] * 2
    assert bodies(world, "more") == [b"last"]
    other.call(1, "queue.delete", 0, "more", False, False, False)
    publish(peer, "top", "a.b")
    assert asked == ["top", "behind"] * 3
    assert len(bodies(world, "q")) == 9


def test_what_was_not_there_is_found_when_it_comes(world: World) -> None:
    """A queue by its name, again after it was deleted, and an alternate exchange."""
    peer = opened(world)
    publish(peer, "", "q")
    for body in (b"1", b"2"):
        declare(peer, "q")
        publish(peer, "", "q", body=body)
        assert bodies(world, "q") == [body]
        peer.call(1, "queue.delete", 0, "q", False, False, False)
        publish(peer, "", "q")
    declare(peer, "q")
    exchange(peer, "first", "direct", {"alternate-exchange": "other"})
    publish(peer, "first", "k")
    exchange(peer, "other", "fanout")
    peer.call(1, "queue.bind", 0, "q", "other", "", False, {})
    publish(peer, "first", "k", body=b"3")
    assert bodies(world, "q") == [b"3"]
    peer.call(1, "exchange.delete", 0, "other", False, False)
    publish(peer, "first", "k", body=b"4")
    assert bodies(world, "q") == [b"3"]


def test_who_publishes_along_a_long_way_keeps_nobody(world: World) -> None:
    peer, other = opened(world), opened(world)
    exchange(peer, "top", "topic")
    declare(peer, "q")
    peer.call(1, "queue.bind", 0, "q", "top", "found", False, {})
    top = inside.virtual_hosts(world.broker).find("/").exchanges.exchanges["top"]
    for number in range(300):
        top.bind(Binding("top", Destination("q", True), f"#.w{number}." + "#.a." * 60 + "z", {}))
    keys = ["found", *[".".join([f"w{number}", *["a"] * 60]) for number in range(40)]]
    peer.call(1, "confirm.select", False)
    peer.session.receive(published("top", "none", keys))
    for turn in range(1, 6):
        assert peer.session.postponed
        other.session.receive(published("", "q", body=b"other"))
        assert bodies(world, "q") == [b"other"] * turn, "it is in before the next turn"
        world.loop.drain()
    assert peer.methods() == [("basic.ack", [1, False])]
    assert bodies(world, "q")[5:] == [b"m"]


def test_a_long_way_is_looked_for_once_in_a_transaction(world: World, asked: list[str]) -> None:
    peer = opened(world)
    exchange(peer, "top", "topic")
    declare(peer, "q")
    peer.call(1, "queue.bind", 0, "q", "top", "k", False, {})
    peer.call(1, "tx.select")
    for _ in range(3):
        publish(peer, "top", "none", ["k", *[f"key{number}" for number in range(50)]])
    assert asked == ["top"] * 3
    peer.call(1, "tx.commit")
    assert asked == ["top"] * 3
    assert len(bodies(world, "q")) == 3
