"""Transactions of AMQP's channels, frame by frame: what bounds them, and what ends them."""

from __future__ import annotations

import pytest

from homing.broker.core.memory import Kind
from homing.broker.delivery.transactions import SENT_BYTES
from homing.broker.protocols.amqp091.codec import content_frames
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, write_arguments
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer, codes, published_alike


@pytest.fixture
def world() -> World:
    return World({})


def test_a_transaction_may_not_grow_without_end() -> None:
    world = World({}, max_transaction_operations=3)
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "tx.select")
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "q", False, False))
    published = b"".join(content_frames(1, payload, b"\x00\x00", b"body", 8192))
    peer.send(published * 3)
    assert inside.memory(world.broker).by_kind[Kind.SESSIONS] == 3 * (SENT_BYTES + len(b"body") + len(b"\x00\x00"))
    assert codes(peer.send(published)) == [("channel.close", 406)]
    assert inside.memory(world.broker).by_kind[Kind.SESSIONS] == 0


def test_a_transaction_that_is_open_for_too_long_closes_its_channel_and_holds_nothing() -> None:
    world = World({}, transaction_timeout_ms=5_000)
    peer = Peer(world)
    peer.log_in()
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "q", False, False))
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    peer.call(1, "tx.select")
    # It begins with what is first done in it.
    world.time_ms += 6_000
    world.loop.tick()
    peer.send(b"".join(content_frames(1, payload, b"\x00\x00", b"body", 8192)))
    world.time_ms += 4_999
    world.loop.tick()
    assert peer.methods() == []
    assert inside.memory(world.broker).by_kind[Kind.SESSIONS]
    world.time_ms += 1_000
    world.loop.tick()
    ((name, (code, text, *_)),) = peer.methods()
    assert (name, code) == ("channel.close", 406)
    assert "limits.transaction-timeout" in text
    assert inside.memory(world.broker).by_kind[Kind.SESSIONS] == 0
    assert inside.queues(world.broker)["q"].count == 0
    # The connection goes on, and so does the channel under its number.
    peer.call(1, "channel.close-ok")
    assert peer.call(1, "channel.open", "") == [("channel.open-ok", [b""])]


def test_a_transaction_that_acknowledged_what_is_no_longer_held_does_not_commit(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    for queue in ("gone", "late"):
        peer.call(1, "queue.declare", 0, queue, False, False, False, False, False, {"x-consumer-timeout": 60_000})
        peer.send(published_alike(queue, [b"body"]))
    peer.call(1, "tx.select")
    for queue, tag in (("gone", 1), ("late", 2)):
        peer.call(1, "basic.get", 0, queue, False)
        peer.call(1, "basic.ack", tag, False)
    peer.call(1, "queue.delete", 0, "gone", False, False, False)
    peer.send(published_alike("late", [b"answer"]))
    late = inside.queues(world.broker)["late"]
    world.time_ms += 60_000
    world.loop.tick()
    ((name, (code, text, *_)),) = peer.call(1, "tx.commit")
    assert (name, code) == ("channel.close", 406)
    assert "no longer held" in text
    assert late.count == 1, "it is back, and the answer was not sent"
    # What was acknowledged of a queue that was deleted since is nobody's.
    peer.call(1, "channel.close-ok")
    peer.call(1, "channel.open", "")
    peer.call(1, "tx.select")
    peer.call(1, "basic.get", 0, "late", False)
    peer.call(1, "basic.ack", 1, False)
    peer.call(1, "queue.delete", 0, "late", False, False, False)
    assert peer.call(1, "tx.commit") == [("tx.commit-ok", [])]
