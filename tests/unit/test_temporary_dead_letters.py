"""Dead letters of queues that come and go: they share a queue, and nothing of any of them is left but that."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.amqp.vhost import local_name, prefix_of
from homing.broker.core.consumer import ConsumerOptions
from homing.broker.core.dead_letter import Target
from tests import inside
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_methods import TEN_MS, published
from tests.unit.test_amqp_session import Peer

EXPIRY = {"expiry-address": "EXP", "auto-create-expiry-resources": True}


class Life:
    def __init__(self, settings: dict[str, Any], vhost: str = "/", more: dict[str, dict[str, Any]] | None = None) -> None:
        self.world = World({"#": settings, **(more or {})})
        if vhost != "/":
            inside.virtual_hosts(self.world.broker).add(BROKER, vhost)
        self.peer = Peer(self.world)
        self.peer.log_in(vhost=vhost)
        self.peer.call(1, "channel.open", "")

    def declare(self, name: str, exclusive: bool = False, auto_delete: bool = False) -> str:
        ((_, values),) = self.peer.call(1, "queue.declare", 0, name, False, False, exclusive, auto_delete, False, {})
        return str(values[0])

    def die(self, queue: str) -> None:
        """One message is published, got and rejected."""
        self.peer.send(published(queue, queue.encode()))
        answers = self.peer.call(1, "basic.get", 0, queue, False)
        assert answers[0][0] == "basic.get-ok"
        self.peer.call(1, "basic.reject", answers[0][1][0], False)

    @property
    def dead(self) -> dict[str, int]:
        queues = inside.queues(self.world.broker)
        named = {name: queue.count for name, queue in queues.items() if not name.startswith("amq.gen-")}
        return {name: count for name, count in named.items() if "DLQ" in name or "EXP" in name or "dead" in name}


@pytest.mark.parametrize("kind", ["exclusive", "auto-deleted", "server-named"])
def test_queues_that_come_and_go_share_one_for_their_dead_letters(kind: str) -> None:
    life = Life({})
    names = ["" if kind == "server-named" else f"q{number}" for number in range(5)]
    for name in names:
        life.die(life.declare(name, exclusive=kind == "exclusive", auto_delete=kind == "auto-deleted"))
    assert life.dead == {"DLQ.temporary": 5}
    life.world.check_balance()


def test_every_other_queue_has_its_own() -> None:
    life = Life({})
    life.die(life.declare("stays"))
    life.die(life.declare("goes", auto_delete=True))
    assert life.dead == {"DLQ.stays": 1, "DLQ.temporary": 1}


def test_expired_messages_too_and_in_each_virtual_host() -> None:
    life = Life(EXPIRY, vhost="shop")
    name = life.declare("goes", exclusive=True)
    life.die(name)
    life.peer.send(published(name, properties=TEN_MS))
    life.world.time_ms += 20
    life.world.turn()
    life.world.commit()
    assert life.dead == {"::shop.DLQ.temporary": 1, "::shop.EXP.temporary": 1}


def test_the_name_is_a_setting_and_none_gives_each_its_own() -> None:
    suffixed = {"dead-letter-queue-prefix": "", "dead-letter-queue-suffix": ".dead", "temporary-dead-letter-queue": "gone"}
    life = Life({"temporary-dead-letter-queue": None}, more={"other.#": suffixed, "third.#": {"temporary-dead-letter-queue": "third"}})
    for name in ("own", "other.a", "other.b", "third.a"):
        life.die(life.declare(name, exclusive=True))
    assert life.dead == {"DLQ.own": 1, "gone.dead": 2, "DLQ.third": 1}


@pytest.mark.parametrize("first", ["temporary", "goes"])
def test_an_address_that_is_called_temporary_dies_there_too(first: str) -> None:
    life = Life({})
    life.declare("temporary")
    life.declare("goes", exclusive=True)
    for name in (first, "goes", "temporary"):
        life.die(name)
    assert life.dead == {"DLQ.temporary": 3}


def test_one_that_was_made_ahead_for_a_temporary_queue_takes_its_dead_letters_and_nothing_comes_twice() -> None:
    life = Life({})
    client = life.world.client("native", lambda delivery: None)
    assert client.connection is not None
    for number, name in enumerate(("DLQ.goes", "DLQ.temporary"), 1):
        inside.subscriptions(life.world.broker).subscribe(client.connection, number, name, ConsumerOptions())
    life.declare("other", exclusive=True)
    life.declare("goes", exclusive=True)
    life.die("goes")
    life.die("other")
    assert {number: [each.key for each in held.values()] for number, held in client.held.items()} == {1: ["goes"], 2: ["other"]}


def test_what_the_shared_queue_holds_outlives_a_crash_and_goes_home() -> None:
    life = Life({})
    ((_, values),) = life.peer.call(1, "queue.declare", 0, "goes", False, True, False, True, False, {})
    life.peer.send(published(str(values[0]), b"goes", b"\x10\x00\x02"))
    life.peer.call(1, "basic.get", 0, "goes", False)
    life.peer.call(1, "basic.reject", 1, False)
    life.world.commit()
    life.world.crash()
    broker = life.world.broker
    (dead,) = [queue for queue in inside.queues(broker).values() if queue.name == "DLQ.temporary"]
    assert dead.count == 1
    assert dead.selector is not None
    (reference,) = dead.pending
    assert dead.selector.matches(reference.lookup())
    assert life.world.run(inside.redriving(broker).at_once(ANYBODY, dead, None)) == 1
    life.world.commit()
    assert (dead.count, inside.queues(broker)["goes"].count) == (0, 1)


@pytest.mark.parametrize("vhost", ["/", "shop"])
def test_a_name_that_would_be_too_long_for_amqp_is_cut(vhost: str) -> None:
    """Two sources of 255 bytes differ in their ends; each has a dead-letter queue of its own that AMQP can name."""
    life = Life({}, vhost)
    one, other = "é" * 127 + "1", "é" * 127 + "2"
    for source in (one, other):
        life.die(life.declare(source))
    life.die(one)
    assert sorted(life.dead.values()) == [1, 2]
    names = [local_name(name) for name in life.dead]
    assert [len(name.encode()) for name in names] == [255, 255]
    assert all(name.startswith("DLQ." + "é" * 117 + "~") for name in names), names
    gets = [life.peer.call(1, "basic.get", 0, name, True)[0] for name in names]
    assert [name for name, _ in gets] == ["basic.get-ok"] * 2
    assert {_source(life, name) for name in names} == {prefix_of(vhost) + one, prefix_of(vhost) + other}
    life.world.check_balance()


def _source(life: Life, name: str) -> str:
    """The source that the selector of the dead-letter queue asks for."""
    queues = inside.queues(life.world.broker)
    queue = next(queue for full, queue in queues.items() if local_name(full) == name)
    assert queue.selector is not None
    return queue.selector.text.removeprefix("_AMQ_ORIG_ADDRESS = '").removesuffix("'")


def test_who_waits_at_a_shortened_name_before_the_first_death_gets_what_dies() -> None:
    life = Life({})
    source = life.declare("s" * 255)
    (target,) = inside.explanations(life.world.broker).of(source).dead_letter_queues
    assert len(target) == 255
    made = inside.resources(life.world.broker).queue_for_consumer(target)
    life.die(source)
    assert (made.name, made.count, life.dead) == (target, 1, {target: 1})


def test_one_that_was_made_under_the_full_name_goes_on_taking_them() -> None:
    """As older journals have it."""
    life = Life({})
    source = life.declare("s" * 255)
    full = "DLQ." + source
    inside.resources(life.world.broker).make_dead_letter_queue(full, Target("DLA", full, source))
    life.die(source)
    assert life.dead == {full: 1}
    assert inside.explanations(life.world.broker).of(source).dead_letter_queues == [full]
