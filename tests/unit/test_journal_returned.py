"""Counts of what came back at once stand apart from the rows, and everybody who reads counts finds them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from homing.journal.contract import ReferenceCounts
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.check import check
from homing.journal.read.pages import Wanted
from homing.journal.read.queries import JournalReader
from tests.unit.journal_support import NOW_MS, OPTIONS, opened, query, queue, send, settle
from tests.unit.test_journal_paging import page

FAILED_TWICE = ReferenceCounts(delivery_count=2, failed=2, assigned=3, state=0, due_at_ms=None, expires_at_ms=None)


async def make(directory: Path) -> None:
    """Messages 1 to 40, of which 5 to 30 came back twice."""
    async with opened(directory) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 41):
            send(journal, sequence)
        await journal.flush()
        for failed in (1, 2):
            journal.batch.change(range(5, 31), FAILED_TWICE._replace(failed=failed))
            await journal.flush()


async def test_rows_stay_as_they_are_and_every_reader_finds_the_counts(tmp_path: Path) -> None:
    await make(tmp_path)
    assert query(tmp_path, "SELECT max(failed), count(counts_checksum) FROM reference") == [(0, 0)]
    assert query(tmp_path, "SELECT count(*), min(failures), max(failures) FROM returned") == [(26, 2, 2)]
    assert check(tmp_path).problems == []
    wanted = {sequence: 2 if 5 <= sequence <= 30 else 0 for sequence in range(1, 41)}
    async with opened(tmp_path) as (journal, recovered):
        assert {each.sequence: each.failed for each in recovered.references} == wanted
        records = (await page(journal, Wanted(1, "all", 4))).records
        assert {each.sequence: each.failed for each in records} == wanted
        assert records[4][3:11] == FAILED_TWICE
    with JournalReader(tmp_path) as reader:
        reported = reader.history(5)
    assert reported is not None
    assert [each["failed"] for each in reported["references"]] == [2]


async def test_any_other_change_and_the_end_of_a_message_take_them_away(tmp_path: Path) -> None:
    await make(tmp_path)
    async with opened(tmp_path) as (journal, _):
        journal.batch.change(range(5, 25), FAILED_TWICE._replace(failed=3, due_at_ms=NOW_MS))
        journal.batch.change([25], FAILED_TWICE._replace(failed=4))
        for sequence in range(26, 29):
            settle(journal, sequence)
        await journal.flush()
        assert query(tmp_path, "SELECT sequence FROM returned") == [(29,), (30,)]
        assert query(tmp_path, "SELECT sequence, failed FROM reference WHERE failed") == [*((n, 3) for n in range(5, 25)), (25, 4)]
        journal.batch.change(range(5, 25), FAILED_TWICE)  # their time has come: more than counts changes
        await journal.flush()
        assert query(tmp_path, "SELECT sequence FROM returned") == [(29,), (30,)]
        journal.batch.queue(queue(deleted_at_ms=NOW_MS))
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        assert recovered.references == []
    assert check(tmp_path).problems == []


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_changes_is_there_after_a_start(tmp_path: Path, seed: int) -> None:
    random, there = Random(seed), dict[int, ReferenceCounts]()
    untried = ReferenceCounts(0, 0, 0, 0, None, None)
    for _ in range(4):
        async with opened(tmp_path) as (journal, recovered):
            assert {each.sequence: ReferenceCounts(*each[3:11]) for each in recovered.references} == there
            journal.batch.queue(queue())
            for _ in range(8):
                begin = random.randrange(1, 300)
                run = range(begin, begin + random.choice([1, 15, 16, 40, 90]))
                some = [sequence for sequence in run if sequence in there]
                match random.randrange(5):
                    case 0:
                        for sequence in set(run) - there.keys():
                            send(journal, sequence)
                            there[sequence] = untried
                    case 1:
                        journal.batch.delete_all(some)
                        for sequence in some:
                            del there[sequence]
                    case kind:
                        due_at_ms = NOW_MS if kind == 4 and random.random() < 0.5 else None
                        tried = random.randrange(1, 9)
                        counts = ReferenceCounts(tried, tried, tried + 1, random.choice([0, 0, 0, 2]), due_at_ms, None)
                        journal.batch.change(some, counts)
                        there |= dict.fromkeys(some, counts)
                if random.random() < 0.7:
                    await journal.flush()
            await journal.flush()
            assert journal.statistics.references_not_found == 0
        there = dict(sorted(there.items()))
        assert [problem for problem in check(tmp_path).problems if "add up" not in problem] == []


@pytest.mark.parametrize("column", ["deliveries", "failures", "assignments", "proof"])
async def test_what_changed_on_disk_is_found(tmp_path: Path, column: str) -> None:
    await make(tmp_path)
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE returned SET {column} = {column} + 16 WHERE sequence = 9")
    assert "row 9 of table reference" in check(tmp_path).problems[0]
    with pytest.raises(JournalError, match="row 9 of table reference"):
        await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
    async with opened(tmp_path, on_damage="quarantine") as (_, recovered):
        assert len(recovered.references) == 39
        assert query(tmp_path, "SELECT count(*) FROM returned") == [(25,)]


async def test_counts_of_nothing_are_told(tmp_path: Path) -> None:
    await make(tmp_path)
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO returned VALUES (77, 1, 1, 1, 1, 0, 0)")
    assert check(tmp_path).problems == ["Row 77 of table returned counts a message that is not there."]
