"""Messages for very many queues are stored a turn's worth at a time: in order, each whole, and others come between."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.memory import Memory
from homing.broker.core.message import REFERENCE_BYTES
from homing.broker.core.redelivery import Failure
from homing.broker.entries.throttle import COST_OF_A_REFERENCE, FEW_QUEUES, MOST_UNWRITTEN_REFERENCES, REFERENCES_A_TURN, Throttle
from homing.broker.errors import Refused
from homing.broker.protocols.amqp091.codec import method_frame
from homing.broker.protocols.native.codec import Op
from tests import inside
from tests.model.crowd import QUEUES, Client, crowd, sender
from tests.model.life import Life
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_session import Peer

MESSAGES = 200


def a_turn(world: World, commit: bool = True) -> int:
    """How many references it made."""
    before = world.journal.ids_taken
    world.loop.drain()
    made = world.journal.ids_taken - before
    if commit:
        world.journal.commit()
    return made


def bodies(world: World, name: str) -> list[bytes]:
    """What a queue holds, in order."""
    queue = inside.queues(world.broker)[name]
    rows = {record.sequence: record.message.body for record in world.journal.rows().values() if record.queue_id == queue.queue_id}
    return [rows[sequence] for sequence in sorted(rows)]


def some(first: int, count: int = MESSAGES) -> list[Any]:
    return [[str(number).encode()] for number in range(first, first + count)]


def test_a_frame_for_many_queues_is_stored_in_steps_and_others_come_between() -> None:
    world = World({})
    names = crowd(world)
    big, small = sender(world, "big"), sender(world, "small", "alone")
    before = world.journal.ids_taken
    big.say([Op.SEND, 1, 1, some(1)], [Op.SEND, 1, MESSAGES + 1, some(MESSAGES + 1, 5)])
    steps = [world.journal.ids_taken - before]
    while not big.of(Op.CONFIRM) or big.of(Op.CONFIRM)[-1][2] < MESSAGES + 5:
        number = len(steps)
        small.say([Op.SEND, 1, number, [[b"x"]]])
        world.loop.drain()
        world.journal.commit()
        assert [frame[2] for frame in small.of(Op.CONFIRM)][-1] == number, "confirmed with the next commit"
        steps.append(a_turn(world))
    assert len(steps) > MESSAGES * QUEUES // (2 * REFERENCES_A_TURN)
    assert max(steps) <= REFERENCES_A_TURN
    confirms = [frame[2] for frame in big.of(Op.CONFIRM)]
    assert confirms == sorted(confirms)
    expected = [str(number).encode() for number in range(1, MESSAGES + 6)]
    assert all(bodies(world, name) == expected for name in names)
    world.check_balance()


def test_acknowledgements_do_not_wait_behind_what_the_same_connection_sends() -> None:
    world = World({})
    crowd(world)
    client = sender(world, "one", "alone")
    client.say([Op.PRODUCER, 2, 2, "crowd"], [Op.SUBSCRIBE, 3, 1, "alone", {"prefetch": 10}], [Op.SEND, 1, 1, [[b"m"]]])
    world.commit()
    assert len(client.of(Op.DELIVER)) == 1
    client.say([Op.SEND, 2, 1, some(1)], [Op.ACK, 1, 1, [1, 1], None, 7])
    a_turn(world)
    assert client.of(Op.RESULT)[-1][1] == 7
    assert client.of(Op.CONFIRM)[-1][2] < MESSAGES, "the frame before it is under way still"


def test_what_a_lost_connection_had_stored_is_passed_over_when_it_is_sent_again() -> None:
    world = World({})
    names = crowd(world)
    first = sender(world, "same")
    first.say([Op.SEND, 1, 1, some(1)])
    a_turn(world)
    first.session.lost()
    stored = len(bodies(world, names[0]))
    assert 0 < stored < MESSAGES
    for _ in range(3):
        assert a_turn(world) == 0, "what it had not stored is nobody's any more"
    again = sender(world, "same")
    assert again.of(Op.RESULT)[-1][2] == {"mark": stored}
    again.say([Op.SEND, 1, 1, some(1)])
    world.commit()
    assert all(bodies(world, name) == [str(number).encode() for number in range(1, MESSAGES + 1)] for name in names)


def test_a_connection_that_was_taken_over_stores_nothing_beside_the_one_that_took_over() -> None:
    world = World({})
    names = crowd(world)
    sender(world, "same").say([Op.SEND, 1, 1, some(1)])
    again = sender(world, "same")
    again.say([Op.SEND, 1, 1, some(1)])
    world.commit()
    assert all(len(bodies(world, name)) == MESSAGES for name in names)


@pytest.mark.parametrize("after_turns", range(6))
def test_a_kill_between_two_steps_leaves_whole_messages_and_their_mark(after_turns: int) -> None:
    world = World({})
    names = crowd(world)
    sender(world, "same").say([Op.SEND, 1, 1, some(1)])
    for number in range(after_turns):
        a_turn(world, commit=number % 2 == 0)
    world.crash()
    held = [bodies(world, name) for name in names]
    assert all(each == held[0] for each in held), "each is in all queues or in none"
    again = sender(world, "same")
    assert again.of(Op.RESULT)[-1][2] == {"mark": len(held[0])}
    again.say([Op.SEND, 1, 1, some(1)])
    world.commit()
    assert all(bodies(world, name) == [str(number).encode() for number in range(1, MESSAGES + 1)] for name in names)


def test_those_who_wait_go_on_in_turn() -> None:
    world = World({})
    crowd(world)
    clients = [sender(world, name) for name in ("one", "two", "three")]
    for client in clients:
        client.say([Op.SEND, 1, 1, some(1)])
    for _ in range(6):
        a_turn(world)
    progress = [client.of(Op.CONFIRM)[-1][2] for client in clients]
    # The first had a part of its frame stored when it came, before the others were there.
    assert max(progress) - min(progress) <= 2 * REFERENCES_A_TURN // QUEUES


def test_nothing_more_is_made_than_the_disk_takes() -> None:
    world = World({})
    crowd(world)
    sender(world, "one").say([Op.SEND, 1, 1, some(1)])
    made = sum(a_turn(world, commit=False) for _ in range(20))
    assert made <= MOST_UNWRITTEN_REFERENCES + REFERENCES_A_TURN
    world.journal.commit()
    assert world.woken, "a commit lets it go on"
    assert a_turn(world) > 0


def test_what_is_not_durable_goes_to_disk_where_there_is_no_room_in_memory() -> None:
    world = World({}, memory_limit_bytes=2_000_000)
    names = crowd(world)
    client = sender(world, "one")
    client.say([Op.SEND, 1, 1, [[b"x", None, 4, False]] * MESSAGES])
    for _ in range(30):
        a_turn(world)
    assert inside.memory(world.broker).charged <= 2_000_000 + REFERENCE_BYTES * REFERENCES_A_TURN
    assert client.of(Op.CONFIRM)[-1][2] == MESSAGES, "nobody waits for the disk"
    assert sum(number for number, _ in inside.references(world.broker).spilled.values()) > 0
    for name in names:
        inside.deletion(world.broker).delete_queue(inside.queues(world.broker)[name])
    world.commit()
    world.check_balance()
    assert not inside.references(world.broker).spilled


def test_what_finds_no_room_in_memory_goes_to_disk_in_the_same_steps() -> None:
    world = World({}, window_messages=10)
    names = crowd(world)
    client = sender(world, "one")
    client.say([Op.SEND, 1, 1, some(1)])
    while not client.of(Op.CONFIRM) or client.of(Op.CONFIRM)[-1][2] < MESSAGES:
        assert a_turn(world) <= REFERENCES_A_TURN
    assert {inside.queues(world.broker)[name].pending.disk_count for name in names} == {MESSAGES - 10}
    world.check_balance()
    consumer = Client(world, "two")
    consumer.say([Op.SUBSCRIBE, 1, 1, names[7], {"prefetch": 1000}])
    world.journal.page_rows = 100
    world.commit()
    assert [item[1] for frame in consumer.of(Op.DELIVER) for item in [*frame[3]]] or consumer.of(Op.DELIVER_BODIES)
    assert inside.queues(world.broker)[names[7]].delivering == MESSAGES


# -- moves ---------------------------------------------------------------------------------------------------------------


def test_dead_letters_for_many_queues_move_in_steps() -> None:
    life = Life({"dead-letter-address": "dead", "max-delivery-attempts": 1})
    world = life.world
    names = crowd(world, address="dead")
    client = life.client()
    life.send(client, "work", *[str(number) for number in range(MESSAGES)])
    consumer = life.subscribe(client, "work", prefetch=MESSAGES)
    world.commit()
    before = world.journal.ids_taken
    inside.settlement(world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    made = [world.journal.ids_taken - before]
    while life.queue("work").count:
        world.journal.commit()
        made.append(a_turn(world))
        assert len(made) < 100
    world.commit()
    assert max(made) <= REFERENCES_A_TURN
    assert len(made) > 3
    assert all(sorted(bodies(world, name), key=int) == [str(number).encode() for number in range(MESSAGES)] for name in names)
    world.check_balance()


def test_a_kill_while_dead_letters_move_leaves_each_in_one_place() -> None:
    life = Life({"dead-letter-address": "dead", "max-delivery-attempts": 1})
    world = life.world
    names = crowd(world, address="dead")
    client = life.client()
    life.send(client, "work", *[str(number) for number in range(MESSAGES)])
    consumer = life.subscribe(client, "work", prefetch=MESSAGES)
    world.commit()
    inside.settlement(world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    a_turn(world)
    a_turn(world)
    world.crash()
    left, there = set(bodies(world, "work")), [set(bodies(world, name)) for name in names]
    assert left
    assert there[0]
    assert all(each == there[0] for each in there)
    assert not left & there[0]
    assert len(left | there[0]) == MESSAGES
    world.commit()
    assert not bodies(world, "work"), "the start goes on with it"


def test_a_redrive_whose_home_cannot_be_made_again_is_refused_and_loses_nothing() -> None:
    life = Life({"max-delivery-attempts": 1})
    world = life.world
    world.config = inside.configured(world.config.address_settings.layers, max_queues=3, window_messages=10)
    world.crash()
    client = life.client()
    life.send(client, "home", *[str(number) for number in range(50)])
    consumer = life.subscribe(client, "home", prefetch=100)
    world.commit()
    inside.settlement(world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    world.commit()
    assert client.connection is not None
    inside.connections(world.broker).disconnect(client.connection, lost=False)
    inside.removal(world.broker).delete(ANYBODY, life.queue("home"))
    for name in ("one", "two"):
        inside.resources(world.broker).declare(BROKER, {"queue": name})
    world.commit()
    dead = life.queue("DLQ.home")
    for in_memory in (True, False):
        if not in_memory:
            world.journal.load_limit = 0
            world.crash()
            dead = life.queue("DLQ.home")
            assert not dead.references, "all is on disk only"
        reported: list[int | Refused] = []
        work = inside.redriving(world.broker).at_once(ANYBODY, dead, None)
        while not reported:
            try:
                next(work)
            except StopIteration as done:
                reported.append(done.value)
            except Refused as refusal:
                reported.append(refusal)
            world.commit()
        assert isinstance(reported[0], Refused)
        assert reported[0].code == "too-many-queues"
        assert "queue home is gone" in reported[0].message
        assert "then redrive what is left" in reported[0].fix
        assert dead.ready == 50
        world.check_balance()
    inside.removal(world.broker).delete(ANYBODY, life.queue("one"))
    world.commit()
    work = inside.redriving(world.broker).at_once(ANYBODY, life.queue("DLQ.home"), None)
    for _ in work:
        world.commit()
    world.commit()
    assert life.queue("home").ready == 50


# -- transactions, numbers -------------------------------------------------------------------------------------------------


def test_a_commit_is_one_step_and_bounded() -> None:
    world = World({}, max_transaction_references=10 * QUEUES)
    names = crowd(world)
    client = sender(world, "one")
    client.say([Op.SEND, 1, 0, some(1, 11), 5], [Op.COMMIT, 9, 5, "t1", 11])
    assert client.of(Op.REFUSED)[-1][1:3] == [9, "transaction-too-large"]
    assert "max-transaction-references" in client.of(Op.REFUSED)[-1][4]
    client.say([Op.SEND, 1, 0, some(1, 10), 5], [Op.COMMIT, 10, 5, "t2", 10])
    world.journal.commit()
    assert client.of(Op.RESULT)[-1][1] == 10
    assert all(len(bodies(world, name)) == 10 for name in names)


def test_nothing_is_handed_out_whose_number_is_not_reserved_on_disk() -> None:
    world = World({})
    client = sender(world, "one", "alone")
    client.say([Op.SUBSCRIBE, 2, 1, "alone", {"prefetch": 10}])
    world.commit()
    world.journal.reserved_up_to = world.journal.ids_taken
    client.say([Op.SEND, 1, 1, [[b"m", None, 4, False]]])
    world.turn()
    assert not client.of(Op.DELIVER), "a kill now, and its number could come again"
    world.journal.commit()
    assert world.woken
    world.turn()
    assert len(client.of(Op.DELIVER)) == 1


# -- AMQP ----------------------------------------------------------------------------------------------------------------


def amqp_crowd(world: World, queues: int = QUEUES) -> Peer:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "exchange.declare", 0, "crowd", "fanout", False, False, False, False, False, {})
    for number in range(queues):
        peer.call(1, "queue.declare", 0, f"crowd.{number}", False, True, False, False, False, {})
        peer.call(1, "queue.bind", 0, f"crowd.{number}", "crowd", "", False, {})
    return peer


def publishes(count: int, first: int = 0) -> bytes:
    one: list[bytes] = []
    for number in range(first, first + count):
        body = b"%08d" % number
        one.append(method_frame(1, "basic.publish", 0, "crowd", "", False, False))
        header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x10\x00\x02"
        one.append(b"\x02\x00\x01" + len(header).to_bytes(4, "big") + header + b"\xce")
        one.append(b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce")
    return b"".join(one)


@pytest.mark.parametrize("limited", [False, True])
def test_publishes_for_many_queues_are_taken_in_steps_and_the_connection_waits(limited: bool) -> None:
    """Also where each is to be looked at by itself."""
    world = World({"#": {"max-length": 100_000}} if limited else {})
    peer = amqp_crowd(world)
    peer.call(1, "confirm.select", False)
    before = world.journal.ids_taken
    peer.session.receive(publishes(MESSAGES) + method_frame(1, "queue.declare", 0, "later", False, True, False, False, False, {}))
    assert world.journal.ids_taken - before <= REFERENCES_A_TURN
    waited = 0
    while not peer.reading:
        assert "later" not in inside.queues(world.broker)
        assert a_turn(world) <= REFERENCES_A_TURN
        waited += 1
    assert waited > 2
    assert "later" in inside.queues(world.broker)
    expected = [b"%08d" % number for number in range(MESSAGES)]
    assert all(bodies(world, f"crowd.{number}") == expected for number in range(QUEUES))
    acks = [values for name, values in peer.methods() if name == "basic.ack"]
    assert acks[-1][0] == MESSAGES
    assert [tag for tag, _ in acks] == sorted(tag for tag, _ in acks)


def test_an_amqp_transaction_is_one_step_and_bounded() -> None:
    world = World({}, max_transaction_references=10 * QUEUES)
    peer = amqp_crowd(world)
    peer.call(1, "tx.select")
    peer.send(publishes(10))
    assert [name for name, _ in peer.call(1, "tx.commit")] == ["tx.commit-ok"]
    peer.send(publishes(11))
    ((name, values),) = peer.call(1, "tx.commit")
    assert (name, values[0]) == ("channel.close", 406)
    assert "max-transaction-references" in values[1] or "takes at most" in values[1]
    assert all(len(bodies(world, f"crowd.{number}")) == 10 for number in range(QUEUES))


def test_few_queues_wait_for_turns_alone() -> None:
    world = World({})
    crowd(world, FEW_QUEUES)
    client = sender(world, "one")
    client.say([Op.SEND, 1, 1, some(1, 1000)])
    made = 0
    while world.woken:
        world.woken = False
        made = a_turn(world, commit=False)
        assert made <= REFERENCES_A_TURN
    world.journal.commit()
    assert client.of(Op.CONFIRM)[-1][2] == 1000


@pytest.mark.plain
@pytest.mark.parametrize(("queues", "asked"), [(1, 100), (100, 10), (600, 2)])
def test_what_selectors_cost_counts_whether_or_not_a_message_joins_a_queue(
    monkeypatch: pytest.MonkeyPatch, queues: int, asked: int
) -> None:
    """LIKE on properties of 64 KiB: a few looks a turn, also for one message; all of them in the end, and others in between."""
    world = World({})
    for number in range(queues):
        selector = f"p LIKE '%a_b{number}%'" if number else "p LIKE '%a_a%'"
        inside.resources(world.broker).declare(
            BROKER, {"queue": f"q{number}", "address": "asked", "routing_type": "multicast", "selector": selector}
        )
    client, other = sender(world, "costly", "asked"), sender(world, "other", "plain")
    throttle, spent = inside.throttle(world.broker), list[int]()
    spend = throttle.spend

    def noted(cost: int) -> None:
        spent.append(cost)
        spend(cost)

    monkeypatch.setattr(throttle, "spend", noted)
    client.say([Op.SEND, 1, 1, [[b"", {"p": "a" * 60_000}] for _ in range(asked)]])
    turns, most, whole = 1, COST_OF_A_REFERENCE * REFERENCES_A_TURN, 0
    while not client.of(Op.CONFIRM) or client.of(Op.CONFIRM)[-1][2] < asked:
        assert sum(spent) <= most + 1000, "a turn's, and one look more"
        whole += sum(spent)
        spent.clear()
        other.say([Op.SEND, 1, turns, [[b"x"]]])
        a_turn(world)
        assert other.of(Op.CONFIRM)[-1][2] >= turns - 1
        turns += 1
        assert turns < 200
    assert whole + sum(spent) > 1.9 * most
    assert len(bodies(world, "q0")) == asked
    assert queues == 1 or not bodies(world, "q1")


def test_messages_that_came_before_are_passed_over_turn_after_turn() -> None:
    """They make no reference and write nothing, so that no commit wakes the loop either."""
    world = World({})
    crowd(world, 1, "alone")
    client = sender(world, "one", "alone")
    known = [b"x", None, 4, False, 0, 0, "known"]
    client.say([Op.SEND, 1, 1, [known]])
    a_turn(world)
    woken: list[None] = []
    inside.call_when_woken(world.broker, lambda: woken.append(None))
    last = 1 + 2 * REFERENCES_A_TURN + 1
    client.say([Op.SEND, 1, 2, [known] * (last - 1)])
    while client.of(Op.CONFIRM)[-1][2] < last:
        assert woken
        assert not world.journal.busy()
        woken.clear()
        world.loop.drain()
    assert inside.queues(world.broker)["alone.0"].count == 1


class Numbers:
    """What a throttle asks the recorder."""

    ids_taken = 0
    ids_reserved = True
    unwritten_references = 0
    tidying = False


@pytest.mark.plain
def test_a_commit_for_others_comes_between_two_for_many_queues() -> None:
    """Their messages came while the first was written: they do not wait for the second as well."""
    numbers: Any = Numbers()
    throttle = Throttle(numbers, Memory(1 << 20), lambda: None)
    many = FEW_QUEUES + 1
    numbers.unwritten_references = 1
    throttle.written(numbers.unwritten_references)
    assert not throttle.room(many), "one of another's waits"
    assert throttle.room(FEW_QUEUES)
    throttle.written(numbers.unwritten_references)
    assert throttle.room(many), "others have had a commit, whatever has come since"
    numbers.unwritten_references = 0
    throttle.written(numbers.unwritten_references)
    assert throttle.room(many), "nobody waits"
    numbers.tidying = True
    assert not throttle.room(many), "who came meanwhile waits for that already"
    assert throttle.room(FEW_QUEUES)
