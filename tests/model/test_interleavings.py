"""Things that come between one step of a message and the next, each told in as few steps as it takes."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.consumer import Consumer
from homing.broker.core.message import Message, Where
from homing.broker.core.redelivery import ConsumerPolicy, Failure
from homing.broker.core.reserved import EVENTS
from homing.broker.core.routing import RoutingTypes
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from homing.broker.errors import Refused
from homing.broker.management.queues import describe
from homing.broker.steps import at_once
from homing.journal.declarations import QueueOptions
from homing.journal.upkeep.leftovers import POLICIES
from tests import inside
from tests.model.life import Life
from tests.model.world import ANYBODY


def test_a_body_is_stored_again_when_only_a_queue_that_is_not_durable_still_has_the_message() -> None:
    life = Life({"max-delivery-attempts": 1})
    declare = inside.resources(life.world.broker).declare
    for name, durable in (("one", True), ("two", True), ("light", False)):
        declare(BROKER, {"queue": name, "address": "news", "routing_type": "multicast", "durable": durable})
    sender, reader = life.client(), life.client()
    life.send(sender, "news", "hello")
    life.world.commit()
    for name in ("one", "two"):
        consumer = life.subscribe(reader, name)
        life.world.commit()
        inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.world.commit()
    assert not life.world.journal.messages, "nobody durable has it any more"
    consumer = life.subscribe(reader, "light")
    life.world.commit()
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    (record,) = life.world.journal.references.values()
    assert not record.shared or record.message.message_id in life.world.journal.messages


def test_what_comes_back_unread_is_in_no_transaction_any_more() -> None:
    life = Life()
    sender, one, two = life.client(), life.client(), life.client()
    life.send(sender, "a", "m")
    life.world.commit()
    consumer = life.subscribe(one, "a", session=1, transacted=True)
    life.world.commit()
    assert one.connection is not None
    inside.transactions(life.world.broker).hold_acknowledgement(one.connection, 1, consumer, list(consumer.unsettled.values()))
    inside.connections(life.world.broker).disconnect(one.connection, lost=True)
    life.world.commit()
    consumer = life.subscribe(two, "a")
    life.world.commit()
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.world.commit()
    assert not life.queue("a").references


def test_a_rollback_lets_go_of_what_consumers_of_other_sessions_acknowledged_in_it() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", "m")
    life.world.commit()
    consumer = life.subscribe(client, "a")
    life.world.commit()
    assert client.connection is not None
    held = list(consumer.unsettled.values())
    inside.transactions(life.world.broker).hold_acknowledgement(client.connection, 5, consumer, held)
    inside.transactions(life.world.broker).roll_back(client.connection, 5)
    inside.settlement(life.world.broker).acknowledge(consumer, held)
    life.world.commit()
    assert not life.queue("a").references


def test_acknowledgements_of_nothing_leave_nothing_in_a_transaction() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", "m")
    life.world.commit()
    consumer = life.subscribe(client, "a", session=1, transacted=True)
    life.world.commit()
    assert client.connection is not None
    for _ in range(100):
        inside.transactions(life.world.broker).hold_acknowledgement(client.connection, 1, consumer, list(consumer.unsettled.values()))
    assert len(client.connection.transactions[1].acknowledged) == 1


def test_a_message_behind_thousands_of_expired_ones_goes_out() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", *[str(number) for number in range(4500)], expires_at_ms=life.world.time_ms + 100)
    life.send(client, "a", "alive")
    life.world.commit()
    life.world.time_ms += 101
    life.subscribe(client, "a")
    for _ in range(10):
        if inside.ready(life.world.broker):
            life.world.loop.drain()
    assert life.keys() == ["alive"]


def test_each_pull_ends_at_its_own_time() -> None:
    life = Life()
    client = life.client()
    empty: list[Consumer] = []
    client.pull_empty = empty.append  # type: ignore[assignment, method-assign]
    consumer = life.subscribe(client, "a", prefetch=0)
    assert client.connection is not None
    inside.consumers(life.world.broker).pull(client.connection, consumer, -1)
    inside.consumers(life.world.broker).pull(client.connection, consumer, 100)
    inside.consumers(life.world.broker).pull(client.connection, consumer, 5000)
    life.world.turn()
    life.world.time_ms += 100
    life.world.turn()
    assert empty == [consumer]
    assert consumer.credit == 2
    life.send(client, "a", "m")
    life.world.commit()
    assert life.keys() == ["m"]
    life.world.time_ms += 5000
    life.world.turn()
    # The message answered the oldest pull, the one without end; the last one had its time.
    assert empty == [consumer, consumer]
    assert consumer.credit == 0


def test_a_message_that_was_redriven_and_then_succeeds_leaves_its_outcome() -> None:
    life = Life({"max-delivery-attempts": 1})
    client = life.client()
    life.send(client, "a", "m")
    consumer = life.subscribe(client, "a")
    life.world.commit()
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    assert life.world.run(inside.redriving(life.world.broker).at_once(ANYBODY, life.queue("DLQ.a"), None)) == 1
    life.world.commit()
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.world.commit()
    assert sorted(life.world.journal.outcomes.values()) == ["dead-lettered", "redriven", "succeeded"]


def test_length_limits_that_became_smaller_are_reached_without_another_arrival_in_bounded_steps() -> None:
    life = Life({"max-length": 1000, "overflow": "drop-head"})
    client = life.client()
    sent = {"a": 1000, **{f"b{number}": 50 for number in range(10)}}
    for name, messages in sent.items():
        life.send(client, name, *[str(number) for number in range(messages)])
    life.world.commit()
    inside.apply_settings(life.world.broker, AddressSettingsRepository({"#": {"max-length": 10, "overflow": "drop-head"}}))
    left = [sum(sent.values())]
    for _ in range(20):
        life.world.loop.drain()
        left.append(sum(life.queue(name).ready for name in sent))
        life.world.journal.commit()
    assert max(before - after for before, after in pairwise(left)) <= 200, "of all queues together"
    assert {name: life.queue(name).ready for name in sent} == dict.fromkeys(sent, 10)
    kept = [reference for name in sent for reference in life.queue(name).references.values()]
    assert all(reference.where is Where.PENDING for reference in kept)
    assert [reference.message.body for reference in life.queue("a").references.values()] == [
        str(number).encode() for number in range(990, 1000)
    ]


def test_a_message_that_went_back_and_was_acknowledged_again_makes_the_transaction_refused_not_torn() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", "m")
    life.world.commit()
    consumer = life.subscribe(client, "a", session=1, transacted=True)
    life.world.commit()
    assert client.connection is not None
    broker = life.world.broker
    for round_ in (1, 2):
        held = list(consumer.unsettled.values())
        assert [reference.tag for reference in held] == [round_]
        inside.transactions(broker).hold_acknowledgement(client.connection, 1, consumer, held)
        if round_ == 1:
            inside.settlement(broker).fail(consumer, held, Failure(), "nack", {})
            life.world.commit()
    inside.transactions(broker).hold_sends(client.connection, 1, [Message(0, "b", b"sent")], None)
    with pytest.raises(Refused):
        inside.transactions(broker).commit(client.connection, 1, "t", 1)
    life.world.commit()
    assert "b" not in inside.queues(broker)
    life.world.check_balance()


def test_thousands_of_parked_messages_look_again_in_steps() -> None:
    life = Life({"auto-create-dead-letter-resources": False, "max-delivery-attempts": 1})
    client = life.client()
    life.send(client, "a", *[str(number) for number in range(3500)])
    consumer = life.subscribe(client, "a", prefetch=5000)
    life.world.commit()
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    assert len(life.queue("a").parked) == 3500
    inside.resources(life.world.broker).declare(BROKER, {"queue": "dead", "address": "DLA", "routing_type": "multicast"})
    life.world.loop.drain()
    assert 0 < len(life.queue("a").parked) < 3500
    life.world.commit()
    assert not life.queue("a").parked
    assert life.queue("dead").ready == 3500
    life.world.check_balance()


def test_a_resend_of_messages_that_are_not_durable_is_recognised_while_the_broker_lives() -> None:
    life = Life()
    for _ in range(2):
        client = life.world.client("the-same", life.seen.append)
        assert client.connection is not None
        producer = inside.producers(life.world.broker).open(client.connection, 1, "a")
        assert inside.intake(life.world.broker).send(producer, 1, [Message(0, "a", b"m", durable=False)], life.world.time_ms) is None
    assert life.queue("a").ready == 1
    assert not life.world.journal.producers


def test_what_somebody_declares_is_not_removed_by_itself() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", "m")
    assert client.connection is not None
    inside.resources(life.world.broker).declare(BROKER, {"queue": "a"})
    inside.connections(life.world.broker).disconnect(client.connection, lost=False)
    at_once(inside.contents(life.world.broker).purge(BROKER, life.queue("a")))
    for _ in range(30):
        life.world.time_ms += 1000
        life.world.commit()
    assert "a" in inside.queues(life.world.broker)
    life.world.crash()
    assert not life.queue("a").auto_created
    assert "a" in inside.addresses(life.world.broker)


def test_addresses_of_declared_queues_go_with_them_except_where_they_say_something() -> None:
    """A soak found one row for each temporary queue that AMQP clients ever had."""
    life = Life()
    resources, addresses = inside.resources(life.world.broker), inside.addresses(life.world.broker)
    resources.declare_address("of-the-file", RoutingTypes.ANYCAST)
    for name, address, routing_type in (
        ("temporary", "temporary", "anycast"),
        ("of-the-file", "of-the-file", "anycast"),
        ("reader", "news", "multicast"),
    ):
        queue = resources.declare(BROKER, {"queue": name, "address": address, "routing_type": routing_type})
        life.world.commit()
        for _ in range(30):
            life.world.time_ms += 1000
            life.world.commit()
        assert address in addresses
        inside.deletion(life.world.broker).delete_queue(queue)
    for _ in range(30):
        life.world.time_ms += 1000
        life.world.commit()
    assert set(addresses) == {"of-the-file", "news", EVENTS}
    life.send(life.client(), "temporary", "made anew")
    assert life.queue("temporary").ready == 1


DEAD_LETTERS = {"max-delivery-attempts": 1}


def test_who_waits_for_the_first_dead_letter_gets_it() -> None:
    life = Life({**DEAD_LETTERS, "expiry-address": "OLD", "auto-create-expiry-resources": True}, b={"dead-letter-queue-suffix": ".dead"})
    watcher, worker = life.client(), life.client()
    for name, address, source in (("DLQ.a", "DLA", "a"), ("DLQ.b.dead", "DLA", "b"), ("EXP.a", "OLD", "a")):
        life.subscribe(watcher, name)
        assert life.queue(name).address == address
        selector = life.queue(name).selector
        assert selector is not None
        assert selector.text == f"_AMQ_ORIG_ADDRESS = '{source}'"
    life.subscribe(watcher, "DLQ.b")
    assert life.queue("DLQ.b").address == "DLQ.b", "b's dead letters have another name: this is a queue like any other"
    life.send(worker, "a", "doomed")
    life.world.commit()
    consumer = life.subscribe(worker, "a")
    life.world.commit()
    consumer.delivered(1, life.world.time_ms)
    inside.settlement(life.world.broker).fail(consumer, consumer.held([1, 1])[0], Failure(), "nack", {})
    life.world.commit()
    assert [(delivery.key, delivery.queue) for delivery in life.seen] == [("doomed", "a"), ("doomed", "DLQ.a")]


def test_there_are_only_so_many_queues() -> None:
    life = Life()
    inside.resources(life.world.broker)._max_queues = 2
    client = life.client()
    life.subscribe(client, "a")
    life.subscribe(client, "b")
    with pytest.raises(Refused) as caught:
        life.subscribe(client, "c")
    assert caught.value.code == "too-many-queues"


@pytest.mark.parametrize("delayed", [0, 5])
def test_what_is_sent_with_a_delay_pushes_nothing_out_of_a_full_queue(delayed: int) -> None:
    life = Life({"max-length": 10, "overflow": "drop-head"})
    client = life.client()
    life.send(client, "a", *[f"m{n}" for n in range(10)])
    life.world.commit()
    life.send(client, "a", *[f"d{n}" for n in range(delayed)], delay_ms=60_000)
    life.send(client, "a", "last")
    life.world.commit()
    assert (life.queue("a").ready, life.queue("a").scheduled) == (10, delayed)


def test_a_full_queue_takes_what_is_sent_with_a_delay() -> None:
    life = Life({"max-length": 10, "overflow": "reject-publish"})
    life.send(life.client(), "a", *[f"d{n}" for n in range(50)], delay_ms=60_000)
    life.world.commit()
    assert life.queue("a").scheduled == 50


def test_a_reload_that_a_queue_cannot_follow_changes_nothing() -> None:
    life = Life()
    client = life.client()
    life.subscribe(client, "a")
    life.queue("a").options = cast(QueueOptions, {"no_such_option": 1})
    before, in_force = inside.settings(life.world.broker), life.queue("a").settings
    with pytest.raises(Refused):
        inside.apply_settings(life.world.broker, AddressSettingsRepository({"#": {"redelivery-delay": 5000}}))
    assert inside.settings(life.world.broker) is before
    assert life.queue("a").settings is in_force


def test_what_a_commit_acknowledged_counts_as_delivering_until_it_is_on_disk() -> None:
    life = Life()
    client = life.client()
    life.send(client, "a", "one", "two")
    life.world.commit()
    consumer = life.subscribe(client, "a", session=1, transacted=True)
    life.world.commit()
    consumer.delivered(2, life.world.time_ms)
    assert client.connection is not None
    transactions = inside.transactions(life.world.broker)
    transactions.hold_acknowledgement(client.connection, 1, consumer, consumer.held([1, 1])[0])
    transactions.commit(client.connection, 1, "t1", 0)
    assert (describe(life.queue("a"))["delivering"], describe(life.queue("a"))["messages"]) == (2, 2)
    life.world.commit()
    assert (describe(life.queue("a"))["delivering"], describe(life.queue("a"))["messages"]) == (1, 1)


@pytest.mark.parametrize("pieces", [[9], [1] * 9, [2, 5, 2]])
def test_consumers_are_served_by_turns_however_messages_come(pieces: list[int]) -> None:
    life = Life()
    life.send(life.client(), "a", "first")
    life.world.commit()
    consumers = [life.subscribe(life.client(), "a", prefetch=10) for _ in range(3)]
    life.world.commit()
    sender, number = life.client(), 1
    for piece in pieces:
        life.send(sender, "a", *[str(number + each) for each in range(piece)])
        number += piece
        life.world.turn()
        inside.mark_ready(life.world.broker, life.queue("a"))
        life.world.turn()
    life.world.commit()
    held = [[int(each.message.body) for each in consumer.unsettled.values() if each.message.body != b"first"] for consumer in consumers]
    assert [[(body - consumer[0]) % 3 for body in consumer] for consumer in held] == [[0, 0, 0]] * 3
    assert sorted(body for consumer in held for body in consumer) == list(range(1, 10))


@pytest.mark.plain
def test_dead_letters_of_which_it_cannot_be_decided_where_they_go_are_parked_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def routes(*_: object) -> None:
        raise OSError("too many open files")

    life = Life({"max-delivery-attempts": 1})
    receiver, broker = life.client(), life.world.broker
    consumer = life.subscribe(receiver, "a", prefetch=5)
    life.send(life.client(), "a", "one", "two")
    life.world.commit()
    monkeypatch.setattr(inside.dead_letter_exchanges(broker), "routes", routes)
    inside.settlement(broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.commit()
    life.world.check_balance()
    assert len(life.queue("a").parked) == 2
    monkeypatch.undo()
    inside.office(broker).retry_parked()
    life.world.commit()
    life.world.check_balance()
    assert (life.queue("a").count, life.queue("DLQ.a").count) == (0, 2)


@pytest.mark.plain
def test_a_report_that_cannot_be_read_leaves_what_failed_with_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    life = Life()
    consumer = life.subscribe(life.client(), "a", prefetch=5)
    life.send(life.client(), "a", "one", "two")
    life.world.commit()
    monkeypatch.setattr("homing.broker.recording.failure_report.keep", broken)
    with pytest.raises(MemoryError):
        inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {"reason": "no"})
    life.world.check_balance()
    assert (len(consumer.unsettled), life.queue("a").delivering) == (2, 2)


def test_duplicate_ids_are_forgotten_with_their_address() -> None:
    life = Life()
    sender, receiver = life.client(), life.client()
    consumer = life.subscribe(receiver, "a", prefetch=5)
    life.send(sender, "a", "one", duplicate_id="x")
    life.send(sender, "a", "again", duplicate_id="x")
    life.world.commit()
    assert life.keys() == ["one"]
    inside.settlement(life.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    for client in (sender, receiver):
        assert client.connection is not None
        inside.connections(life.world.broker).disconnect(client.connection, lost=False)
    for _ in range(40):
        life.world.time_ms += 1_000
        life.world.commit()
    assert "a" not in inside.addresses(life.world.broker)
    receiver = life.client()
    life.subscribe(receiver, "a", prefetch=5)
    life.send(life.client(), "a", "new", duplicate_id="x")
    life.world.commit()
    assert life.keys() == ["new"]


def test_a_policy_in_use_is_on_record_however_many_others_clients_bring() -> None:
    """The broker keeps the 10,000 that were entered last, and memory fewer: what is in use is entered again before it would go."""
    life = Life({"max-delivery-attempts": -1})
    sender, reader = life.client(), life.client()
    life.send(sender, "a", "x")
    consumer = life.subscribe(reader, "a", prefetch=1)
    usual = ConsumerPolicy(maximum_redeliveries=-1, initial_redelivery_delay_ms=0)
    entered: list[str] = []

    def fails(policy: ConsumerPolicy) -> None:
        life.world.commit()
        consumer.policy = policy
        inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(delay_ms=0), "nack", {})
        entered.extend(life.world.journal.batch.policies)

    fails(usual)
    (name,) = entered
    others = [ConsumerPolicy(maximum_redeliveries=-1, redelivery_delay_ms=number) for number in range(1500)]
    for other in others:
        fails(other)
        fails(usual)
    assert len(set(entered)) == 1 + len(others)
    places = [place for place, each in enumerate(entered) if each == name]
    assert 1 < len(places) < 10
    assert all(later - earlier < POLICIES // 5 for earlier, later in pairwise([*places, len(entered)]))
