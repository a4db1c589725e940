"""The time that a report speaks of."""

from __future__ import annotations

from typing import Any

import pytest

from homing.analytics.errors import AnalyticsError
from homing.analytics.input.taken import Taken, covered_from, latest_of
from homing.analytics.input.window import Window

MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("exports", "begins"),
    [
        pytest.param([("a", 9, None), ("b", 9, None)], {}, id="nothing is gone"),
        pytest.param([("a", 9, 3)], {"a": 3}, id="a part is gone"),
        pytest.param([("a", 9, 5), ("a", 6, 2)], {"a": 2}, id="an earlier export reaches to where the later begins"),
        pytest.param([("a", 9, 5), ("a", 4, None)], {"a": 5}, id="what lies between them is in neither"),
        pytest.param([("a", 6, None), ("a", 9, 5)], {}, id="the first has all of the beginning"),
        pytest.param([("a", 9, 5), ("b", 9, None)], {"a": 5}, id="each broker has its own"),
        pytest.param([("a", 9, 5), ("a", 6, None, True)], {"a": 5}, id="an archive has only what was removed"),
        pytest.param([("a", 9, None), ("a", 12, 11, True)], {}, id="nor does a later one take anything away"),
        pytest.param([("a", 9, 5, True)], {}, id="of archives alone all counts"),
    ],
)
def test_history_is_whole_from_here_on(exports: list[tuple[Any, ...]], begins: dict[str, int]) -> None:
    taken = [Taken(*each) for each in exports]
    in_us = [each._replace(at_us=each.at_us * MINUTE_US, from_us=each.from_us and each.from_us * MINUTE_US) for each in taken]
    assert covered_from(in_us) == {broker: since * MINUTE_US for broker, since in begins.items()}


def test_it_begins_with_a_whole_minute() -> None:
    assert covered_from([Taken("a", 9 * MINUTE_US, 5 * MINUTE_US + 1)]) == {"a": 6 * MINUTE_US}


def test_only_exports_tell_what_is_still_here() -> None:
    assert latest_of([Taken("a", 9), Taken("a", 5), Taken("a", 12, None, True), Taken("b", 3, None, True)]) == {"a": 9, "b": 3}


def test_a_window_is_of_whole_minutes_in_any_zone() -> None:
    since_us, until_us = 1_795_249_800_000_000, 1_795_305_600_000_000
    window = Window.parse("2026-11-21T09:30:59+01:00", "2026-11-22")
    assert window == Window(since_us, until_us)
    assert window.begins({"a": since_us + 1, "b": 0}, ["a", "b", "c"]) == {"a": since_us + 1, "b": since_us, "c": since_us}
    assert Window.parse(None, None).begins({"a": 5}, ["a", "b"]) == {"a": 5}


@pytest.mark.parametrize(("since", "until"), [("yesterday", None), ("2026-11-22", "2026-11-21"), (None, "12")])
def test_what_is_no_window(since: str | None, until: str | None) -> None:
    with pytest.raises(AnalyticsError) as raised:
        Window.parse(since, until)
    assert raised.value.code == "bad-time"
