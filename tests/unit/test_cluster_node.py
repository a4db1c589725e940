"""What a node of a cluster reckons: how far it is behind, and by how much its clock is off."""

from __future__ import annotations

import pytest

from homing.broker.process.cluster.view import Lag, clock_off_ms


@pytest.mark.parametrize(("asked_ms", "there_ms", "answered_ms", "off_ms"), [(5, 5, 9, 0), (5, 9, 9, 0), (5, 3, 9, 2), (5, 12, 9, -3)])
def test_a_clock_is_off_by_what_cannot_be_the_way_to_it(asked_ms: int, there_ms: int, answered_ms: int, off_ms: int) -> None:
    assert clock_off_ms(asked_ms, there_ms, answered_ms) == off_ms


def test_a_node_that_keeps_up_is_behind_by_what_came_since_it_looked_and_one_that_does_not_by_all_the_time_since() -> None:
    now_s = 0
    lag = Lag(lambda: now_s)
    for now_s in range(1, 5):  # ten entries a second, of which it has all that it saw a second before
        lag.saw(10 * now_s, 10 * (now_s - 1))
    assert lag.ms == 1000
    now_s = 5
    lag.saw(50, 30)
    now_s = 9
    lag.saw(60, 30)
    assert lag.ms == 6000
    now_s = 10
    lag.saw(60, 60)
    assert lag.ms == 0
