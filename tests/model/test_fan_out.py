"""Messages that go to several queues as one list are, in the journal and in the queues, what they would have been one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.message import Message
from homing.broker.core.queue import Queue
from homing.broker.delivery.fan_out import FanOut
from tests import inside
from tests.model.life import Life
from tests.model.world import World
from tests.unit.test_amqp_methods import declared, opened, published

QUEUES = ("one", "two", "three")


def sent(messages: Callable[[Life], None], settings: dict[str, Any] | None = None, routing_type: str = "multicast") -> Life:
    life = Life({"max-ttl": 60_000, **(settings or {})})
    for name in QUEUES:
        inside.resources(life.world.broker).declare(BROKER, {"queue": name, "address": "news", "routing_type": routing_type})
    messages(life)
    life.world.check_balance()
    return life


def reported(life: Life) -> dict[str, Any]:
    """Everything but the numbers, which are given queue by queue."""
    life.world.commit()
    journal = life.world.journal
    rows = [(r.queue_id, r.priority, r.message.body, r.state, r.expires_at_ms, r.entered_at_ms, r.shared) for r in journal.rows().values()]
    consumers = [life.subscribe(life.client(), name, prefetch=100) for name in QUEUES]
    life.world.commit()
    in_order = {consumer.queue.name: [each.message.body for each in consumer.unsettled.values()] for consumer in consumers}
    held = inside.references(life.world.broker)
    memory = (inside.memory(life.world.broker).charged, held.durable_bytes, held.transient_bytes)
    bodies = sorted(record.body for record in journal.messages.values())
    life.world.check_balance()
    return {"rows": sorted(map(repr, rows)), "bodies": bodies, "in order": in_order, "memory": memory}


def some(life: Life) -> None:
    client = life.client()
    life.send(client, "news", "a", "b", "c")
    life.send(client, "news", "urgent", priority=9)
    life.send(client, "news", "light", durable=False)
    life.send(client, "news", "short", expires_at_ms=life.world.time_ms + 5000)


@pytest.mark.plain
def test_a_list_is_what_its_messages_are_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    store = FanOut.store

    def noted(fan_out: FanOut, messages: list[Message], queues: list[Queue], now_ms: int) -> bool:
        taken.append(store(fan_out, messages, queues, now_ms))
        return taken[-1]

    monkeypatch.setattr(FanOut, "store", noted)
    together = reported(sent(some))
    assert taken == [True] * 4
    monkeypatch.setattr(FanOut, "store", lambda *args: False)
    assert together == reported(sent(some))
    assert together["in order"] == {name: [b"urgent", b"a", b"b", b"c", b"light", b"short"] for name in QUEUES}
    assert together["bodies"] == [b"a", b"b", b"c", b"short", b"urgent"]


def test_bodies_go_with_the_last_acknowledgement() -> None:
    life = sent(some)
    life.world.commit()
    for name in QUEUES:
        assert life.world.journal.messages
        consumer = life.subscribe(life.client(), name, prefetch=100)
        life.world.commit()
        inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
        life.world.commit()
    assert not life.world.journal.messages
    assert not life.world.journal.rows()
    assert inside.memory(life.world.broker).charged == 0


def test_a_start_finds_all_of_them() -> None:
    life = sent(some)
    life.world.commit()
    life.world.crash()
    assert {name: life.queue(name).ready for name in QUEUES} == dict.fromkeys(QUEUES, 5)
    life.world.check_balance()


@pytest.mark.parametrize("settings", [{"max-length": 2, "overflow": "drop-head"}, {"persist-delivery-count-before-delivery": True}])
@pytest.mark.plain
def test_queues_that_look_at_each_message_get_them_one_at_a_time(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    monkeypatch.setattr(FanOut, "store", lambda *args: taken.append(True))
    life = sent(some, settings)
    life.world.commit()
    assert not taken, "these are not plain"
    limit = settings.get("max-length")
    assert {name: life.queue(name).ready for name in QUEUES} == dict.fromkeys(QUEUES, limit or 6)


def test_anycast_queues_still_take_turns() -> None:
    life = sent(some, routing_type="anycast")
    assert sum(life.queue(name).ready for name in QUEUES) == 6


def test_what_finds_no_room_in_memory_goes_to_disk() -> None:
    life = sent(lambda life: None)
    window = inside.room(life.world.broker).windows.messages
    client = life.client()
    for start in range(0, window + 500, 500):
        life.send(client, "news", *[str(number) for number in range(start, start + 500)])
    assert all(life.queue(name).pending.disk_count for name in QUEUES)
    life.world.commit()
    life.world.check_balance()


def test_priorities_that_queues_do_not_tell_apart_count_as_the_nearest_on_disk_too() -> None:
    world = World({}, window_messages=3)
    peer = opened(world)
    for name in QUEUES:
        declared(peer, name, {"x-max-priority": 5})
        peer.call(1, "queue.bind", 0, name, "amq.fanout", "", False, {})
    for number, priority in enumerate((9, 200, 255, 5) * 3):
        durable = (0x1800).to_bytes(2, "big") + bytes((2, priority))
        assert peer.send(published("", str(number).encode(), durable, exchange="amq.fanout")) == []
    for name in QUEUES:
        pending = inside.queues(world.broker)[name].pending
        assert (pending.count, pending.on_disk[5], pending.disk_count) == (3, 9, 9)
    assert {record.priority for record in world.journal.rows().values()} == {5}
    world.check_balance()
