"""Stopping beside a disk that does not come back in time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from homing.broker import server


class SlowJournal:
    async def flush(self) -> None:
        await asyncio.sleep(60)


async def test_a_slow_disk_does_not_break_an_orderly_stop(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(server, "_SHUTDOWN_S", 0.01)
    # What came out of here would end the process with another exit code.
    await server._flush_in_time(cast(Any, SlowJournal()))
    (warning,) = caplog.records
    assert warning.getMessage() == "the disk is slow: clients are left without answers to what they did last"
