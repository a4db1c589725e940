"""Producers wait for a disk that is behind, and go on when it has caught up."""

from __future__ import annotations

import pytest

from homing.broker.core.message import Message
from homing.broker.core.producer import Producer
from tests.model.world import World


class Sink:
    def __init__(self) -> None:
        self.grants: list[tuple[int, str | None]] = []

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        self.grants.append((messages, reason))


@pytest.mark.plain
def test_producers_wait_while_too_much_is_on_its_way_to_the_disk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("homing.broker.delivery.flow_control.MOST_UNWRITTEN_BYTES", 1000)
    world, sink = World({}), Sink()
    producer = Producer("c/1", 1, "orders", 0, sink)
    flow = world.broker.flow
    flow.open(producer)
    assert [reason for _, reason in sink.grants] == [None]
    world.broker.send(producer, 1, [Message(0, "orders", b"x" * 600), Message(0, "orders", b"x" * 600)])
    flow.charge(producer, 4000, 1200)
    flow.top_up(producer)
    reason = sink.grants[-1][1]
    assert reason is not None
    assert reason.startswith("disk-busy: 1200 bytes")
    assert [record.getMessage() for record in caplog.records] == [f"producers-wait: {reason}"]
    flow.relieve()
    assert len(sink.grants) == 2, "it is told once"
    world.commit()
    assert sink.grants[-1] == (4000, None)
    assert not flow.waiting
