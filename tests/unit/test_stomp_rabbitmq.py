"""What programs of RabbitMQ's STOMP plugin expect of a session."""

from __future__ import annotations

import pytest

from homing.broker.protocols.stomp.codec import frame
from tests import inside
from tests.model.world import World
from tests.unit.test_stomp_session import Peer, bodies, counts


@pytest.fixture
def world() -> World:
    return World({"#": {"redelivery-delay": 0}})


def test_what_goes_through_an_exchange_says_so_and_is_for_whoever_bound_it(world: World) -> None:
    peer, other = Peer(world).log_in(), Peer(world).log_in()
    peer.call("SUBSCRIBE", id="e", destination="/exchange/amq.topic/orders.*.a%2Fb")
    other.call("SUBSCRIBE", id="f", destination="/exchange/amq.headers", ack="client")
    for number, destination in enumerate(["amq.topic/orders.eu.a%2Fb", "amq.topic/orders.eu", "amq.fanout"]):
        said = peer.call("SEND", b"%d" % number, destination=f"/exchange/{destination}", receipt="r", n="1")
        assert peer.receipts(said) == ["r"]
        assert [told["destination"] for command, told, _ in said if command == "MESSAGE"] == [f"/exchange/{destination}"][number:]
    peer.call("BEGIN", transaction="t")
    peer.call("SEND", b"later", destination="/exchange/amq.topic/orders.us.a%2Fb,/queue/b", transaction="t")
    assert peer.frames() == []
    ((_, told, body),) = peer.call("COMMIT", transaction="t")
    assert (told["destination"], body, counts(world, "b")) == ("/exchange/amq.topic/orders.us.a%2Fb", b"later", (1, 0))
    peer.call("SEND", b"x", destination="/exchange/amq.headers/any", n="1")
    assert [told["n"] for _, told, _ in other.frames()] == ["1"], "it is bound without a condition"
    later = frame("SEND", [("destination", "/exchange/amq.topic/orders.x.a%2Fb"), ("AMQ_SCHEDULED_DELAY", "1000")], b"1 s", "1.2")
    assert peer.send(later) == []
    world.time_ms += 1000
    world.turn()
    assert bodies(peer.frames()) == [b"1 s"]
    for each in (peer, other):
        each.call("DISCONNECT")
    assert [*inside.queues(world.broker)] == ["b"]
    for command in ("SEND", "SUBSCRIBE"):
        for destination in ("/exchange/none/a", "/exchange//a", "/exchange/amq.topic/a/b"):
            assert Peer(world).log_in().call(command, id="s", destination=destination)[0][0] == "ERROR"


@pytest.mark.parametrize(("overflow", "receipts"), [("reject-publish", ["1"]), ("block", ["1", "2"])])
def test_a_queue_that_an_exchange_leads_to_may_be_full(overflow: str, receipts: list[str]) -> None:
    peer = Peer(World({"a": {"max-length": 1, "overflow": overflow}})).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/exchange/amq.fanout", x_queue_name="a", auto_delete="false")
    peer.call("UNSUBSCRIBE", id="s")
    sends = [frame("SEND", [("destination", "/exchange/amq.fanout"), ("receipt", number)], b"x") for number in "123"]
    # Two that are read together, then another.
    said = peer.send(b"".join(sends[:2])) + peer.send(sends[2])
    assert (peer.receipts(said), peer.ended, peer.reading) == (receipts, overflow != "block", overflow != "block")


def test_topics_may_be_keys_of_the_exchange_that_rabbitmq_has_for_them(world: World) -> None:
    peer = Peer(world, topics="amq.topic").log_in()
    peer.call("SUBSCRIBE", id="s", destination="/topic/news.#")
    ((_, told, _),) = peer.call("SEND", b"x", destination="/topic/news.eu")
    assert told["destination"] == "/topic/news.eu"
    durable = {"id": "d", "destination": "/topic/news.*", "durable": "true", "auto_delete": "false"}
    peer.call("SUBSCRIBE", **durable)
    (name,) = (each for each in inside.queues(world.broker) if each.startswith("stomp-subscription-"))
    peer.call("DISCONNECT")
    assert [*inside.queues(world.broker)] == [name]
    peer = Peer(world, topics="amq.topic").log_in()
    assert peer.call("SEND", b"kept", destination="/topic/news.us", persistent="true") == []
    assert bodies(peer.call("SUBSCRIBE", **durable)) == [b"kept"]
    assert peer.receipts(peer.call("UNSUBSCRIBE", id="d", durable="true", auto_delete="false", receipt="r")) == ["r"]
    assert not inside.queues(world.broker)


def test_answers_come_without_a_subscription_as_with_rabbitmq(world: World) -> None:
    asker, worker = Peer(world, topics="amq.topic").log_in(), Peer(world).log_in()
    worker.call("SUBSCRIBE", id="s", destination="/queue/asked")
    for _ in range(2):
        asker.call("SEND", b"?", destination="/queue/asked", reply_to="/temp-queue/mine")
    for _, asked, _ in worker.frames():
        worker.call("SEND", b"!", destination=asked["reply-to"])
    assert [(headers["subscription"], body) for _, headers, body in asker.frames()] == [("/temp-queue/mine", b"!")] * 2
    asker.call("SUBSCRIBE", id="own", destination="/temp-queue/other")
    asker.call("SEND", b"?", destination="/queue/asked", reply_to="/temp-queue/other")
    ((_, asked, _),) = worker.frames()
    worker.call("SEND", b"!", destination=asked["reply-to"])
    assert [headers["subscription"] for _, headers, _ in asker.frames()] == ["own"]


def test_a_message_lives_as_long_as_rabbitmq_s_programs_say(world: World) -> None:
    peer = Peer(world).log_in()
    peer.call("SEND", b"x", destination="/queue/a", expiration="1000")
    (reference,) = inside.queues(world.broker)["a"].references.values()
    assert (reference.expires_at_ms, reference.message.properties) == (world.time_ms + 1000, None)
    for wrong in ("soon", "-1"):
        assert Peer(world).log_in().call("SEND", destination="/queue/a", expiration=wrong)[0][0] == "ERROR"


def test_a_queue_may_be_declared_as_rabbitmq_s_programs_do(world: World) -> None:
    peer = Peer(world).log_in()
    arguments = {"x_max_length": "2", "x_overflow": "reject-publish", "x_message_ttl": "500", "x_max_priority": "3"}
    arguments |= {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead", "x_expires": "60000", "x_max_length_bytes": "1000"}
    peer.call("SUBSCRIBE", id="s", destination="/queue/a", x_queue_type="classic", auto_delete="true", durable="false", **arguments)
    queue = inside.queues(world.broker)["a"]
    declared = {"durable": False, "auto_delete": True, "exclusive": False}
    wanted = {name.replace("_", "-"): int(value) if value.isdigit() else value for name, value in arguments.items()}
    assert queue.options["amqp"] == {"arguments": wanted | {"x-queue-type": "classic"}, **declared}
    ((command, told, _),) = Peer(world).log_in().call("SUBSCRIBE", id="s", destination="/queue/a", x_max_length="3")
    assert (command, "inequivalent arg" in told["message"]) == ("ERROR", True)
    assert Peer(world).log_in().call("SUBSCRIBE", id="s", destination="/queue/b", x_max_length="many")[0][0] == "ERROR"
    peer.call("UNSUBSCRIBE", id="s")
    assert not inside.queues(world.broker)
