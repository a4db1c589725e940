"""What leaves far apart is gone for everybody at once, though its rows go later, in the order in which they lie."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from homing.journal.commit import writer_thread
from homing.journal.export.export import export
from homing.journal.journal import Journal
from homing.journal.read.check import check
from homing.journal.read.pages import Wanted
from homing.journal.read.queries import JournalReader
from homing.journal.upkeep import tombstones
from tests.unit.journal_inside import Inside, opened_inside
from tests.unit.journal_support import NOW_MS, message, opened, query, queue, send, settle
from tests.unit.test_journal_paging import page
from tests.unit.test_journal_paging import sequences as on_page

EVERY = 10
NUMBER = 4_000
LEFT = set(range(1, NUMBER + 1, EVERY))
ENTRY = [n for n in range(1, NUMBER + 1) if n not in LEFT]


async def fill(journal: Journal) -> None:
    """``NUMBER`` messages, each tenth of which then leaves."""
    journal.batch.queue(queue())
    for n in range(1, NUMBER + 1):
        send(journal, n, due_at_ms=NOW_MS + n)
    await journal.flush()
    for n in sorted(LEFT, key=lambda n: n * 7919 % 1009):
        settle(journal, n)
    await journal.flush()


def rows(directory: Path) -> int:
    return int(query(directory, "SELECT count(*) FROM reference")[0][0])


def bits(directory: Path) -> int:
    return sum(value.bit_count() for (value,) in query(directory, "SELECT bits FROM gone"))


@pytest.fixture
def everything_is_scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "far_apart", lambda ordered, gap=1: bool(ordered))


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([], False),
        ([7], False),
        (range(0, 31 * 1000, 1000), False),  # few
        (range(0, 32 * 1000, 1000), True),
        (range(5_000), False),
        (range(0, 5_000, 2), False),
        (range(0, 5_000, 7), False),
        (range(0, 5_000, 9), True),
        ([*range(100), *range(1_000_000, 1_000_100)], False),  # in two places, and close together in both
        ([*range(100), *range(1_000_000, 9_000_000, 10_000)], True),
    ],
)
def test_what_is_scattered(sequences: list[int], expected: bool) -> None:
    assert tombstones.far_apart(list(sequences)) is expected
    assert tombstones.far_apart([20 * sequence for sequence in sequences], 20) is expected


async def test_what_left_far_apart_is_gone_for_every_reader_and_its_rows_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        await fill(journal)
        assert (rows(tmp_path), bits(tmp_path)) == (NUMBER, len(LEFT))
        assert journal.statistics.references_deleted == len(LEFT)
        assert journal.statistics.references_not_found == 0
        found = await page(journal, Wanted(1, "due", until_ms=NOW_MS + NUMBER, rows=500))
        assert on_page(found) == ENTRY[:500]
        assert on_page(await page(journal, Wanted(1, "due", until_ms=NOW_MS + 1))) == []
        assert (await page(journal, Wanted(1, "due", after_ms=NOW_MS, after=0, until_ms=NOW_MS))).next_ms == NOW_MS + 2
        assert on_page(await page(journal, Wanted(1, "all", 4, rows=20))) == ENTRY[:20]
        with JournalReader(tmp_path) as reader:
            (here,) = reader.queues()
            assert (here["messages"], here["scheduled"]) == (len(ENTRY), len(ENTRY))
            assert reader.history(1) is None
            assert reader.history(2) is not None
        report = check(tmp_path)
        assert (report.problems, report.rows["reference"]) == ([], len(ENTRY))


@pytest.mark.parametrize("load_limit", [NUMBER, 10])
async def test_a_start_brings_nothing_back(tmp_path: Path, load_limit: int) -> None:
    async with opened(tmp_path) as (journal, _):
        await fill(journal)
    async with opened_inside(tmp_path, load_limit=load_limit) as (journal, inside):
        if load_limit == NUMBER:
            assert [record.sequence for record in inside.found.references] == ENTRY
        else:
            (on_disk,) = inside.found.on_disk
            assert (on_disk.due, on_disk.first_due_ms, on_disk.ready) == (len(ENTRY), NOW_MS + 2, {})
        # More of them leave, close together; those rows go at once, and others are still only gone.
        for n in range(2, 10):
            settle(journal, n)
        await journal.flush()
        assert (rows(tmp_path), bits(tmp_path)) == (NUMBER - 8, len(LEFT))
        await inside.keep_up(idle=True)
        assert (rows(tmp_path), bits(tmp_path)) == (len(ENTRY) - 8, 0)
    assert check(tmp_path).problems == []


@pytest.mark.plain
async def test_rows_go_when_there_is_time_in_the_order_in_which_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_thread, "STEP_ROWS", 50)
    monkeypatch.setattr(writer_thread, "_LITTLE_ROWS", 0)
    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        await inside.keep_up(idle=False)
        assert bits(tmp_path) == len(LEFT)
        before = rows(tmp_path)
        journal.batch.clock(NOW_MS + 1)  # a commit in which nothing leaves
        await journal.flush()
        assert (await inside.upkeep(idle=True)).upkeep_due
        (block,) = query(tmp_path, "SELECT min(block) FROM gone")[0]
        first = {n for n in LEFT if n < 32 * block}
        assert 50 <= before - rows(tmp_path) == len(first) < 60
        # What is behind has its turn when the end was reached.
        with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
            tombstones.leave(connection, [3])
        inside.state.tombstones += 1
        await inside.upkeep(idle=True)
        assert query(tmp_path, "SELECT min(block) FROM gone") == [(0,)]
        await inside.keep_up(idle=True)
        assert (rows(tmp_path), bits(tmp_path)) == (len(ENTRY) - 1, 0)
        assert journal.statistics.references_cleared == len(LEFT) + 1
        assert (inside.state.references, inside.state.tombstones) == (len(ENTRY) - 1, 0)


async def test_what_leaves_twice_through_a_fault_of_the_caller_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        for n in LEFT:
            journal.batch.delete_all((n,))
        await journal.flush()
        await inside.keep_up(idle=True)
        for n in LEFT:
            journal.batch.delete_all((n,))
        await journal.flush()
        await inside.keep_up(idle=True)
        assert (inside.state.references, inside.state.tombstones) == (rows(tmp_path), bits(tmp_path)) == (len(ENTRY), 0)
        assert journal.statistics.references_not_found == len(LEFT)
        assert "rows of messages that had left were not there" in caplog.text
    assert check(tmp_path).problems == []


async def life_of_a_queue(journal: Journal, inside: Inside, spacing: int, per_commit: int, rounds: int) -> None:
    """First in, first out: each batch leaves two batches later."""
    batches: list[list[int]] = []
    for number in range(rounds):
        first = 1 + number * per_commit * spacing
        batches.append([send(journal, n).sequence for n in range(first, first + per_commit * spacing, spacing)])
        if number > 1:
            for n in batches[number - 2]:
                settle(journal, n)
        await journal.flush()
        await inside.keep_up(idle=False)


@pytest.mark.usefixtures("everything_is_scattered")
async def test_rows_go_while_there_is_work_and_faster_than_they_become_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(writer_thread, "STEP_ROWS", 10)
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue())
        await life_of_a_queue(journal, inside, 10, 100, 30)
        state = inside.state
        assert journal.statistics.references_cleared > 2_000
        assert 2 * state.tombstones < state.references
        assert (state.references, state.tombstones) == (rows(tmp_path), bits(tmp_path))
    assert check(tmp_path).problems == []


async def test_what_leaves_in_order_is_removed_at_once_however_far_apart_its_numbers_are(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue())
        await life_of_a_queue(journal, inside, 50, 100, 10)
        assert (rows(tmp_path), bits(tmp_path)) == (200, 0)


async def test_rows_go_between_commits_of_a_few_messages(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        send(journal, NUMBER + 1)
        await journal.flush()
        assert not (await inside.upkeep(idle=False)).upkeep_due, "not before its time"
        assert bits(tmp_path) == len(LEFT)
        inside.rest()
        settle(journal, NUMBER + 1)
        await journal.flush()
        await inside.keep_up(idle=False)
        assert bits(tmp_path) == 0


async def test_clearing_that_finds_the_disk_full_rests(tmp_path: Path) -> None:
    def full(connection: sqlite3.Connection, rows: int) -> tuple[int, int]:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        with patch.object(inside.writer.vacuum, "step", full):
            assert not (await inside.upkeep(idle=True)).upkeep_due
        inside.rest()
        await inside.keep_up(idle=True)
        assert bits(tmp_path) == 0


async def test_little_space_is_a_reason_too(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        inside.writer.disk.space_low = True
        await inside.upkeep(idle=False)
        assert bits(tmp_path) < len(LEFT)


async def test_a_deleted_queue_purges_what_was_still_there(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        await fill(journal)
        journal.batch.queue(queue(deleted_at_ms=NOW_MS))
        await journal.flush()
        await inside.keep_up(idle=True)
        assert query(tmp_path, "SELECT sum(purged), sum(succeeded) FROM minute") == [(len(ENTRY), len(LEFT))]
        assert (rows(tmp_path), bits(tmp_path)) == (0, 0)
    assert check(tmp_path).problems == []


@pytest.mark.usefixtures("everything_is_scattered")
async def test_a_shared_body_goes_with_the_last_that_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for number in (1, 2):
            journal.batch.queue(queue(number))
        for n in range(1, NUMBER, EVERY):
            body = message(n + 100_000)
            journal.batch.add_message(body)
            for number in (1, 2):
                send(journal, n + number, number, of=body, shared=True)
        await journal.flush()
        for number, left in ((1, len(LEFT)), (2, 0)):
            for n in range(1, NUMBER, EVERY):
                settle(journal, n + number, number)
                journal.batch.delete_message(n + 100_000)
            await journal.flush()
            assert bits(tmp_path) == number * len(LEFT)
            assert query(tmp_path, "SELECT count(*) FROM message") == [(left,)]
    assert check(tmp_path).problems == []


async def test_an_export_holds_only_what_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (journal, _):
        await fill(journal)
        assert export(tmp_path / "data", tmp_path / "out").rows["messages"] == len(ENTRY)


async def test_a_bit_without_a_row_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        await fill(journal)
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        tombstones.leave(connection, [NUMBER + 31])
    assert check(tmp_path).problems == [f"Row {NUMBER + 31} of table reference is said to be gone and is not there."]


@pytest.mark.usefixtures("everything_is_scattered")
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_in_whichever_order_the_journal_holds_what_is_there(tmp_path: Path, seed: int) -> None:
    chance, there, next_sequence = random.Random(seed), set[int](), 1
    for _ in range(4):
        async with opened_inside(tmp_path, load_limit=chance.choice((0, 10_000))) as (journal, inside):
            if not inside.found.on_disk:
                assert {record.sequence for record in inside.found.references} == there
            journal.batch.queue(queue())
            for _ in range(12):
                for _ in range(chance.randrange(60)):
                    send(journal, next_sequence)
                    there.add(next_sequence)
                    next_sequence += 1
                for sequence in chance.sample(sorted(there), chance.randrange(len(there) + 1)):
                    settle(journal, sequence)
                    there.discard(sequence)
                await journal.flush()
                if chance.random() < 0.3:
                    await inside.upkeep(idle=True)
                assert on_page(await page(journal, Wanted(1, "ready", 4))) == sorted(there)
        assert check(tmp_path).problems == []
