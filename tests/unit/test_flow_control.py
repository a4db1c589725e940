"""Producers wait for a disk that is behind, and go on when it has caught up."""

from __future__ import annotations

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.counts import Level
from homing.broker.core.message import Message
from homing.broker.core.producer import Producer, limit_in
from homing.broker.protocols.native.codec import Op
from homing.broker.steps import at_once
from tests import inside
from tests.model.crowd import sender
from tests.model.world import Client, World
from tests.unit.test_amqp_session import Peer
from tests.unit.test_expiries import publish


class Sink:
    def __init__(self) -> None:
        self.grants: list[tuple[int, str | None]] = []

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        self.grants.append((messages, reason))


@pytest.mark.plain
def test_producers_wait_while_too_much_is_on_its_way_to_the_disk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("homing.broker.delivery.flow_control.MOST_UNWRITTEN_BYTES", 1000)
    world, sink = World({}), Sink()
    producer = Producer("c", 1, "orders", 0, sink)
    flow = inside.flow(world.broker)
    flow.open(producer)
    assert [reason for _, reason in sink.grants] == [None]
    inside.intake(world.broker).send(
        producer, 1, [Message(0, "orders", b"x" * 600), Message(0, "orders", b"x" * 600)], world.broker.now_ms()
    )
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


def test_a_replicated_log_that_takes_all_it_may_holds_back_who_sends_what_is_written_to_it() -> None:
    taken = 1000
    world, sinks = World({}, log_room=lambda: (taken, 1000)), (Sink(), Sink())
    flow = inside.flow(world.broker)
    for durable, sink in enumerate(sinks):
        producer = Producer("c", durable, "orders", 0, sink)
        flow.open(producer)
        inside.intake(world.broker).send(producer, 1, [Message(0, "orders", b"x", durable=bool(durable))], world.time_ms)
        flow.charge(producer, 4000, 1)
        flow.top_up(producer)
    reason = "log-limit: the log takes 1000 of 1000 bytes; producers wait until enough nodes have what is in it"
    assert [sink.grants[-1] for sink in sinks] == [(4000, None), (0, reason)]
    assert [(each.limit, each.producers) for each in flow.held_back()] == [("log-limit", 1)]
    assert flow.levels()["log-limit"] == Level(1000, 1000)
    for taken, waits in ((960, True), (940, False)):  # noqa: B007 - what the limits are asked for
        flow.relieve()
        assert bool(flow.waiting) == waits
    assert sinks[1].grants[-1] == (4000, None)


def test_the_log_says_when_memory_holds_producers_back_who_holds_most_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "homing")
    world, sink = World({}, memory_limit_bytes=10_000), Sink()
    producer = Producer("c", 1, "orders", 0, sink)
    flow = inside.flow(world.broker)
    flow.open(producer)
    inside.intake(world.broker).send(producer, 1, [Message(0, "orders", b"", durable=False)], world.time_ms)
    inside.intake(world.broker).send(producer, 2, [Message(0, "orders", b"x" * 12_000, durable=False)], world.time_ms)
    for _ in range(3):
        flow.charge(producer, 4000, 12_000)
        flow.top_up(producer)
    (began,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("producers-wait: memory-limit")]
    assert "most is held by queue orders, 13300 bytes" in began
    at_once(inside.contents(world.broker).purge(BROKER, inside.queues(world.broker)["orders"]))
    world.commit()
    flow.relieve()
    flow.look(world.time_ms + 4_000)
    assert "go-on" not in caplog.text
    flow.look(world.time_ms + 5_000)
    flow.look(world.time_ms + 9_000)
    assert caplog.text.count("producers-go-on: memory-limit") == 1


def test_the_mark_of_a_producer_that_is_gone_is_kept_for_as_long_as_the_settings_say() -> None:
    world = World({}, marks_retention_ms=60_000, parked_retry_ms=1_000)
    gone, here = (
        inside.connections(world.broker).connect(name, "", Client(world.now_ms, lambda delivery: None)) for name in ("gone", "here")
    )
    for connection in (gone, here):
        producer = inside.producers(world.broker).open(connection, 1, "orders")
        inside.flow(world.broker).open(producer)
        world.send(producer, [Message(0, "orders", b"x")])
    inside.connections(world.broker).disconnect(gone, lost=True)
    marks = inside.high_watermarks(world.broker)
    marks.make_anew()
    assert (marks.of("gone", 1), marks.count) == (1, 1)
    inside.producers(world.broker).close(here, 1)
    inside.flow(world.broker).open(inside.producers(world.broker).open(here, 1, "orders"))
    for after_ms, left in ((59_000, (1, 1)), (2_000, (0, 1))):
        world.time_ms += after_ms
        world.turn()
        world.commit()
        assert (marks.of("gone", 1), marks.of("here", 1)) == left
    assert (marks.count, marks.clients) == (1, 1)


def test_a_limit_of_one_kind_holds_back_who_sent_that_kind_last_in_a_transaction_too() -> None:
    world = World({}, memory_limit_bytes=1_000_000, window_messages=2, store_limit_bytes=1_000, temp_limit=lambda: 1_000)
    native, peer = sender(world, "one", "q"), Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
    producers = [*inside.flow(world.broker).producers]
    assert peer.session.producer in producers

    def held() -> set[str]:
        return {limit_in(why) for each in producers if (why := inside.flow(world.broker)._reason(False, each)) is not None}

    for body in (b"x" * 600_000, b"x" * 2_000):  # half of memory is used by then
        publish(peer, body, delivery_mode=1)
    native.say([Op.SEND, 1, 1, [[b"x" * 2_000]]])
    world.commit()
    assert {each.limit for each in inside.flow(world.broker).held_back()} == {"temp-limit", "store-limit"}
    for durable in (True, False):
        native.say([Op.SEND, 1, 0, [[b"x", None, 4, durable]], 1])
        publish(peer, b"x", delivery_mode=2 if durable else 1)
        assert held() == {"store-limit" if durable else "temp-limit"}
        peer.call(1, "tx.select")
