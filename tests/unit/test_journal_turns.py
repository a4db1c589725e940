"""What the journal does first: who waits, then work on many messages and upkeep; what nobody waits for goes in company."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from homing.journal.commit.writer_thread import UNSEEN_ROWS
from homing.journal.read.pages import Page, Wanted, read_alone
from tests.unit.journal_support import opened, reference, send, sequences, settle


@pytest.mark.plain
async def test_who_waits_already_goes_before_upkeep_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    appended, kept_up = threading.Event(), asyncio.Event()
    async with opened(tmp_path, checkpoint_every_bytes=1) as (journal, _):
        while journal._upkeep_due:
            await journal.flush()
            await asyncio.sleep(0)
        writer, loop = journal._writer_thread, asyncio.get_running_loop()
        commit, upkeep = writer.commit, writer.upkeep

        def append() -> None:
            """While the first is being written."""
            journal.batch.add(reference(1000))
            journal.batch.confirms.append(lambda: order.append(f"confirmed, {journal.tidying=}"))
            appended.set()

        def committing(connection: sqlite3.Connection, batch: Any, reserve: int | None) -> Any:
            order.append(f"{len(batch.added)} written")
            if len(batch.added) > 1:
                loop.call_soon_threadsafe(append)
                assert appended.wait(20)
            return commit(connection, batch, reserve)

        def keeping(connection: sqlite3.Connection, idle: bool) -> Any:
            order.append("upkeep")
            return upkeep(connection, idle)

        def reported() -> None:
            if order[-1] == "upkeep" and not journal.tidying:
                kept_up.set()

        monkeypatch.setattr(writer, "commit", committing)
        monkeypatch.setattr(writer, "upkeep", keeping)
        monkeypatch.setattr(journal, "on_commit", reported)
        for sequence in range(1, UNSEEN_ROWS + 1):
            journal.batch.add(reference(sequence))
        await asyncio.wait_for(kept_up.wait(), 20)
    assert order[:4] == [f"{UNSEEN_ROWS} written", "1 written", "confirmed, journal.tidying=True", "upkeep"]


@pytest.mark.plain
async def test_who_waits_goes_before_work_on_many_messages_and_consumers_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    appended, done = threading.Event(), asyncio.Event()
    async with opened(tmp_path) as (journal, _):
        writer, loop = journal._writer_thread, asyncio.get_running_loop()
        commit = writer.commit

        def append(name: str, count: int = 1) -> None:
            for _ in range(count):
                journal.batch.add(reference(journal.next_id()))
            journal.batch.confirms.append(lambda: order.append(f"{name} confirmed"))

        def come() -> None:
            append("second")
            appended.set()

        def reading(connection: sqlite3.Connection, wanted: Wanted, at_ms: int | None) -> Page:
            order.append(f"{wanted.kind} read")
            if wanted.kind == "chosen":
                loop.call_soon_threadsafe(come)
                assert appended.wait(20)
            return read_alone(connection, wanted, at_ms)

        def committing(connection: sqlite3.Connection, batch: Any, reserve: int | None) -> Any:
            order.append(f"{len(batch.added)} written")
            return commit(connection, batch, reserve)

        def failed(error: Exception) -> None:
            order.append(str(error))

        def act(page: Page) -> None:
            append("job's", 3)
            journal.batch.after.append(done.set)

        monkeypatch.setattr("homing.journal.journal.read_alone", reading)
        monkeypatch.setattr(writer, "commit", committing)
        append("first")
        journal.read(Wanted(1, "ready"), lambda page: None, failed)
        journal.read(Wanted(1, "chosen", on_disk=True), act, failed)
        await asyncio.wait_for(done.wait(), 20)
        assert journal.sync_ms is not None
    assert order == [
        "ready read",
        *("1 written", "first confirmed", "chosen read"),
        *("1 written", "second confirmed"),
        *("3 written", "job's confirmed"),
    ]


@pytest.mark.plain
async def test_acknowledgements_share_the_next_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.scheduler.COMPANY_S", 3600.0)
    confirmed = asyncio.Event()
    async with opened(tmp_path) as (journal, _):
        send(journal, 1)
        await journal.flush()
        before = journal.statistics.groups
        settle(journal, 1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert journal.busy()
        send(journal, 2)
        journal.batch.confirms.append(confirmed.set)
        await asyncio.wait_for(confirmed.wait(), 20)
        assert journal.statistics.groups == before + 1
        assert sequences(tmp_path) == [2]


async def test_acknowledgements_that_stay_alone_are_written_soon(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        send(journal, 1)
        await journal.flush()
        # Something else was to wait longer.
        loop = asyncio.get_running_loop()
        journal._alarm = loop.call_at(loop.time() + 3600, journal._ring)
        committed = asyncio.Event()
        journal.on_commit = committed.set
        settle(journal, 1)
        await asyncio.wait_for(committed.wait(), 20)
        assert sequences(tmp_path) == []
