"""A journal made of parts that the test holds, too: for what its upkeep does and when, which nobody sees from outside."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from homing.journal.commit.writer_state import WriterState
from homing.journal.commit.writer_thread import Standing, WriterThread
from homing.journal.contract import Recovered
from homing.journal.journal import Journal, JournalOptions
from homing.journal.opening import open_directory
from homing.journal.read.recovery import recover
from homing.journal.store.sqlite import Store
from tests.unit.journal_support import NOW_MS, OPTIONS


@dataclass
class Inside:
    """By a clock that stands still until ``rest``."""

    found: Recovered
    store: Store
    writer: WriterThread
    #: Since before it was opened, so that nothing that rests for a while has rested yet.
    now_s: float

    @property
    def state(self) -> WriterState:
        return self.writer.writer.state

    def rest(self) -> None:
        """Whatever waits for its time has waited long enough."""
        self.now_s += 3600.0

    async def upkeep(self, *, idle: bool) -> Standing:
        """Once: one step, or when ``idle`` one of each kind."""
        return await self.store.run(self.writer.upkeep, idle)

    async def keep_up(self, *, idle: bool) -> None:
        """Until nothing is due: bounded steps, so several."""
        for _ in range(500):
            if not (await self.upkeep(idle=idle)).upkeep_due:
                return
        raise AssertionError("upkeep does not come to an end")

    async def sweep(self) -> None:
        """All that is due after a while, beside other work."""
        self.rest()
        await self.keep_up(idle=False)


@asynccontextmanager
async def opened_inside(directory: Path, now_ms: int = NOW_MS, **options: Any) -> AsyncIterator[tuple[Journal, Inside]]:
    now_s = time.monotonic()
    parts = await open_directory(directory, JournalOptions(**{**OPTIONS, **options}), now_ms, recover, replicated=False)
    journal = Journal(directory, parts)
    inside = Inside(parts.found, parts.store, parts.writer_thread, now_s)
    inside.writer.clock = lambda: inside.now_s
    try:
        yield journal, inside
    finally:
        await journal.close()
