"""Messages that are not durable, where memory is short: on disk in their places, gone after a crash, kept by an orderly stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.redelivery import Failure
from homing.broker.core.redrive_job import RedriveJob
from homing.broker.process.keeping import end_clients, keep_at_stop
from homing.journal.contract import QueueStat
from tests import inside
from tests.model.long_life import LongLife
from tests.model.world import Client

BODY = "x" * 1_000


def bodies(start: int, count: int) -> list[str]:
    return [f"m{number}-{BODY}" for number in range(start, start + count)]


def spilled(life: LongLife) -> int:
    return sum(number for number, _ in inside.references(life.world.broker).spilled.values())


def stop(life: LongLife, flush: Callable[[], Awaitable[None]] | None = None) -> None:
    """In order; and the next start. ``flush``: in place of the journal's."""
    end_clients(life.world.broker)
    life.world.commit()

    async def commit() -> None:
        life.world.journal.commit()

    async def keep() -> None:
        journal = cast(Any, SimpleNamespace(space_low=False, flush=flush or commit))
        await keep_at_stop(life.world.broker, journal, asyncio.get_running_loop().time() + 60)

    asyncio.run(keep())
    life.world.journal.commit()
    life.world.crash()


def in_order(keys: list[str]) -> list[int]:
    return [int(key.partition("-")[0][1:]) for key in keys]


def test_they_keep_their_places_and_bound_memory_and_nobody_waits_for_the_disk() -> None:
    limit = 100_000
    life = LongLife(window_messages=20, memory_limit_bytes=limit)
    life.world.journal.page_rows = 10
    sender, receiver = life.client(), life.client()
    for start in range(0, 400, 10):
        life.send(sender, "a", *bodies(start, 10), durable=start % 100 == 0)
        if start % 100:
            assert not life.world.journal.busy(sends=True), "a confirm waits"
        life.world.commit()
        life.world.check_balance()
        assert inside.memory(life.world.broker).charged < limit * 3 // 4
    assert spilled(life) > 200
    life.subscribe(receiver, "a", prefetch=7)
    assert in_order(life.acknowledge_all(receiver)) == list(range(400))
    assert (spilled(life), inside.references(life.world.broker).spilled_bytes) == (0, 0)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_crash_takes_what_is_not_durable_and_an_orderly_stop_nothing(orderly: bool) -> None:
    life = LongLife(window_messages=20, memory_limit_bytes=100_000)
    sender = life.client()
    inside.resources(life.world.broker).declare(BROKER, {"queue": "passing", "durable": False})
    for start in range(0, 200, 10):
        life.send(sender, "a", *bodies(start, 10), durable=start % 50 == 0)
        life.send(sender, "passing", *bodies(start, 2))
        life.world.commit()
    life.send(sender, "a", *bodies(200, 5), durable=False, delay_ms=60_000)
    life.world.commit()
    assert spilled(life) > 100
    assert sender.connection is not None
    name, number, sent = sender.connection.client_id, sender.producers["a"].number, sender.producers["a"].high_watermark
    stop(life) if orderly else life.world.crash()
    life.world.check_balance()
    # What was not confirmed is sent again: what is there is known, and what a crash took is not.
    assert inside.high_watermarks(life.world.broker).of(name, number) == (sent if orderly else 160)
    receiver = life.client()
    life.subscribe(receiver, "a", prefetch=10)
    came = in_order(life.acknowledge_all(receiver))
    assert came == (list(range(200)) if orderly else [n for n in range(200) if n % 50 < 10])
    life.world.time_ms += 61_000
    assert in_order(life.acknowledge_all(receiver)) == (list(range(200, 205)) if orderly else [])
    counts, left = life.world.journal.queue_stats[life.queue("a").queue_id], 205 if orderly else 40
    durable = counts[QueueStat.SENT] - counts[QueueStat.TRANSIENT_SENT] + counts[QueueStat.KEPT]
    assert durable == left, "what was counted in is what was there to leave"
    assert "passing" not in inside.queues(life.world.broker)


def test_what_comes_to_disk_after_what_came_later_is_read_all_the_same() -> None:
    """Where arrivals wait for their commit, a later durable one is on disk by then."""
    life = LongLife({"persist_delivery_count_before_delivery": True}, window_messages=4)
    sender, receiver = life.client(), life.client()
    life.send(sender, "a", *bodies(0, 8))
    life.world.commit()
    for number in range(8, 16):
        life.send(sender, "a", *bodies(number, 1), durable=number % 2 == 1)
    life.world.journal.commit()
    assert spilled(life) == 4
    life.subscribe(receiver, "a", prefetch=30)
    life.world.turn()
    assert in_order(life.acknowledge_all(receiver)) == list(range(16))


def test_a_queue_that_goes_takes_its_own_along_and_no_other() -> None:
    life = LongLife(window_messages=20, memory_limit_bytes=100_000)
    sender = life.client()
    for start in range(0, 100, 10):
        for name in "ab":
            life.send(sender, name, *bodies(start, 10), durable=False)
        life.world.commit()
    of_b = inside.references(life.world.broker).spilled[life.queue("b")]
    inside.deletion(life.world.broker).delete_queue(life.queue("a"))
    life.world.commit()
    life.world.check_balance()
    assert list(inside.references(life.world.broker).spilled.values()) == [of_b]
    assert {record.queue_id for record in life.world.journal.references.values()} == {life.queue("b").queue_id}


@pytest.mark.parametrize("seed", range(4))
def test_both_kinds_in_random_lives(seed: int) -> None:
    """Sent and neither acknowledged nor taken by a crash: there, once, and in its order."""
    rng = Random(seed)
    life = LongLife(window_messages=5, memory_limit_bytes=40_000)
    life.world.journal.page_rows = 4
    there: dict[int, bool] = {}
    clients: list[Client] = []
    number = 0
    for _ in range(150):
        match rng.choice(["send", "send", "send", "consume", "fail", "leave", "crash", "stop"]):
            case "send":
                count, durable = rng.choice([1, 1, 12]), rng.random() < 0.4
                delay = rng.choice([0, 0, 0, 10_000])
                life.send(life.client(), "a", *bodies(number, count), durable=durable, delay_ms=delay)
                there |= dict.fromkeys(range(number, number + count), durable)
                number += count
            case "consume":
                clients.append(life.client())
                life.subscribe(clients[-1], "a", prefetch=rng.choice([1, 6]))
            case "fail" | "leave" as what if clients:
                client = rng.choice(clients)
                (consumer,) = client.consumers.values()
                held = list(consumer.unsettled.values())[: rng.choice([1, 5])]
                if what == "fail" and held:
                    inside.settlement(life.world.broker).fail(consumer, held, Failure(retryable=True), "nack", {})
                elif held:
                    for reference in held:
                        there.pop(in_order([reference.message.body.decode()])[0], None)
                    inside.settlement(life.world.broker).acknowledge(consumer, held)
            case "crash" if rng.random() < 0.3:
                life.world.commit()
                life.world.crash()
                clients.clear()
                there = {each: durable for each, durable in there.items() if durable}
            case "stop" if rng.random() < 0.3:
                stop(life)
                clients.clear()
                there = dict.fromkeys(there, True)
            case _:
                life.world.time_ms += rng.choice([10, 3_000])
        if rng.random() < 0.7:
            life.world.commit()
            life.world.check_balance()
    for connection in list(inside.connections(life.world.broker).all.values()):
        inside.connections(life.world.broker).disconnect(connection, lost=False)
    life.world.time_ms += 20_000
    life.keys()
    last = life.client()
    life.subscribe(last, "a", prefetch=3)
    came = in_order(life.acknowledge_all(last))
    assert sorted(came) == sorted(there)
    assert spilled(life) == 0


def test_a_redrive_that_a_stop_finds_at_work_has_not_ended() -> None:
    """What it sends is written by the stop, in commits between which turns come."""
    life = LongLife(window_messages=20)
    life.send(life.client(), "a", *bodies(0, 40), durable=False)
    life.world.commit()
    inside.resources(life.world.broker).declare(BROKER, {"queue": "b"})
    wanted = RedriveJob(0, "a", "", target="b", rate=20)
    job = inside.redriving(life.world.broker).start(BROKER, life.queue("a"), life.queue("b"), wanted)
    for _ in range(3):
        life.world.commit()
    assert 0 < job.sent < 40

    async def flush() -> None:
        life.world.time_ms += 1000
        for _ in range(3):
            life.world.turn()
            life.world.commit()

    stop(life, flush)
    assert (job.state, job.ended_ms) == ("running", None)
