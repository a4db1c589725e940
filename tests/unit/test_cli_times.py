"""Times as they are typed: a time of the clock is the last such one where what was is meant, and the next one where what comes is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
import typer

from homing.broker.cli.times import in_utc, time_given, time_to_come

HOUR_MS = 3_600_000


def test_a_time_of_the_clock_is_the_nearest_on_its_side() -> None:
    now = datetime.now()
    for hours in (-1, 1):
        said = now + timedelta(hours=hours)
        for text in (f"{said:%H:%M}", f"{said:%H:%M:%S}"):
            was, will_be = time_given(text), time_to_come(text)
            now_ms = time.time() * 1000
            assert now_ms - 24.1 * HOUR_MS < was <= now_ms <= will_be + 60_000 < now_ms + 24.1 * HOUR_MS
            assert {f"{datetime.fromtimestamp(at / 1000):%H:%M}" for at in (was, will_be)} == {f"{said:%H:%M}"}
            assert in_utc(text) == f"{datetime.fromtimestamp(was / 1000, UTC):%Y-%m-%dT%H:%M:%S}"


def test_durations_dates_and_what_is_neither() -> None:
    now_ms = time.time() * 1000
    assert abs(time_given("2h") - (now_ms - 2 * HOUR_MS)) < 60_000
    assert abs(time_to_come("2h") - (now_ms + 2 * HOUR_MS)) < 60_000
    assert time_given("1970-01-02T00:00+00:00") == time_to_come("1970-01-02T00:00+00:00") == 24 * HOUR_MS
    assert in_utc("2026-11-21T08:30") == "2026-11-21T08:30"
    assert 0 <= datetime.now(UTC).timestamp() - datetime.fromisoformat(in_utc("24h") + "Z").timestamp() - 24 * 3_600 < 60
    for text in ("25:00", "1:30", "soon", "2 hours"):
        with pytest.raises(typer.BadParameter, match=r"01:30|unit|duration"):
            time_given(text)
