"""Long queues where memory is short: who holds much gets no more, and everybody goes on."""

from __future__ import annotations

import pytest

from homing.broker.core.consumer import Consumer
from homing.broker.core.memory import Kind
from homing.broker.errors import Refused
from tests import inside
from tests.model.long_life import LongLife, numbers
from tests.model.world import Client


def test_memory_at_its_limit_sends_everything_to_disk_and_nobody_waits() -> None:
    life = LongLife(window_messages=1_000, memory_limit_bytes=20_000)
    sender = life.client()
    for start in range(0, 200, 10):
        life.send(sender, "a", *numbers(10, start))
    life.world.commit()
    assert inside.memory(life.world.broker).charged < 25_000
    receiver = life.client()
    life.subscribe(receiver, "a", prefetch=10)
    assert life.acknowledge_all(receiver) == numbers(200)


def test_who_holds_much_of_a_short_memory_gets_no_more_until_it_settles_some() -> None:
    life = LongLife(window_messages=100, memory_limit_bytes=40_000)
    life.world.journal.page_rows = 10
    sender, hog, modest = life.client(), life.client(), life.client()
    consumer = life.subscribe(hog, "a", prefetch=1000)
    for start in range(0, 200, 10):
        life.send(sender, "a", *numbers(10, start))
        life.world.commit()
    assert 0 < len(consumer.unsettled) < 100
    assert not inside.flow(life.world.broker).held_back(), "producers go on"
    life.keys()
    life.send(sender, "b", *numbers(40, 200))
    life.world.commit()
    life.subscribe(modest, "b", prefetch=2)
    assert [key for key in life.acknowledge_all(modest) if int(key[1:]) >= 200] == numbers(40, 200), "others are served"
    assert inside.memory(life.world.broker).charged < 40_000
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.seen.clear()
    assert life.acknowledge_all(hog)[-1] == "m199", "what it settles makes room for more"
    assert life.queue("a").count == life.queue("b").count == 0


def get_until_refused(life: LongLife, client: Client) -> list[Consumer]:
    """Single gets from queue a, nothing settled, until the broker refuses one: the consumers that hold them."""
    broker, queue, connection = life.world.broker, life.queue("a"), client.connection
    assert connection is not None
    got: list[Consumer] = []
    while True:
        try:
            inside.gets(broker).check(connection, queue)
        except Refused:
            return got
        reference = inside.gets(broker).get(connection, 1_000_000 + queue.count + len(got), queue)
        if reference is None:
            assert inside.gets(broker).when_read(connection, queue, lambda: None), "the queue came to its end"
            life.world.commit()
        else:
            assert reference.consumer is not None
            got.append(reference.consumer)


def test_single_gets_of_one_connection_hold_no_more_of_a_short_memory_than_a_consumer() -> None:
    life = LongLife(window_messages=100, memory_limit_bytes=40_000)
    life.world.journal.page_rows = 10
    sender, hog, modest = life.client(), life.client(), life.client()
    for start in range(0, 200, 10):
        life.send(sender, "a", *numbers(10, start))
        life.world.commit()
    got = get_until_refused(life, hog)
    life.world.check_balance()
    assert 0 < len(got) < 100
    assert hog.connection is not None
    life.queue("a").paused = True
    inside.gets(life.world.broker).check(hog.connection, life.queue("a"))
    assert inside.gets(life.world.broker).get(hog.connection, 1, life.queue("a")) is None, (
        "a paused queue is empty for it, and refuses nothing"
    )
    life.queue("a").paused = False
    life.send(sender, "b", *numbers(40, 200))
    life.world.commit()
    life.subscribe(modest, "b", prefetch=2)
    assert [key for key in life.acknowledge_all(modest) if int(key[1:]) >= 200] == numbers(40, 200), "others are served"
    assert inside.memory(life.world.broker).charged < 40_000
    for consumer in got[:20]:
        inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.world.time_ms += 1_000
    life.world.commit()
    assert 0 < len(get_until_refused(life, hog)) <= 40, "what it settles makes room for more"
    life.world.check_balance()


def test_closed_consumers_that_keep_what_they_were_given_hold_together_no_more_than_one() -> None:
    life = LongLife(window_messages=100, memory_limit_bytes=40_000)
    life.world.journal.page_rows = 10
    sender, hog = life.client(), life.client()
    for start in range(0, 400, 10):
        life.send(sender, "a", *numbers(10, start))
        life.world.commit()
    assert hog.connection is not None
    for _ in range(100):
        consumer = life.subscribe(hog, "a", prefetch=4)
        life.world.commit()
        consumer.delivered(consumer.next_tag - 1, life.world.time_ms)
        inside.consumers(life.world.broker).unsubscribe(hog.connection, consumer, keep_delivered=True)
        life.world.check_balance()
    assert 0 < len(hog.connection.retired) < 100
    assert inside.memory(life.world.broker).charged < 40_000


def test_many_long_queues_read_no_more_into_memory_than_there_is_room_for() -> None:
    limit, body = 4_000_000, "x" * 10_000
    life = LongLife(window_messages=1_000, memory_limit_bytes=limit)
    life.world.journal.page_rows = 20
    sender, most = life.client(), 0
    for number in range(30):
        for _ in range(3):
            life.send(sender, f"q{number}", *[body] * 10)
            life.world.commit()
    assert inside.memory(life.world.broker).charged < limit * 0.8, "the last quarter is for what consumers hold"
    readers = {number: life.subscribe(life.client(), f"q{number}", prefetch=1) for number in range(30)}
    came = 0
    while any(life.queue(f"q{number}").count for number in range(30)):
        life.world.commit()
        life.world.check_balance()
        most = max(most, inside.memory(life.world.broker).charged)
        assert not inside.flow(life.world.broker).held_back(), "producers go on"
        settled = came
        for reader in readers.values():
            came += len(reader.unsettled)
            inside.settlement(life.world.broker).acknowledge(reader, list(reader.unsettled.values()))
        assert came > settled, "each of them gets what it waits for"
    assert (came, most < limit) == (900, True)


def test_what_is_due_comes_into_memory_as_there_is_room_for_it() -> None:
    limit, body = 1_000_000, "x" * 10_000
    life = LongLife(window_messages=1_000, window_scheduled=1_000, memory_limit_bytes=limit)
    sender = life.client()
    for _ in range(20):
        life.send(sender, "a", *[body] * 10, delay_ms=60_000)
        life.world.commit()
    life.send(sender, "a", "behind")
    assert inside.memory(life.world.broker).charged <= limit
    for _ in range(70):
        life.world.time_ms += 1_000
        life.world.commit()
    assert inside.memory(life.world.broker).charged <= limit * 3 // 4 + 2 * len(body), "nobody asked for them"
    reader = life.client()
    life.subscribe(reader, "a", prefetch=3)
    came = life.acknowledge_all(reader, lambda: _at_most(life, limit))
    assert (len(came), came[-1]) == (201, "behind")


def _at_most(life: LongLife, size: int) -> None:
    assert inside.memory(life.world.broker).charged <= size


def _backlog_that_nobody_reads(limit: int) -> LongLife:
    life = LongLife(window_messages=1_000, memory_limit_bytes=limit)
    life.world.journal.page_rows = 20
    life.send(life.client(), "unread", *["x" * (limit // 100)] * 45, durable=False)
    life.world.commit()
    memory = inside.memory(life.world.broker)
    memory.charge(Kind.CONNECTIONS, limit - memory.bytes)
    return life


@pytest.mark.parametrize("others", ["idle", "holding"])
def test_a_stranger_with_many_consumers_takes_no_share_of_what_it_does_not_hold(others: str) -> None:
    life = _backlog_that_nobody_reads(4_000_000)
    sender, stranger, reader = life.client(), life.client(), life.client()
    for _ in range(200):
        life.subscribe(stranger, "other", prefetch=1)
    if others == "holding":
        life.send(sender, "other", *numbers(200))
    collector = life.subscribe(reader, "a", prefetch=200)
    for _ in range(20):
        life.world.time_ms += 1_000
        life.send(sender, "a", *["y" * 2_000] * 5)
        life.world.commit()
    assert len(collector.unsettled) == 100, "one that acknowledges by the hundred gets its hundred"


def test_what_is_in_memory_is_handed_out_however_short_memory_is() -> None:
    life = _backlog_that_nobody_reads(4_000_000)
    reader = life.subscribe(life.client(), "unread", prefetch=1_000)
    life.world.commit()
    assert len(reader.unsettled) == life.queue("unread").count == 45


def test_a_consumer_that_was_held_back_is_served_when_somebody_else_makes_room() -> None:
    life = LongLife(window_messages=1_000, memory_limit_bytes=400_000)
    life.world.journal.page_rows = 20
    sender, hogs = life.client(), [life.client(), life.client()]
    life.subscribe(hogs[0], "a", prefetch=10_000)
    other = life.subscribe(hogs[1], "b", prefetch=10_000)
    for start in range(0, 1_000, 10):
        life.send(sender, "a", *numbers(10, start))
        life.send(sender, "b", *numbers(10, start))
        life.world.commit()
    held = len(other.unsettled)
    assert held < 1_000
    life.acknowledge_all(hogs[0])
    assert life.queue("a").count == 0
    life.world.time_ms += 1_000
    life.world.commit()
    assert len(other.unsettled) > held
