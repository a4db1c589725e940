"""When a queue that ``expires`` is deleted: to the millisecond, and from its last use on."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.core.settings.address_settings import AddressSettingsRepository
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_methods import opened, published
from tests.unit.test_amqp_session import Peer


class Life:
    """A broker with one queue ``q`` that expires after 100 ms."""

    def __init__(self) -> None:
        self.world = World({})
        self.peer = opened(self.world)
        self.declare()

    def declare(self, passive: bool = False) -> None:
        arguments: dict[str, Any] = {} if passive else {"x-expires": 100}
        ((answer, _),) = self.peer.call(1, "queue.declare", 0, "q", passive, True, False, False, False, arguments)
        assert answer == "queue.declare-ok"

    @property
    def there(self) -> bool:
        return "q" in inside.queues(self.world.broker)

    def passes(self, ms: int) -> None:
        """Time, as the loop would look at it: whenever the broker wants to be asked."""
        end_ms = self.world.time_ms + ms
        while self.world.time_ms < end_ms:
            self.world.time_ms = max(self.world.time_ms, min(end_ms, self.world.loop.next_ms()))
            self.world.loop.tick()

    def lasts(self, ms: int) -> None:
        """For so long from now it is there, and not a millisecond longer."""
        self.passes(ms - 1)
        assert self.there
        self.passes(1)
        assert not self.there


def test_a_queue_that_nobody_uses_is_gone_to_the_millisecond() -> None:
    Life().lasts(100)


@pytest.mark.parametrize("use", ["passive", "again", "get", "consumer"])
def test_every_use_is_the_last_one_from_which_time_counts(use: str) -> None:
    life = Life()
    for _ in range(5):
        life.passes(60)
        if use == "passive":
            life.declare(passive=True)
        elif use == "again":
            life.declare()
        elif use == "get":
            life.peer.call(1, "basic.get", 0, "q", True)
        else:
            life.peer.call(1, "basic.consume", 0, "q", "c", False, False, False, False, {})
            life.passes(1000)
            life.peer.call(1, "basic.cancel", "c", False)
    life.lasts(100)


def test_publishing_is_no_use_and_what_is_in_it_goes_too() -> None:
    life = Life()
    life.passes(60)
    life.peer.send(published("q"))
    life.lasts(40)
    life.world.check_balance()


@pytest.mark.parametrize("how", ["a closed channel", "a lost connection"])
def test_time_begins_when_a_consumer_goes_without_a_word(how: str) -> None:
    life = Life()
    other = opened(life.world)
    other.call(1, "basic.consume", 0, "q", "c", False, False, False, False, {})
    life.passes(5000)
    if how == "a closed channel":
        other.call(1, "channel.close", 200, "", 0, 0)
    else:
        other.session.lost()
    life.lasts(100)


def test_a_consumer_that_stands_by_is_a_use() -> None:
    life = Life()
    arguments = {"x-expires": 100, "x-single-active-consumer": True}
    life.peer.call(1, "queue.declare", 0, "single", False, True, False, False, False, arguments)
    for tag in ("one", "two"):
        life.peer.call(1, "basic.consume", 0, "single", tag, False, False, False, False, {})
    life.peer.call(1, "basic.cancel", "one", False)
    life.passes(1000)
    assert "single" in inside.queues(life.world.broker)


def test_what_a_native_producer_names_is_left_alone() -> None:
    life = Life()
    client = life.world.client("native", lambda delivery: None)
    assert client.connection is not None
    inside.producers(life.world.broker).open(client.connection, 1, "q")
    life.passes(5000)
    assert life.there
    inside.producers(life.world.broker).close(client.connection, 1)
    life.passes(2000)
    assert not life.there


def test_after_a_start_and_after_new_settings_time_begins_anew() -> None:
    life = Life()
    life.passes(60)
    life.world.commit()
    life.world.crash()
    assert life.there
    life.lasts(100)

    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
    life.world = world
    life.passes(60_000)
    inside.apply_settings(world.broker, AddressSettingsRepository({"q": {"expires": 250}}))
    life.lasts(250)


def test_queues_that_are_deleted_before_their_time_leave_nothing_behind() -> None:
    """In the order of time they stand behind one that is looked at before them."""
    life = Life()
    queues = inside.queues(life.world.broker)
    life.peer.call(1, "queue.declare", 0, "long", False, True, False, False, False, {"x-expires": 1_000_000})
    long, idle = queues["long"], inside.resources(life.world.broker).idle
    for _ in range(5000):
        idle.forget(long)
        idle.watch(long)
    assert len(idle._heap) < 2000
    life.lasts(100)
    life.passes(1_000_000)
    assert not queues
