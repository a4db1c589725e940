"""What is parked goes on as soon as there is a place for it, outlives its queue, and is told of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.amqp.policy import Policy
from homing.broker.core.event import KINDS, PARKED, QUEUE_STAYS
from homing.broker.core.patterns import pattern_of
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from homing.broker.process.keeping import move_out_of_transient
from homing.broker.steps import at_once
from tests import inside
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_methods import TEN_MS, published
from tests.unit.test_amqp_session import Peer

DURABLE = b"\x10\x00\x02"


class Life:
    def __init__(self, settings: dict[str, dict[str, Any]] | None = None) -> None:
        self.world = World({"#": {}, **(settings or {})})
        self.broker = self.world.broker
        self.peer = self.connect()

    def connect(self) -> Peer:
        peer = Peer(self.world)
        peer.log_in()
        peer.call(1, "channel.open", "")
        return peer

    def declare(self, name: str, exclusive: bool = False, auto_delete: bool = False, **arguments: Any) -> int:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        passive = name in inside.queues(self.broker) and not given
        ((_, values),) = self.peer.call(1, "queue.declare", 0, name, passive, True, exclusive, auto_delete, False, given)
        return int(values[1])

    def die(self, queue: str, number: int = 1) -> None:
        for _ in range(number):
            self.peer.send(published(queue, queue.encode(), DURABLE))
            answers = self.peer.call(1, "basic.get", 0, queue, False)
            self.peer.call(1, "basic.reject", answers[0][1][0], False)
        self.world.turn()
        self.world.commit()

    def passes(self, ms: int) -> None:
        self.world.time_ms += ms
        self.world.loop.tick()
        self.world.turn()
        self.world.commit()

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Of each queue what is in it, and of that what is parked."""
        return {name: (queue.count, len(queue.parked)) for name, queue in sorted(inside.queues(self.broker).items())}

    def made(self, *kinds: str) -> list[int]:
        return [inside.events(self.broker).made[kind] for kind in kinds]


# -- as soon as there is room ----------------------------------------------------------------------------------------------


def got(life: Life) -> None:
    life.peer.call(1, "basic.get", 0, "dead", False)


def consumed(life: Life) -> None:
    life.peer.call(1, "basic.consume", 0, "dead", "c", False, True, False, False, {})


def purged(life: Life) -> None:
    life.peer.call(1, "queue.purge", 0, "dead", False)


def deleted_by_hand(life: Life) -> None:
    first = next(iter(inside.queues(life.broker)["dead"].references.values()))
    assert at_once(life.broker.hand.delete(ANYBODY, [first]))


def moved_by_hand(life: Life) -> None:
    inside.resources(life.broker).declare(BROKER, {"queue": "aside"})
    first = next(iter(inside.queues(life.broker)["dead"].references.values()))
    assert at_once(life.broker.hand.move(ANYBODY, first, inside.queues(life.broker)["aside"]))


def expired(life: Life) -> None:
    life.passes(20)


@pytest.mark.parametrize("way", [got, consumed, purged, deleted_by_hand, moved_by_hand, expired])
def test_it_goes_on_at_once_when_there_is_room(way: Callable[[Life], None]) -> None:
    life = Life()
    life.declare("dead", max_length=1, overflow="reject-publish")
    life.declare("work", dead_letter_exchange="", dead_letter_routing_key="dead")
    life.peer.send(published("dead", b"in the way", TEN_MS if way is expired else DURABLE))
    life.die("work", 3)
    assert life.counts["work"] == (3, 3)
    way(life)
    life.world.turn()
    life.world.commit()
    # One took the place of what was in the way; where a consumer takes whatever comes, all did.
    assert life.counts["work"] == ((0, 0) if way is consumed else (2, 2))
    life.world.check_balance()


def test_those_that_wait_go_in_order_and_as_many_as_there_is_room_for() -> None:
    life = Life()
    life.declare("dead", max_length=2, overflow="reject-publish")
    life.declare("work", dead_letter_exchange="", dead_letter_routing_key="dead")
    life.die("work", 7)
    order = [reference.message.message_id for reference in inside.queues(life.broker)["work"].references.values()]
    found: list[int] = []
    for _ in range(4):
        life.passes(40_000)  # and the round that looks at all of them changes nothing
        there = [each.message.message_id for each in inside.queues(life.broker)["dead"].references.values()]
        found += there
        purged(life)
        life.world.turn()
        life.world.commit()
    assert found[2:] == order
    assert life.counts["work"] == (0, 0)


# -- the end of its queue --------------------------------------------------------------------------------------------------


def by_argument(life: Life) -> None:
    life.declare("q", dead_letter_exchange="later", expires=3_000)
    life.die("q")
    life.passes(3_500)


def a_delay_queue(life: Life) -> None:
    life.declare("q", dead_letter_exchange="later", expires=3_000, message_ttl=200)
    life.peer.send(published("q", b"x", DURABLE))
    life.passes(300)
    assert life.counts["q"] == (1, 1)
    life.passes(3_500)


def by_policy(life: Life) -> None:
    life.declare("q", dead_letter_exchange="later")
    life.die("q")
    inside.set_policy(life.broker, Policy("p", "/", pattern_of("^q$"), "queues", 0, {"expires": 2_000}))
    life.passes(2_500)


def by_setting(life: Life) -> None:
    life.declare("q", dead_letter_exchange="later")
    life.die("q")
    inside.apply_settings(life.broker, AddressSettingsRepository({"q": {"expires": 2_000}}))
    life.passes(2_500)


def auto_deleted(life: Life) -> None:
    life.declare("q", auto_delete=True, dead_letter_exchange="later")
    life.die("q")
    consumer = life.connect()
    consumer.call(1, "basic.consume", 0, "q", "c", False, False, False, False, {})
    consumer.session.lost()


def with_its_connection(life: Life) -> None:
    life.declare("q", exclusive=True, dead_letter_exchange="later")
    life.die("q")
    life.peer.session.lost()


def with_the_broker(life: Life) -> None:
    life.declare("q", exclusive=True, dead_letter_exchange="later")
    life.die("q")
    move_out_of_transient(life.broker)
    life.world.commit()
    life.world.crash()
    life.broker = life.world.broker
    inside.events(life.broker).made[PARKED] += 1


@pytest.mark.parametrize(
    ("way", "there"),
    [
        *((way, "DLQ.q") for way in (by_argument, a_delay_queue, by_policy, by_setting)),
        *((way, "DLQ.temporary") for way in (auto_deleted, with_its_connection, with_the_broker)),
    ],
)
def test_it_moves_to_the_dead_letters_where_its_queue_ends(way: Callable[[Life], None], there: str) -> None:
    life = Life()
    way(life)
    life.world.commit()
    assert life.counts == {there: (1, 0)}
    assert life.made(PARKED, QUEUE_STAYS) == [1, 0]
    life.world.check_balance()
    life.world.crash()
    assert {name: queue.count for name, queue in inside.queues(life.world.broker).items()} == {there: 1}


@pytest.mark.parametrize("way", [by_argument, by_setting, auto_deleted, with_its_connection])
def test_only_where_it_has_nowhere_to_go_the_queue_stays(way: Callable[[Life], None]) -> None:
    nowhere: dict[str, dict[str, Any]] = {"#": {"dead-letter-address": None}, "q": {"dead-letter-address": None, "expires": 2_000}}
    life = Life({"#": nowhere["#"]})
    if way is by_setting:
        life.declare("q", dead_letter_exchange="later")
        life.die("q")
        inside.apply_settings(life.broker, AddressSettingsRepository(nowhere))
        life.passes(2_500)
    else:
        way(life)
    for _ in range(5):
        life.passes(10_000)
    assert life.counts == {"q": (1, 1)}
    assert life.made(QUEUE_STAYS) == [1]
    assert inside.statistics(life.broker).figures().queues_staying == 1
    inside.apply_settings(life.broker, AddressSettingsRepository({"#": {}}))
    if way is by_setting:
        assert life.counts == {"q": (1, 1)}, "it is not to end any more"
        life.passes(2_000)
        assert inside.statistics(life.broker).figures().queues_staying == 0
        return
    life.passes(2_000)
    assert sum(count for count, _ in life.counts.values()) == 1
    assert "q" not in life.counts
    assert inside.statistics(life.broker).figures().queues_staying == 0


def test_who_uses_it_again_has_it_back() -> None:
    life = Life({"#": {"dead-letter-address": None}})
    by_argument(life)
    life.peer.call(1, "basic.consume", 0, "q", "c", False, False, False, False, {})
    life.passes(2_000)
    assert inside.statistics(life.broker).figures().queues_staying == 0
    life.peer.call(1, "basic.cancel", "c", False)
    life.passes(2_000)
    assert (life.counts, inside.statistics(life.broker).figures().queues_staying) == ({"q": (1, 1)}, 0)
    life.passes(2_000)
    assert inside.statistics(life.broker).figures().queues_staying == 1


# -- told of ---------------------------------------------------------------------------------------------------------------


def test_amqp_counts_it_and_who_deletes_the_queue_hears_how_many_went() -> None:
    life = Life()
    life.declare("q", dead_letter_exchange="later")
    life.die("q", 2)
    assert life.declare("q") == 2
    ((name, values),) = life.peer.call(1, "queue.delete", 0, "q", False, False, False)
    assert (name, values[0]) == ("queue.delete-ok", 2)


def test_the_log_says_it_at_once_and_then_once_a_minute_as_of_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.declare("q", dead_letter_exchange="later")
    life.declare("other")
    told = []
    for _ in range(3):
        caplog.clear()
        for queue in ("q", "other"):
            life.die(queue, 3)
        life.passes(30_000)
        told.append(re.findall(r"^(parked|dead-letters): queue \S+: (\d+) ", "\n".join(caplog.messages), re.MULTILINE))
    assert told == [[("parked", number), ("dead-letters", number)] for number in "15"] + [[]]


@pytest.mark.parametrize(
    ("arguments", "settings", "why"),
    [
        ({"dead_letter_exchange": "later"}, {}, "its dead-letter exchange 'later' is not there"),
        (
            {"dead_letter_exchange": "amq.direct", "dead_letter_routing_key": "key"},
            {},
            "its dead-letter exchange 'amq.direct' leads to no queue with routing key 'key'",
        ),
        ({"dead_letter_exchange": "", "dead_letter_routing_key": "full"}, {}, "full is full"),
        ({}, {"dead-letter-address": None}, "it has no dead-letter-address (set one in address-settings)"),
        ({}, {"dead-letter-address": "q"}, "it takes dead letters itself"),
        ({}, {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": False}, "no queue of address DLA takes them"),
    ],
)
def test_an_event_says_why(arguments: dict[str, Any], settings: dict[str, Any], why: str) -> None:
    life = Life({"#": settings})
    life.declare("full", max_length=0, overflow="reject-publish")
    life.declare("q", **arguments)
    life.world.commit()
    inside.events(life.broker).waiting.clear()
    inside.resources(life.broker).declare(BROKER, {"queue": "watch", "address": "homing.events", "routing_type": "multicast"})
    life.die("q")
    (event,) = [content for name, content in _events(life) if name == PARKED]
    assert (event["queue"], event["number"], event["why"]) == ("q", 1, why)
    assert event["command"] == "homing explain q"
    assert KINDS[PARKED].meaning.format_map(event) == event["meaning"]


def _events(life: Life) -> list[tuple[str, dict[str, Any]]]:
    bodies = [json.loads(each.message.body) for each in inside.queues(life.broker)["watch"].references.values()]
    return [(each["event"], each) for each in bodies]
