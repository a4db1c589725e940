"""When messages expire: to some milliseconds, whatever else waits; and a time to live of nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.core.message import MessageReference
from homing.broker.core.scheduled import EXPIRY_STEP_MS, Expiries
from homing.broker.protocols.amqp091.codec import content_frames, method_frame
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer

NOW_MS = 1_000_000_000_123


def expiring(expires_at_ms: int | None, sequence: int = 1) -> MessageReference:
    return cast(MessageReference, SimpleNamespace(expires_at_ms=expires_at_ms, sequence=sequence))


def lateness(expiries: Expiries, until_ms: int) -> dict[int, int]:
    """sequence -> how many ms after its time each was taken, looking only when ``next_ms`` says so."""
    found: dict[int, int] = {}
    while (next_ms := expiries.next_ms()) is not None and next_ms <= until_ms:
        for reference in expiries.take_expired(next_ms, 1000):
            assert reference.expires_at_ms is not None
            found[reference.sequence] = next_ms - reference.expires_at_ms
    return found


@pytest.mark.plain
def test_what_expires_leaves_within_milliseconds() -> None:
    expiries = Expiries()
    expiries.take_expired(NOW_MS, 10)
    for sequence, after_ms in enumerate((0, 1, 99, 876, 877, 878, 5_000, 60_001, 3_600_000)):
        expiries.add(expiring(NOW_MS + after_ms, sequence))
    late = lateness(expiries, NOW_MS + 4_000_000)
    assert late.keys() == set(range(9))
    assert all(0 < each <= EXPIRY_STEP_MS for each in late.values())
    assert expiries.next_ms() is None


@pytest.mark.plain
def test_what_is_settled_is_not_waited_for() -> None:
    expiries = Expiries()
    for after_ms in (5, 5_000):
        reference = expiring(NOW_MS + after_ms)
        expiries.add(reference)
        expiries.take_expired(NOW_MS, 10)
        expiries.remove(reference)
    expiries.add(expiring(None))
    assert expiries.next_ms() is None


@pytest.mark.plain
def test_at_most_so_many_are_taken_at_a_time() -> None:
    expiries = Expiries()
    for sequence in range(25):
        expiries.add(expiring(NOW_MS, sequence))
    assert [len(expiries.take_expired(NOW_MS + 10, 10)) for _ in range(4)] == [10, 10, 5, 0]


def bodies(peer: Peer) -> list[bytes]:
    """Whole deliveries' bodies among what came."""
    peer.world.turn()
    peer.world.commit()
    peer.world.turn()
    out, peer.out = peer.out, b""
    return [body for body in (b"first", b"second") if body in out]


def publish(peer: Peer, body: bytes, **properties: Any) -> None:
    head = method_frame(1, "basic.publish", 0, "", "q", False, False)[7:-1]
    peer.session.receive(b"".join(content_frames(1, head, write_properties(ContentProperties(**properties)), body, 8192)))


def test_a_time_to_live_of_nothing_is_for_a_consumer_that_waits() -> None:
    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    publish(peer, b"first", expiration="0")
    assert bodies(peer) == []
    world.time_ms += EXPIRY_STEP_MS
    world.turn()
    assert not inside.queues(world.broker)["q"].references
    peer.call(1, "basic.consume", 0, "q", "tag", False, False, False, False, {})
    publish(peer, b"second", expiration="0")
    assert bodies(peer) == [b"second"]
    # Given back it is nobody's any more.
    peer.call(1, "basic.nack", 1, False, True)
    world.time_ms += EXPIRY_STEP_MS
    assert bodies(peer) == []
    assert not inside.queues(world.broker)["q"].references
