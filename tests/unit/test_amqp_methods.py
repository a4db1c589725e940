"""Methods of an AMQP channel against a whole broker whose clock and disk are in the test's hand."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.connection import Connection
from homing.broker.core.consumer import ConsumerOptions
from homing.broker.protocols.amqp091.codec import FrameReader, MethodEvent, content_frames, method_frame
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, read_properties, write_properties
from homing.broker.protocols.amqp091.codec_tables import Timestamp, write_fields
from homing.broker.protocols.amqp091.message_mapping import headers_of, wire_of
from homing.broker.protocols.amqp091.options import counts_sent_deaths
from homing.broker.steps import STEP
from homing.journal.declarations import BindingContent, DeclarationRecord
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer, codes


@pytest.fixture
def world() -> World:
    return World({})


def opened(world: World) -> Peer:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    return peer


def declared(peer: Peer, name: str, arguments: dict[str, Any] | None = None) -> None:
    ((answer, _),) = peer.call(1, "queue.declare", 0, name, False, True, False, False, False, arguments or {})
    assert answer == "queue.declare-ok"


def published(key: str, body: bytes = b"x", properties: bytes = b"\x00\x00", exchange: str = "") -> bytes:
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, exchange, key, False, False))
    return b"".join(content_frames(1, payload, properties, body, 8192))


def get(queue: str) -> bytes:
    return method_frame(1, "basic.get", 0, queue, True)


def said_so_far(peer: Peer) -> list[str]:
    """The methods that are there before anything more is on disk."""
    reader = FrameReader(set(), 1 << 20)
    reader.frame_max = 1 << 20
    out, peer.out = peer.out, b""
    return [METHODS[event.number].name for event in reader.feed(out) if isinstance(event, MethodEvent)]


def counted(peer: Peer, queue: str) -> int:
    ((_, values),) = peer.call(1, "queue.declare", 0, queue, True, False, False, False, False, {})
    return int(values[1])


# -- basic.get -----------------------------------------------------------------------------------------------------------

DIES = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
#: Flags and property list: persistent, and an expiration of 10 ms.
TEN_MS = b"\x11\x00\x02\x0210"


@pytest.mark.parametrize("by", ["the get", "the clock"])
def test_a_get_that_finds_its_head_expired_answers_after_the_move(world: World, by: str) -> None:
    peer = opened(world)
    declared(peer, "dead")
    declared(peer, "source", DIES)
    peer.send(published("source", properties=TEN_MS))
    world.time_ms += 20
    if by == "the clock":
        world.loop.tick()
    peer.session.receive(get("source") + get("dead"))
    assert said_so_far(peer) == [], "the message is nowhere yet"
    assert [name for name, _ in peer.methods()] == ["basic.get-empty", "basic.get-ok"]


def test_a_get_behind_an_expired_head_answers_after_its_move_too(world: World) -> None:
    peer = opened(world)
    declared(peer, "dead")
    declared(peer, "source", DIES)
    peer.send(published("source", properties=TEN_MS) + published("source", b"stays"))
    world.time_ms += 20
    peer.session.receive(get("source"))
    assert said_so_far(peer) == []
    assert [name for name, _ in peer.methods()] == ["basic.get-ok"]
    assert counted(peer, "dead") == 1


def test_a_get_waits_for_the_number_of_its_message_to_be_reserved_on_disk(world: World) -> None:
    peer = opened(world)
    declared(peer, "q")
    world.journal.reserved_up_to = world.journal.ids_taken
    peer.session.receive(published("q") + get("q"))
    assert said_so_far(peer) == [], "a kill now, and its number could come again"
    assert [name for name, _ in peer.methods()] == ["basic.get-ok"]


def test_a_get_from_an_empty_queue_waits_for_nothing(world: World) -> None:
    peer = opened(world)
    declared(peer, "q")
    declared(peer, "other")
    peer.session.receive(published("other", properties=b"\x10\x00\x02"))
    assert world.journal.busy()
    peer.session.receive(get("q"))
    assert said_so_far(peer) == ["basic.get-empty"]


def test_a_get_comes_after_a_waiting_consumer_with_credit_only(world: World) -> None:
    peer, other = opened(world), opened(world)
    declared(peer, "q")
    other.call(1, "basic.qos", 0, 1, False)
    other.call(1, "basic.consume", 0, "q", "c", False, False, False, False, {})
    answers = peer.send(published("q", b"one") + get("q"))
    assert [name for name, _ in answers] == ["basic.get-empty"]
    answers = peer.send(published("q", b"two") + get("q"))
    assert [name for name, _ in answers] == ["basic.get-ok"], "the consumer has its hands full"
    assert [name for name, _ in other.methods()] == ["basic.deliver"]


def test_long_purges_that_come_at_once_are_done_one_after_the_other(world: World) -> None:
    peer = opened(world)
    for queue in ("q", "r"):
        declared(peer, queue)
        peer.send(published(queue) * (2 * STEP + 1))
    purges = [method_frame(1, "queue.purge", 0, queue, False) for queue in ("q", "r", "q")]
    answers = peer.send(b"".join(purges))
    while len(answers) < len(purges):
        world.loop.drain()
        answers += peer.methods()
    assert answers == [("queue.purge-ok", [2 * STEP + 1]), ("queue.purge-ok", [2 * STEP + 1]), ("queue.purge-ok", [0])]
    world.loop.drain()
    assert peer.methods() == [], "each is answered once"


# -- answers in order ----------------------------------------------------------------------------------------------------

#: What is answered without the disk, and its answer.
AT_ONCE: dict[str, tuple[tuple[Any, ...], str]] = {
    "basic.qos": ((0, 10, False), "basic.qos-ok"),
    "basic.consume": ((0, "here", "c", False, False, False, False, {}), "basic.consume-ok"),
    "basic.cancel": (("none", False), "basic.cancel-ok"),
    "basic.get": ((0, "empty", True), "basic.get-empty"),
    "basic.recover": ((True,), "basic.recover-ok"),
    "confirm.select": ((False,), "confirm.select-ok"),
    "tx.select": ((), "tx.select-ok"),
    "channel.flow": ((True,), "channel.flow-ok"),
    "access.request": (("/", False, True, True, True, True), "access.request-ok"),
    "channel.close": ((200, "bye", 0, 0), "channel.close-ok"),
    "queue.purge": ((0, "empty", False), "queue.purge-ok"),
    # An exception is said behind the answers too.
    "queue.delete": ((0, "here", True, True, False), "channel.close"),
}


@pytest.mark.parametrize("method", AT_ONCE)
def test_no_answer_overtakes_one_that_waits_for_the_disk(world: World, method: str) -> None:
    values, answer = AT_ONCE[method]
    peer = opened(world)
    declared(peer, "here")
    declared(peer, "empty")
    peer.send(published("here", b"one"))
    new = method_frame(1, "queue.declare", 0, "new", False, True, False, False, False, {})
    bound = method_frame(1, "queue.bind", 0, "new", "amq.topic", "a.b", False, {})
    peer.session.receive(new + bound + method_frame(1, method, *values) + method_frame(2, "channel.open", ""))
    assert set(said_so_far(peer)) <= {"channel.open-ok"}, "the queue is not on disk yet, which concerns no other channel"
    answers = [name for name, _ in peer.methods() if name != "channel.open-ok"]
    assert answers[:3] == ["queue.declare-ok", "queue.bind-ok", answer]


def test_deliveries_and_confirms_do_not_overtake_the_answer_that_they_follow(world: World) -> None:
    peer = opened(world)
    declared(peer, "q")
    peer.send(published("q"))
    frames = [
        method_frame(1, "queue.declare", 0, "new", False, True, False, False, False, {}),
        method_frame(1, "basic.consume", 0, "q", "c", False, False, False, False, {}),
        method_frame(1, "confirm.select", False),
        published("nowhere"),
    ]
    peer.session.receive(b"".join(frames))
    world.loop.drain()
    assert said_so_far(peer) == []
    answers = [name for name, _ in peer.methods()]
    world.loop.drain()
    answers += [name for name, _ in peer.methods()]
    assert answers[:2] == ["queue.declare-ok", "basic.consume-ok"]
    assert sorted(answers[2:]) == ["basic.ack", "basic.deliver", "confirm.select-ok"]
    assert answers.index("confirm.select-ok") < answers.index("basic.ack")


# -- deleted -------------------------------------------------------------------------------------------------------------


def test_if_empty_asks_for_what_is_not_out_with_consumers(world: World) -> None:
    peer = opened(world)
    declared(peer, "q")
    peer.send(published("q", b"out"))
    assert [name for name, _ in peer.call(1, "basic.get", 0, "q", False)] == ["basic.get-ok"]
    peer.send(published("q", b"here"))
    assert codes(peer.call(1, "queue.delete", 0, "q", False, True, False)) == [("channel.close", 406)]
    peer.call(1, "channel.close-ok")
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.purge", 0, "q", False)
    assert peer.call(1, "basic.get", 0, "q", False) == [("basic.get-empty", [""])]


def test_if_empty_minds_what_waits_for_its_time() -> None:
    world = World({"q": {"redelivery-delay": 5000}})
    peer = opened(world)
    declared(peer, "q")
    peer.send(published("q"))
    peer.call(1, "basic.get", 0, "q", False)
    assert peer.call(1, "basic.nack", 1, False, True) == []
    assert codes(peer.call(1, "queue.delete", 0, "q", False, True, False)) == [("channel.close", 406)]


def test_consumers_hear_of_a_deleted_queue_after_who_deleted_it(world: World) -> None:
    peer = Peer(world)
    peer.log_in()
    peer.session.notifies_cancels = True
    for channel in (1, 2):
        peer.call(channel, "channel.open", "")
    declared(peer, "q")
    for channel, tag in ((1, "one"), (2, "two")):
        peer.call(channel, "basic.consume", 0, "q", tag, False, False, False, False, {})
    answers = peer.call(1, "queue.delete", 0, "q", False, False, False)
    assert answers == [("queue.delete-ok", [0]), ("basic.cancel", ["one", True]), ("basic.cancel", ["two", True])]


# -- names ---------------------------------------------------------------------------------------------------------------


def test_a_name_with_colons_is_one_queue_for_everybody(world: World) -> None:
    inside.virtual_hosts(world.broker).add(BROKER, "shop")
    peer, shop = opened(world), Peer(world)
    shop.log_in(vhost="shop")
    shop.call(1, "channel.open", "")
    for each in (peer, shop):
        declared(each, "app::Work")
        assert codes(each.call(1, "queue.declare", 0, "::app", False, False, False, False, False, {})) == [("channel.close", 406)]
    client = world.client("native", lambda delivery: None)
    assert client.connection is not None
    for number, name in enumerate(("app::Work", "::shop.app::Work"), 1):
        assert inside.subscriptions(world.broker).subscribe(client.connection, number, name, ConsumerOptions()).queue.name == name
        assert inside.producers(world.broker).open(client.connection, number, name).address == name


def test_what_died_in_a_queue_with_colons_has_a_dead_letter_queue_ahead_of_time_too() -> None:
    world = World({})
    peer = opened(world)
    declared(peer, "app::Work")
    client = world.client("native", lambda delivery: None)
    assert client.connection is not None
    assert (
        inside.subscriptions(world.broker).subscribe(client.connection, 1, "DLQ.app::Work", ConsumerOptions()).queue.name == "DLQ.app::Work"
    )
    assert inside.subscriptions(world.broker).subscribe(client.connection, 2, "DLQ.app::Other", ConsumerOptions()).queue.name == "Other", (
        "address::queue, as ever"
    )
    peer.send(published("app::Work"))
    peer.call(1, "basic.get", 0, "app::Work", False)
    peer.call(1, "basic.nack", 1, False, False)
    assert len(client.held[1]) == 1


# -- direct replies ------------------------------------------------------------------------------------------------------


def test_direct_replies_may_be_consumed_again_and_leave_nothing_behind(world: World) -> None:
    peer = opened(world)
    before = len(inside.queues(world.broker))
    for tag in ("one", "two", "three"):
        assert peer.call(1, "basic.consume", 0, "amq.rabbitmq.reply-to", tag, False, True, False, False, {}) == [
            ("basic.consume-ok", [tag])
        ]
        peer.call(1, "basic.cancel", tag, False)
    assert len(inside.queues(world.broker)) == before
    ask = b"\x02\x00\x15amq.rabbitmq.reply-to"
    assert codes(peer.send(published("anywhere", properties=ask))) == [("channel.close", 406)]


def test_a_connection_that_ends_with_a_queue_of_its_own_has_nobody_look_at_all_others(world: World) -> None:
    """Else thousands that are lost at once hold up everybody: each would be looked at for each."""
    peers = [opened(world) for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.call(1, "queue.declare", 0, f"own-{number}", False, False, True, False, False, {})
        peer.call(1, "basic.consume", 0, f"own-{number}", "c", False, False, False, False, {})

    class Unseen(dict[str, Connection]):
        def values(self) -> NoReturn:
            raise AssertionError("all connections are looked at")

    inside.connections(world.broker).all = Unseen(inside.connections(world.broker).all)
    for number, peer in enumerate(peers):
        peer.session.lost()
        assert sorted(inside.queues(world.broker)) == [f"own-{each}" for each in range(number + 1, len(peers))]
    assert not inside.connections(world.broker).all


@pytest.mark.parametrize(("version", "count"), [("3.13.7", 8), ("4.1.0", 1)])
def test_deaths_that_a_program_sent_are_counted_on_as_the_announced_version_does(world: World, version: str, count: int) -> None:
    peer = Peer(world, goes_on=counts_sent_deaths(version))
    peer.log_in()
    peer.call(1, "channel.open", "")
    declared(peer, "dead")
    declared(peer, "source", DIES)
    sent = {"x-death": [{"count": 7, "reason": "rejected", "queue": "source"}]}
    peer.send(published("source", properties=write_properties(ContentProperties(headers=write_fields(sent)))))
    peer.call(1, "basic.get", 0, "source", False)
    peer.call(1, "basic.reject", 1, False)
    (reference,) = inside.queues(world.broker)["dead"].pending
    _, properties = wire_of(reference, False, peer.session.view)
    (death,) = headers_of(read_properties(properties))["x-death"]
    assert death["count"] == count


def test_a_binding_of_an_older_journal_which_tells_no_types_can_be_undone(world: World) -> None:
    """It kept a time as a number, which a time is compared by anyway."""
    peer = opened(world)
    declared(peer, "q")
    peer.call(1, "exchange.declare", 0, "x", "headers", False, True, False, False, False, {})
    exchanges = inside.virtual_hosts(world.broker).of_name("/").exchanges
    content = BindingContent(source="x", to="q", queue=True, key="", arguments={"at": 7})
    exchanges.restore([DeclarationRecord("binding", "as it was", cast(dict[str, Any], content))])
    at_seven = write_properties(ContentProperties(headers=write_fields({"at": Timestamp(7)})))
    peer.send(published("", properties=at_seven, exchange="x"))
    assert counted(peer, "q") == 1
    assert peer.call(1, "queue.unbind", 0, "q", "x", "", {"at": Timestamp(7)}) == [("queue.unbind-ok", [])]
    peer.send(published("", properties=at_seven, exchange="x"))
    assert counted(peer, "q") == 1


# -- arguments -----------------------------------------------------------------------------------------------------------


def consumed(peer: Peer, queue: str, tag: str, arguments: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    return [
        each for each in peer.call(1, "basic.consume", 0, queue, tag, False, False, False, False, arguments) if "basic.d" not in each[0]
    ]


@pytest.mark.parametrize(("of_queue", "of_consumer", "comes_back_ms"), [(None, 1000, 1000), (60_000, 1000, 1000), (1000, 60_000, 60_000)])
def test_the_timeout_of_a_consumer_goes_before_that_of_its_queue(
    world: World, of_queue: int | None, of_consumer: int, comes_back_ms: int
) -> None:
    peer = opened(world)
    declared(peer, "q", {} if of_queue is None else {"x-consumer-timeout": of_queue})
    assert consumed(peer, "q", "c", {"x-consumer-timeout": of_consumer}) == [("basic.consume-ok", ["c"])]
    peer.send(published("q", properties=b"\x10\x00\x02"))
    (reference,) = inside.queues(world.broker)["q"].references.values()
    began_ms = world.time_ms
    while not reference.failed:
        world.time_ms += 500
        world.loop.tick()
        assert world.time_ms < began_ms + 100_000
    assert comes_back_ms <= world.time_ms - began_ms <= comes_back_ms + 1000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-priority": "5"}, "'x-priority'"),
        ({"x-priority": True}, "'x-priority'"),
        ({"x-consumer-timeout": 0}, "'x-consumer-timeout'"),
        ({"x-consumer-timeout": "1s"}, "'x-consumer-timeout'"),
        ({"x-consumer-timeout": 1 << 60}, "'x-consumer-timeout'"),
        ({"x-stream-offset": "first"}, "'x-stream-offset'"),
        ({"x-stream-filter": "a"}, "'x-stream-filter'"),
        ({"x-stream-match-unfiltered": True}, "'x-stream-match-unfiltered'"),
    ],
)
def test_arguments_of_consumers_that_make_no_sense_here_are_refused(world: World, arguments: dict[str, Any], text: str) -> None:
    peer = opened(world)
    declared(peer, "q")
    ((answer, values),) = consumed(peer, "q", "c", arguments)
    assert (answer, values[0]) == ("channel.close", 406)
    assert values[1].startswith(f"PRECONDITION_FAILED - invalid arg {text} for queue 'q' in vhost '/'")


def test_arguments_without_effect_are_named_once_for_each_kind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "homing")
    peer = opened(world)
    for _ in range(2):
        declared(peer, "q", {"x-odd": 1})
        peer.call(
            1, "basic.consume", 0, "q", "", False, False, False, False, {"x-odd": 1, "x-cancel-on-ha-failover": True, "x-priority": 3}
        )
        peer.call(1, "exchange.declare", 0, "e", "fanout", False, False, False, False, False, {"x-odd": 1, "alternate-exchange": "a"})
    named = [record.getMessage().removesuffix(" has no effect here (docs/interoperability.md)") for record in caplog.records]
    assert [each for each in named if each.startswith("argument-ignored")] == [
        "argument-ignored: queue 'q' in vhost '/': the argument x-odd",
        "argument-ignored: a consumer of queue 'q' in vhost '/': the argument x-odd",
        "argument-ignored: a consumer of queue 'q' in vhost '/': the argument x-cancel-on-ha-failover",
        "argument-ignored: the exchange 'e' in vhost '/': the argument x-odd",
    ]
    (consumer, _) = inside.queues(world.broker)["q"].consumers
    assert (consumer.ignored, consumer.priority) == (("x-odd", "x-cancel-on-ha-failover"), 3)
