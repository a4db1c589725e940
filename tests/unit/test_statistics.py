"""Counts and rates of queues, looked at in rounds, a part of them in each turn."""

from __future__ import annotations

import pytest

from homing.broker.core.counts import SENT
from homing.broker.management import statistics
from homing.broker.management.statistics import SAMPLE_MS, Meter
from homing.broker.steps import at_once
from tests import inside
from tests.model.world import ANYBODY, World


def test_rates_are_of_the_last_two_rounds() -> None:
    world = World({})
    meter = Meter(world.broker)
    queue = world.broker.resources.declare(ANYBODY, {"queue": "a"})
    for _ in range(10):
        world.time_ms += 1000
        queue.counts[SENT] += 100
        meter.sample()
    assert meter.of(queue)["sent"] == 1000
    assert meter.of(queue)["rates"]["sent"] == 100.0
    for _ in range(3 * SAMPLE_MS // 1000):
        world.time_ms += 1000
        meter.sample()
    everywhere = at_once(meter.messages_in_steps())
    assert (meter.of(queue)["sent"], meter.of(queue)["rates"]["sent"], everywhere["rates"]["sent"]) == (1000, 0.0, 0.0)


def test_what_deleted_queues_counted_stays_in_the_sum_however_far_a_round_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({})
    meter = Meter(world.broker)
    queues = [world.broker.resources.declare(ANYBODY, {"queue": f"q{number}"}) for number in range(5)]
    monkeypatch.setattr(statistics, "_AT_A_TIME", 2)
    for turn in range(12):
        world.time_ms += 1000
        for queue in queues:
            queue.counts[SENT] += 1
        if turn == 6:
            inside.removal(world.broker).delete(ANYBODY, queues.pop())
        meter.sample()
    assert at_once(meter.messages_in_steps())["sent"] == 7 + 4 * 12
