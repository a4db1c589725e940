"""What the journal does first: who waits, then work on many messages and upkeep; what nobody waits for goes in company."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.joining import Joining
from homing.journal.commit.writer_thread import ROWS_TOGETHER, UNSEEN_ROWS
from homing.journal.read.ahead import ReadAhead
from homing.journal.read.choosing import chosen
from homing.journal.read.pages import Page, Wanted, read_alone
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import opened, reference, send, sequences, settle


@pytest.mark.plain
async def test_who_waits_already_goes_before_upkeep_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    appended, kept_up = threading.Event(), asyncio.Event()
    async with opened_inside(tmp_path, checkpoint_every_bytes=1) as (journal, inside):
        while journal.upkeep_due:
            await journal.flush()
            await asyncio.sleep(0)
        writer, loop = inside.writer, asyncio.get_running_loop()
        commit, upkeep = writer.commit, writer.upkeep

        def append() -> None:
            """While the first is being written."""
            journal.batch.add(reference(1000))
            journal.batch.confirms.append(lambda: order.append(f"confirmed, {journal.tidying=}"))
            appended.set()

        def committing(connection: sqlite3.Connection, batch: Any, *others: Any) -> Any:
            order.append(f"{len(batch.added)} written")
            if len(batch.added) > 1:
                loop.call_soon_threadsafe(append)
                assert appended.wait(20)
            return commit(connection, batch, *others)

        def keeping(connection: sqlite3.Connection, idle: bool) -> Any:
            order.append("upkeep")
            return upkeep(connection, idle)

        def reported(unwritten: int) -> None:
            if order[-1] == "upkeep" and not journal.tidying:
                kept_up.set()

        monkeypatch.setattr(writer, "rows_here", lambda batch: 0)
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
    async with opened_inside(tmp_path) as (journal, inside):
        writer, loop = inside.writer, asyncio.get_running_loop()
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

        def committing(connection: sqlite3.Connection, batch: Any, *others: Any) -> Any:
            order.append(f"{len(batch.added)} written")
            return commit(connection, batch, *others)

        def failed(error: Exception) -> None:
            order.append(str(error))

        def act(page: Page) -> None:
            append("job's", 3)
            journal.batch.after.append(done.set)

        monkeypatch.setattr("homing.journal.journal.read_alone", reading)
        monkeypatch.setattr(writer, "rows_here", lambda batch: 0)
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
async def test_who_comes_while_a_step_is_written_goes_to_disk_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come, confirmed, groups = threading.Event(), asyncio.Event(), list[int]()
    async with opened_inside(tmp_path) as (journal, inside):
        send(journal, 1)
        await journal.flush()
        writer, loop = inside.writer.writer, asyncio.get_running_loop()
        write = writer.write

        def send_two() -> None:
            send(journal, 2)
            settle(journal, 11)
            journal.batch.confirms.append(confirmed.set)
            come.set()

        def writing(connection: sqlite3.Connection, batch: Any, reserve: int | None, history: bool, joining: Any) -> Any:
            def ask() -> Any:
                loop.call_soon_threadsafe(send_two)
                assert come.wait(20)
                return joining()

            groups.append(len(batch.added))
            return write(connection, batch, reserve, history, ask if joining is not None else None)

        def step(page: Page) -> None:
            for sequence in (11, 12, 13):
                send(journal, sequence)

        monkeypatch.setattr("homing.journal.commit.joining._PATIENCE_S", 20.0)
        monkeypatch.setattr(writer, "write", writing)
        journal.read(Wanted(1, "chosen", on_disk=True), step, lambda error: None)
        await asyncio.wait_for(confirmed.wait(), 20)
        assert journal.sync_ms is not None
        assert groups == [3]
        assert sequences(tmp_path) == [1, 2, 12, 13]
        assert (journal.statistics.references_added, journal.statistics.references_deleted) == (5, 1)


@pytest.mark.plain
async def test_upkeep_beside_steps_comes_right_after_somebody_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends one after another, and has just been answered, has sent nothing yet."""
    monkeypatch.setattr("homing.journal.journal._UPKEEP_S", 3600.0)
    order, ended = list[str](), asyncio.Event()
    async with opened_inside(tmp_path, checkpoint_every_bytes=1) as (journal, inside):
        send(journal, 1)
        journal.batch.confirms.append(lambda: None)
        await journal.flush()
        while journal.upkeep_due:
            await journal.flush()
            await asyncio.sleep(0)
        writer, steps = inside.writer, iter(range(1, 6))
        commit, upkeep = writer.commit, writer.upkeep

        def committing(connection: sqlite3.Connection, batch: Any, *others: Any) -> Any:
            standing = commit(connection, batch, *others)
            # Somebody may have gone along.
            order.append("answer" if batch.awaited else "step")
            return standing

        def keeping(connection: sqlite3.Connection, idle: bool) -> Any:
            order.append("upkeep")
            return upkeep(connection, idle)

        def step(page: Page) -> None:
            number = next(steps, None)
            if number is None:
                ended.set()
                return
            for sequence in range(UNSEEN_ROWS * ROWS_TOGETHER):
                send(journal, 1000 * number + sequence)
            journal.read(Wanted(1, "chosen", on_disk=True), step, lambda error: None)
            if number == 3:
                asyncio.get_running_loop().call_soon(somebody)

        def somebody() -> None:
            send(journal, 2)
            journal.batch.confirms.append(lambda: None)

        monkeypatch.setattr(writer, "rows_here", lambda batch: 0)
        monkeypatch.setattr(writer, "commit", committing)
        monkeypatch.setattr(writer, "upkeep", keeping)
        journal.read(Wanted(1, "chosen", on_disk=True), step, lambda error: None)
        await asyncio.wait_for(ended.wait(), 20)
    first = order.index("upkeep")
    assert "answer" in order[first - 2 : first], order
    assert "answer" not in order[: first - 2], order
    assert order[:2] == ["step", "step"]


def test_a_step_goes_alone_where_nobody_waits_or_the_loop_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.joining._PATIENCE_S", 0.0)
    loop, given = Mock(), list[WriteBatch]()

    def give() -> WriteBatch:
        given.append(WriteBatch())
        return given[-1]

    assert Joining(loop, lambda: False, give)() is None
    assert not loop.call_soon_threadsafe.called
    assert Joining(loop, lambda: True, give)() is None
    answer, argument = loop.call_soon_threadsafe.call_args.args
    answer(argument)  # late
    assert not given
    loop.call_soon_threadsafe.side_effect = lambda answer, argument: answer(argument)
    assert Joining(loop, lambda: True, give)() is given[0]


@pytest.mark.parametrize("meanwhile", [None, 3, 4])
async def test_a_steps_page_is_read_while_the_step_before_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: int | None
) -> None:
    taken, done = list[list[int]](), asyncio.Event()
    async with opened(tmp_path) as (journal, _):
        for sequence in range(1, 7):
            send(journal, sequence)
        await journal.flush()

        def take(page: Page) -> None:
            taken.append([record.sequence for record in page.records])
            for sequence in taken[-1]:
                settle(journal, sequence)
                send(journal, 100 + sequence, 2)
            if not page.more:
                done.set()
                return
            # What else the commit under way does to what was read meanwhile.
            if meanwhile is not None and len(taken) == 1:
                settle(journal, meanwhile)
            journal.read(wanted(page.records[-1].sequence), take, lambda error: None)

        def wanted(after: int) -> Wanted:
            return Wanted(1, "chosen", after=after, rows=2, on_disk=True)

        begin, begun = ReadAhead.begin, list[Wanted]()

        def beginning(ahead: ReadAhead, wanted: Wanted) -> None:
            begun.append(wanted)
            begin(ahead, wanted)

        monkeypatch.setattr(ReadAhead, "begin", beginning)
        journal.read(wanted(0), take, lambda error: None)
        await asyncio.wait_for(done.wait(), 20)
        await journal.flush()
        assert len(begun) >= 2
        assert not {1, 2, 3, 4, 5, 6}.intersection(sequences(tmp_path))
    if meanwhile is None:
        assert taken == [[1, 2], [3, 4], [5, 6], []]
    else:
        assert [sequence for page in taken for sequence in page] == [each for each in range(1, 7) if each != meanwhile]


@pytest.mark.plain
async def test_what_is_read_ahead_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit while it is read would otherwise leave fewer rows than were chosen, as the last page has."""
    async with opened(tmp_path) as (journal, _):
        for sequence in range(1, 7):
            send(journal, sequence)
        await journal.flush()

        def choosing(*wanted: Any) -> list[int]:
            found = chosen(*wanted)
            asyncio.run_coroutine_threadsafe(delete_first(), loop).result(20)
            return found

        async def delete_first() -> None:
            settle(journal, 1)
            await journal.flush()

        loop = asyncio.get_running_loop()
        monkeypatch.setattr("homing.journal.read.pages.chosen", choosing)
        wanted = Wanted(1, "chosen", rows=2, on_disk=True)
        reading = ReadAhead(tmp_path / "homing.db")
        reading.begin(wanted)
        ahead = reading.take(wanted)
        assert ahead is not None
        page = await asyncio.wait_for(asyncio.wrap_future(ahead), 20)
        reading.close()
        assert page is not None
        assert ([record.sequence for record in page.records], page.more) == ([1, 2], True)
        assert sequences(tmp_path) == [2, 3, 4, 5, 6]


async def test_what_cannot_be_read_ahead_is_read_in_its_turn(tmp_path: Path) -> None:
    ahead, wanted = ReadAhead(tmp_path / "none.db"), Wanted(1, "chosen", on_disk=True)
    for _ in range(2):
        ahead.begin(wanted)
        page = ahead.take(wanted)
        assert page is not None
        assert page.result(20) is None
    ahead.begin(wanted)
    assert ahead.take(wanted._replace(after=1)) is None
    ahead.close()


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
        await journal.flush()
        assert sequences(tmp_path) == [2]


@pytest.mark.plain
async def test_acknowledgements_that_stay_alone_are_written_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.wakeup._IDLE_S", 3600.0)  # else it looks by itself, later
    async with opened(tmp_path) as (journal, _):
        for sequence in (1, 2):
            send(journal, sequence)
        await journal.flush()
        # The first was to wait longer.
        with monkeypatch.context() as patient:
            patient.setattr("homing.journal.commit.scheduler.COMPANY_S", 3600.0)
            settle(journal, 1)
            for _ in range(10):
                await asyncio.sleep(0)
            assert sequences(tmp_path) == [1, 2]
        committed = asyncio.Event()
        journal.on_commit = lambda unwritten: committed.set()
        settle(journal, 2)
        await asyncio.wait_for(committed.wait(), 20)
        await journal.flush()
        assert sequences(tmp_path) == []


@pytest.mark.plain
async def test_answers_leave_before_the_loop_does_anything_else(tmp_path: Path) -> None:
    order: list[str] = []
    loop, committed = asyncio.get_running_loop(), asyncio.Event()

    def later() -> None:
        loop.call_soon(order.append, "next turn")

    async with opened(tmp_path) as (journal, _):
        journal.on_answered = lambda: order.append("they leave")
        journal.on_commit = lambda unwritten: committed.set()
        send(journal, 1)
        journal.batch.confirms.extend([lambda: order.append("answered"), later])
        await asyncio.wait_for(committed.wait(), 20)
    assert order[:3] == ["answered", "they leave", "next turn"]


@pytest.mark.plain
async def test_while_there_is_other_work_upkeep_is_one_step_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a commit waits for one of them."""
    order: list[str] = []

    def does(what: str) -> Any:
        def step(*_: object) -> int:
            order.append(what)
            return 1

        return step

    async with opened_inside(tmp_path) as (_, inside):
        writer = inside.writer
        upkeep = writer.upkeep
        monkeypatch.setattr(writer, "upkeep", lambda connection, idle: writer.standing(connection, idle))
        monkeypatch.setattr(writer.sweep, "step", does("rows"))
        monkeypatch.setattr(writer.retention, "step", does("history"))
        monkeypatch.setattr(writer.retention, "give_back", does("pages"))
        for idle in (False, False, False, False, True):
            await inside.store.run(upkeep, idle)
            order.append("|")
    assert order == ["rows", "|", "history", "|", "pages", "|", "rows", "|", "history", "pages", "rows", "|"]
