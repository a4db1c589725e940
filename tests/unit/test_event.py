"""How many events there are: of a fault that grows, of a storm, of a disk that is low."""

from __future__ import annotations

import json
from string import Formatter

from homing.broker.auth.access import BROKER
from homing.broker.core.event import DISK_LOW, FAULT_NEW, KINDS, QUEUE_FULL, WINDOW_MS, Rates, describe
from homing.broker.core.fault import FaultGroup
from homing.broker.core.reserved import EVENTS
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from tests import inside
from tests.model.world import World

HOUR_MS = 3_600_000


def test_a_fault_that_grows_is_told_of_at_powers_of_ten_within_an_hour() -> None:
    group = FaultGroup(2, "2-ab", "orders", "KeyError", "x", 0, 0)
    assert [group.grown(1, 5) for _ in range(11)] == [0] * 9 + [10, 0]
    assert group.grown(5_000, 6) == 1_000
    assert group.grown(4_989, 7) == 10_000
    assert group.grown(9, HOUR_MS) == 0
    assert group.grown(1, HOUR_MS) == 10


def test_a_queue_has_so_many_of_a_kind_in_ten_minutes() -> None:
    rates = Rates()
    assert [rates.allow(QUEUE_FULL, "orders", 0), rates.allow(QUEUE_FULL, "orders", WINDOW_MS - 1)] == [True, False]
    assert rates.allow(QUEUE_FULL, "others", 1)
    assert rates.allow(QUEUE_FULL, "orders", WINDOW_MS)
    assert sum(rates.allow(FAULT_NEW, "orders", 1) for _ in range(50)) == 10


def test_each_kind_says_what_it_means_and_what_to_do() -> None:
    for name, kind in KINDS.items():
        fields = {fact: f"a {fact}'s" for text in (kind.meaning, kind.command) for _, fact, _, _ in Formatter().parse(text) if fact}
        said = describe(name, fields)
        assert all(fact in said["meaning"] or fact in said["command"] for fact in fields.values() if fact in kind.meaning)
        assert said["command"].startswith("homing ")
    assert describe(QUEUE_FULL, {"queue": "it's", "number": 1})["command"] == "homing consumers 'it'\"'\"'s'"


def test_a_disk_that_is_low_is_told_of_when_it_becomes_so() -> None:
    world = World({})
    events = inside.events(world.broker)
    events.disk(False)
    assert events.describe()[DISK_LOW] == {"made": 0, "left_out": 0}
    inside.resources(world.broker).declare(BROKER, {"queue": "watch", "address": EVENTS, "routing_type": "multicast"})
    for low in (True, True, False, True):
        events.disk(low)
    world.loop.drain()
    world.commit()
    (reference,) = inside.queues(world.broker)["watch"].references.values()
    assert json.loads(reference.message.body)["meaning"] == KINDS[DISK_LOW].meaning
    assert events.describe()[DISK_LOW] == {"made": 1, "left_out": 1}


def test_events_give_way_to_newer_ones_unless_somebody_says_otherwise() -> None:
    settings = AddressSettingsRepository({"#": {"overflow": "block", "max-length": 7}}).resolve(EVENTS)
    assert (settings.overflow, settings.max_length, settings.dead_letter_address) == ("drop-head", 10_000, None)
    named = AddressSettingsRepository({EVENTS: {"max-length": 5}})
    assert (named.resolve(EVENTS).max_length, named.resolve(EVENTS).overflow) == (5, "drop-head")
    assert (named.origin(EVENTS, "max_length"), named.origin(EVENTS, "overflow")) == (EVENTS, "default")
