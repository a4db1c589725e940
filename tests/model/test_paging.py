"""Queues longer than memory: order, times, limits and long work, where hardly anything fits into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.message import ON_HOLD_MS, Message, MessageReference, Where
from homing.broker.core.message_filter import Filter
from homing.broker.core.redelivery import Failure
from homing.broker.core.redrive_job import RedriveJob
from homing.broker.entries.waiting import FIRST
from homing.broker.errors import Refused
from homing.broker.management.messages import peek
from homing.broker.management.queues import delete
from homing.broker.steps import Steps
from tests import inside
from tests.model.long_life import WINDOW, LongLife, numbers
from tests.model.world import ANYBODY, Client, call


def test_a_backlog_is_in_memory_up_to_the_window_and_comes_in_order() -> None:
    life = LongLife()
    life.send(life.client(), "a", *numbers(3))
    life.send(life.client(), "a", *numbers(20, 3))
    life.world.commit()
    queue = life.queue("a")
    assert (len(queue.references), queue.count, queue.ready, queue.pending.disk_count) == (3, 23, 23, 20)
    consumer = life.client()
    life.subscribe(consumer, "a", prefetch=4)

    def bounded() -> None:
        assert len(queue.references) <= 4 + WINDOW + life.world.journal.page_rows

    assert life.acknowledge_all(consumer, bounded) == numbers(23)
    assert (queue.count, queue.pending.disk_bytes, inside.references(life.world.broker).disk_bytes) == (0, 0, 0)
    # Caught up: what comes now stays in memory again.
    life.send(life.client(), "a", "last")
    assert not queue.pending.disk_count
    assert life.acknowledge_all(consumer) == ["last"]


def test_a_higher_priority_on_disk_goes_before_what_is_in_memory() -> None:
    life = LongLife(window_bytes=10)
    sender, receiver = life.client(), life.client()
    life.send(sender, "a", *[f"low{n}" for n in range(6)], priority=2)
    life.send(sender, "a", "high0", "high1", "high2", priority=8)
    life.world.commit()
    assert life.queue("a").pending.on_disk[8] == 3
    life.subscribe(receiver, "a", prefetch=1)
    assert life.acknowledge_all(receiver) == ["high0", "high1", "high2", *[f"low{n}" for n in range(6)]]


def test_what_comes_back_goes_before_what_is_on_disk() -> None:
    life = LongLife()
    receiver = life.client()
    life.send(life.client(), "a", *numbers(10))
    consumer = life.subscribe(receiver, "a", prefetch=5)
    life.world.commit()
    assert life.keys() == numbers(5)
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values())[:2], Failure(), "nack", {})
    life.world.commit()
    assert life.keys() == numbers(2)
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    assert life.acknowledge_all(receiver) == numbers(5, 5)


def test_messages_that_are_not_durable_keep_their_place_among_those_on_disk() -> None:
    life = LongLife()
    sender, receiver = life.client(), life.client()
    for start in range(0, 12, 4):
        life.send(sender, "a", *numbers(3, start))
        life.send(sender, "a", *numbers(1, start + 3), durable=False)
    life.world.commit()
    assert life.queue("a").pending.disk_count == 8
    life.subscribe(receiver, "a", prefetch=2)
    assert life.acknowledge_all(receiver) == numbers(12)


def test_what_waits_for_a_far_time_waits_on_disk_and_is_never_early_and_hardly_late() -> None:
    life = LongLife()
    sender, receiver = life.client(), life.client()
    life.subscribe(receiver, "a", prefetch=100)
    for number in range(1, 41):
        life.send(sender, "a", f"{(number * 7919) % 20_000}", delay_ms=(number * 7919) % 20_000)
    life.world.commit()
    queue = life.queue("a")
    assert (queue.waiting, queue.scheduled < 12) == (40, True)
    start_ms, came = life.world.time_ms, dict[str, int]()
    while len(came) < 40:
        life.world.time_ms += 20
        life.world.commit()
        life.world.check_balance()
        came |= dict.fromkeys(life.keys(), life.world.time_ms - start_ms)
    assert all(0 <= came_ms - int(due_ms) <= 20 for due_ms, came_ms in came.items())


def test_after_a_crash_what_was_due_meanwhile_goes_before_what_never_went_out() -> None:
    life = LongLife({"redelivery-delay": 60_000})
    receiver = life.client()
    life.send(life.client(), "a", *numbers(12))
    consumer = life.subscribe(receiver, "a", prefetch=6)
    life.world.commit()
    assert life.keys() == numbers(6)
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    inside.consumers(life.world.broker).unsubscribe(receiver.connection, consumer)  # type: ignore[arg-type]
    life.world.commit()
    assert (life.queue("a").waiting, life.queue("a").due_on_disk) == (6, 4)
    life.world.journal.load_limit = 0
    life.world.time_ms += 3_600_000
    life.world.crash()
    assert (life.queue("a").count, len(life.queue("a").references)) == (12, 0)
    life.seen.clear()
    receiver = life.client()
    life.subscribe(receiver, "a", prefetch=1)
    assert life.acknowledge_all(receiver) == numbers(12)


def test_what_expires_on_disk_leaves_for_the_expiry_address() -> None:
    life = LongLife({"expiry-address": "EXPIRED", "auto-create-expiry-resources": True})
    sender = life.client()
    expires_at_ms = life.world.time_ms + 4_000
    life.send(sender, "a", *numbers(5))
    life.send(sender, "a", *numbers(9, 5), expires_at_ms=expires_at_ms)
    life.send(sender, "a", *numbers(2, 14), expires_at_ms=expires_at_ms + 60_000)
    life.send(sender, "a", *numbers(4, 16), expires_at_ms=expires_at_ms, delay_ms=3_600_000)
    for _ in range(6):
        life.world.time_ms += 1_000
        life.world.commit()
        life.world.check_balance()
    assert life.queue("a").count == 7
    dead = next(queue for name, queue in inside.queues(life.world.broker).items() if name != "a")
    assert (dead.count, dead.pending.disk_count > 0) == (13, True)
    life.world.time_ms += 60_000
    life.world.commit()
    assert (life.queue("a").count, dead.count) == (5, 15)


def test_what_is_on_hold_waits_without_end_but_for_its_time_to_live() -> None:
    life = LongLife({"redelivery-delay": 60_000, "expiry-address": "EXPIRED", "auto-create-expiry-resources": True})
    receiver, sender = life.client(), life.client()
    life.send(sender, "a", *numbers(6))
    life.send(sender, "a", *numbers(6, 6), expires_at_ms=life.world.time_ms + 3_600_000)
    consumer = life.subscribe(receiver, "a", prefetch=12)
    life.world.commit()
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    assert life.run(life.world.broker.retrying.retry(ANYBODY, life.queue("a"), Filter(), ON_HOLD_MS, False, FIRST))[0] == 12
    assert (life.queue("a").held_back, life.queue("a").due_on_disk > 0) == (12, True)
    life.world.journal.load_limit = 0
    life.world.crash()
    assert (life.queue("a").held_back, len(life.queue("a").references)) == (12, 0)
    for _ in range(4):
        life.world.time_ms += 30 * 86_400_000
        life.world.commit()
        life.world.check_balance()
    assert (life.queue("a").count, life.queue("a").held_back, life.queue("EXP.a").count) == (6, 6, 6)


def die(life: LongLife, count: int, prefetch: int) -> Client:
    """So many of queue a fail for good; who had them holds nothing more."""
    receiver = life.client()
    life.send(life.client(), "a", *numbers(count))
    consumer = life.subscribe(receiver, "a", prefetch=prefetch)
    for _ in range(-(-count // prefetch) + 1):
        life.world.commit()
        inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    inside.consumers(life.world.broker).unsubscribe(receiver.connection, consumer)  # type: ignore[arg-type]
    life.world.commit()
    life.keys()
    return receiver


@pytest.mark.parametrize("load_limit", [0, 1 << 30])
def test_purge_redrive_and_deletion_reach_what_is_on_disk(load_limit: int) -> None:
    life = LongLife({"max-delivery-attempts": 1})
    die(life, 9, prefetch=2)
    assert (life.queue("a").count, life.queue("DLQ.a").count, life.queue("DLQ.a").pending.disk_count) == (0, 9, 6)
    life.world.journal.load_limit = load_limit
    life.world.crash()
    assert life.run(inside.redriving(life.world.broker).at_once(ANYBODY, life.queue("DLQ.a"), None)) == 9
    assert (life.queue("a").count, life.queue("DLQ.a").count) == (9, 0)
    life.world.check_balance()
    life.send(life.client(), "b", *numbers(9))
    life.world.commit()
    assert life.run(inside.contents(life.world.broker).purge(BROKER, life.queue("a"))) == 9
    assert life.queue("a").count == 0
    assert inside.removal(life.world.broker).delete(ANYBODY, life.queue("b")) == 9
    life.world.commit()
    life.world.crash()
    assert sum(queue.count for queue in inside.queues(life.world.broker).values()) == 0


@pytest.mark.parametrize("failed_again", [False, True])
def test_a_redrive_job_takes_from_memory_what_is_as_it_is_on_disk_and_brings_nothing_there(failed_again: bool) -> None:
    life = LongLife({"max-delivery-attempts": 1}, window_messages=6)
    receiver = die(life, 12, prefetch=4)
    home, dead = life.queue("a"), life.queue("DLQ.a")
    assert (len(dead.references), dead.count, home.count) == (6, 12, 0)
    held = "m1" if failed_again else ""
    if failed_again:
        # m0 comes back to the dead-letter queue with a count of its own; m1 is held there meanwhile.
        holder = life.subscribe(receiver, "DLQ.a", prefetch=2)
        life.world.commit()
        assert life.keys() == numbers(2)
        inside.settlement(life.world.broker).fail(holder, [next(iter(holder.unsettled.values()))], Failure(counts=False), "nack", {})
        dead.paused = True
        life.world.commit()
    job = inside.redriving(life.world.broker).start(ANYBODY, dead, None, RedriveJob(0, "DLQ.a", "", stop_above=None))
    for _ in range(20):
        life.world.commit()
        life.world.check_balance()
    assert job.state == "done"
    assert (job.sent, dead.count, len(dead.references)) == ((11, 1, 1) if failed_again else (12, 0, 0))
    assert (home.count, bool(home.references)) == (job.sent, failed_again)
    life.world.crash()
    life.subscribe(receiver := life.client(), "a", prefetch=100)
    assert sorted(life.acknowledge_all(receiver), key=lambda key: int(key[1:])) == [key for key in numbers(12) if key != held]


def test_redriving_some_leaves_the_others_where_they_are() -> None:
    life = LongLife({"max-delivery-attempts": 1}, window_messages=6)
    die(life, 12, prefetch=4)
    home, dead = life.queue("a"), life.queue("DLQ.a")
    wanted = [record.message.message_id for record in life.world.journal.references.values() if record.message.body in (b"m1", b"m10")]
    assert life.run(inside.redriving(life.world.broker).at_once(ANYBODY, dead, wanted)) == 2
    life.world.check_balance()
    assert (home.count, dead.count) == (2, 10)
    # What lives is left where it is, asked for or not.
    assert life.run(inside.redriving(life.world.broker).at_once(ANYBODY, home, wanted)) == 0
    life.subscribe(receiver := life.client(), "a", prefetch=100)
    assert sorted(life.acknowledge_all(receiver)) == ["m1", "m10"]
    life.subscribe(other := life.client(), "DLQ.a", prefetch=1)
    assert sorted(life.acknowledge_all(other), key=lambda key: int(key[1:])) == [key for key in numbers(12) if key not in ("m1", "m10")]


def test_drop_head_drops_the_oldest_wherever_it_is() -> None:
    life = LongLife({"max-length": 8, "overflow": "drop-head"})
    sender, receiver = life.client(), life.client()
    for number in range(20):
        life.send(sender, "a", f"m{number}")
        life.world.commit()
        life.world.check_balance()
    life.subscribe(receiver, "a", prefetch=1)
    assert life.acknowledge_all(receiver) == numbers(8, 12)


def test_a_selector_finds_what_is_on_disk_and_leaves_the_rest() -> None:
    life = LongLife()
    sender, chooser, other = life.client(), life.client(), life.client()
    for number in range(24):
        life.send(sender, "a", f"m{number}", properties={"even": number % 2 == 0})
    life.world.commit()
    life.subscribe(chooser, "a", prefetch=2, selector=inside.resources(life.world.broker).read_selector("even = TRUE") and "even = TRUE")
    assert life.acknowledge_all(chooser) == [f"m{number}" for number in range(0, 24, 2)]
    assert len(life.queue("a").references) <= WINDOW + life.world.journal.page_rows
    # It has seen everything; what comes later it is asked about too.
    life.send(sender, "a", "new", properties={"even": True})
    assert life.acknowledge_all(chooser) == ["new"]
    life.subscribe(other, "a", prefetch=1)
    assert life.acknowledge_all(other) == [f"m{number}" for number in range(1, 24, 2)]


def test_a_peek_shows_memory_and_disk_in_delivery_order() -> None:
    life = LongLife()
    sender = life.client()
    life.send(sender, "a", *numbers(8))
    life.send(sender, "a", *[f"high{n}" for n in range(5)], priority=9)
    life.send(sender, "a", "later", delay_ms=60_000)
    life.world.commit()
    found: list[str] = []
    after = None
    while True:
        page = life.run(call(peek, life.world.broker, queue="a", limit=3, after=after))
        found += [message["body"].decode() for message in page["messages"]]
        after = page["next"]
        if after is None:
            break
    assert found == [*[f"high{n}" for n in range(5)], *numbers(8), "later"]
    life.world.check_balance()


def test_one_message_in_two_queues_keeps_its_body_until_both_are_done() -> None:
    life = LongLife({"default-address-routing-type": "multicast"})
    sender, first, second = life.client(), life.client(), life.client()
    for name in ("one", "two"):
        inside.resources(life.world.broker).declare(BROKER, {"queue": name, "address": "news", "routing_type": "multicast"})
    life.send(sender, "news", *numbers(10))
    life.subscribe(first, "one", prefetch=3)
    assert life.acknowledge_all(first) == numbers(10)
    assert len(life.world.journal.messages) == 10
    life.world.crash()
    second = life.client()
    life.subscribe(second, "two", prefetch=3)
    assert life.acknowledge_all(second) == numbers(10)
    assert not life.world.journal.messages


def test_a_transaction_joins_a_long_queue_at_its_place() -> None:
    life = LongLife()
    sender, receiver = life.client(), life.client()
    life.send(sender, "a", *numbers(6))
    broker, connection = life.world.broker, sender.connection
    assert connection is not None
    held: list[MessageReference] = []
    life.world.commit()
    inside.storing(broker).store(Message(0, "a", b"t"), [life.queue("a")], after_commit=True)
    held += [reference for reference in life.queue("a").references.values() if reference.where is Where.IN_COMMIT]
    life.send(sender, "a", *numbers(3, 6))
    life.world.commit()
    assert [reference.where for reference in held] == [Where.GONE]
    life.world.check_balance()
    life.subscribe(receiver, "a", prefetch=2)
    assert life.acknowledge_all(receiver) == [*numbers(6), "t", *numbers(3, 6)]


def test_a_page_of_which_all_is_leaving_strands_nothing_behind_it() -> None:
    life = LongLife({"redelivery-delay": 5000})
    world = life.world
    world.journal.page_rows = 1
    life.send(life.client(), "a", *numbers(6))
    consumer = life.subscribe(life.client(), "a", prefetch=6)
    life.world.commit()
    for held in list(consumer.unsettled.values()):
        world.time_ms += 1
        inside.settlement(world.broker).fail(consumer, [held], Failure(), "nack", {})
    world.commit()
    life.keys()
    world.time_ms += 5000
    world.loop.tick()
    world.loop.drain()
    came = life.keys()
    assert came[0] == "m0"
    # Acknowledged while a page with only its row is on its way.
    inside.settlement(world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    assert world.journal.read_pages()
    for _ in range(20):
        world.time_ms += 1000
        world.commit()
        came += life.keys()
        inside.settlement(world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    assert sorted(came) == numbers(6)
    assert life.queue("a").due_on_disk == 0


def _disk_fails_for(life: LongLife, time_ms: int) -> None:
    """Nothing can be read meanwhile, and it is looked at as often as a broker looks."""
    life.world.journal.read_error = OSError("the disk does not answer")
    for _ in range(4):
        life.world.turn()
        life.world.journal.commit()
    life.world.check_balance()
    life.world.journal.read_error = None
    life.world.time_ms += time_ms


def test_pages_that_could_not_be_read_are_read_a_second_later() -> None:
    life = LongLife({"expiry-address": "EXPIRED", "auto-create-expiry-resources": True})
    sender, receiver, chooser = life.client(), life.client(), life.client()
    life.send(sender, "a", *numbers(9))
    life.send(sender, "timed", *numbers(9), delay_ms=5_000)
    life.send(sender, "short", *numbers(9), expires_at_ms=life.world.time_ms + 5_000)
    for number in range(9):
        life.send(sender, "chosen", f"m{number}", properties={"last": number == 8})
    life.world.commit()
    life.world.time_ms += 5_000
    life.subscribe(receiver, "a", prefetch=20)
    life.subscribe(receiver, "timed", prefetch=20)
    life.subscribe(chooser, "chosen", prefetch=1, selector="last = TRUE")
    _disk_fails_for(life, 1_000)
    in_memory = numbers(WINDOW) + numbers(2)
    assert sorted(life.keys()) == sorted(in_memory)
    for _ in range(3):
        life.world.commit()
        life.world.check_balance()
        life.world.time_ms += 1_000
    assert Counter(life.keys()) == Counter([*numbers(9), *numbers(9), "m8"]) - Counter(in_memory)
    assert life.queue("short").count == 0
    assert life.queue("EXP.short").count == 9


def test_a_call_that_cannot_read_is_refused_and_everything_stays_as_it_was() -> None:
    life = LongLife()
    life.send(life.client(), "a", *numbers(9))
    life.world.commit()
    queue, broker = life.queue("a"), life.world.broker
    works: dict[str, Callable[[], Steps[Any]]] = {
        "peek": lambda: peek(broker, ANYBODY, queue=queue, limit=9),
        "redrive": lambda: inside.redriving(broker).at_once(ANYBODY, queue, [-1]),
        "delete": lambda: delete(broker, ANYBODY, queue=queue),
    }
    for name, work in works.items():
        before = queue.count
        life.world.journal.read_error = OSError("the disk does not answer")
        with pytest.raises(Refused, match="could not be read") as refused:
            life.run(work())
        assert refused.value.code == "journal-unreadable"
        life.world.journal.read_error = None
        life.world.check_balance()
        assert not queue.paused
        assert queue.count == before - (WINDOW if name == "delete" else 0)
    assert life.run(works["delete"]()) == {"messages": 9 - WINDOW}


def test_what_a_call_raises_over_a_page_is_its_own_affair() -> None:
    life = LongLife()
    life.send(life.client(), "a", *numbers(9))
    life.world.commit()

    def act(records: list[Any]) -> bool:
        raise Refused("too-many", "the caller wants no more", "ask for less")

    with pytest.raises(Refused, match="the caller wants no more"):
        life.run(inside.from_disk(life.world.broker).on_disk(life.queue("a"), act, 1 << 62))
    life.subscribe(receiver := life.client(), "a", prefetch=1)
    assert life.acknowledge_all(receiver) == numbers(9)


def test_dead_letters_that_may_not_go_home_stay_where_they_are() -> None:
    settings = {"max-delivery-attempts": 1}
    life = LongLife(settings, max_queues=2)
    receiver = life.client()
    life.send(life.client(), "a", *numbers(9))
    consumer = life.subscribe(receiver, "a", prefetch=9)
    life.world.commit()
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    inside.removal(life.world.broker).delete(ANYBODY, life.queue("a"))
    life.send(life.client(), "b", "one")
    life.world.commit()
    dead = life.queue("DLQ.a")
    with pytest.raises(Refused, match="2 queues"):
        life.run(inside.redriving(life.world.broker).at_once(ANYBODY, dead, None))
    inside.removal(life.world.broker).delete(ANYBODY, life.queue("b"))
    life.world.commit()
    life.world.check_balance()
    assert dead.count == 9
    assert life.run(inside.redriving(life.world.broker).at_once(ANYBODY, dead, None)) == 9
    assert life.queue("a").count == 9
