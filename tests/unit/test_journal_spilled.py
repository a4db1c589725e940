"""What is on disk for want of memory alone: gone at the next start unless it was kept, and free to come back under its own number."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from homing.journal.contract import QueueStat
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.check import check
from homing.journal.read.pages import Wanted
from homing.journal.upkeep import tombstones
from tests.unit.journal_support import NOW_MS, OPTIONS, opened, query, queue, reference, send
from tests.unit.test_journal_paging import page

OF_ONE = range(1, 601, 5)
OF_OTHER = range(3, 601, 5)


def spill(journal: Journal, sequences: range | tuple[int, ...], queue_id: int = 1) -> None:
    records = {n: reference(n, queue_id, spilled=True) for n in sequences}
    journal.batch.spill(records, sum(each.message.weight for each in records.values()))


def keep(journal: Journal, queue_id: int, number: int) -> None:
    journal.batch.end_spill(queue_id, keep=True)
    journal.batch.counts(queue_id, 1)[QueueStat.SENT] += number


async def on_pages(journal: Journal, queue_id: int = 1) -> dict[int, bool]:
    """What a page shows of the queue, and whether that is spilled."""
    return {each.sequence: each.spilled for each in (await page(journal, Wanted(queue_id, "ready", 4))).records}


async def after(tmp_path: Path) -> dict[int, list[int]]:
    """What the next start finds, by queue; the journal is whole."""
    async with opened(tmp_path) as (_, recovered):
        found: dict[int, list[int]] = {}
        for each in recovered.references:
            assert not each.spilled
            found.setdefault(each.queue_id, []).append(each.sequence)
    assert check(tmp_path).problems == []
    assert query(tmp_path, "SELECT count(*) FROM spilled") == [(0,)]
    return found


async def test_no_confirm_waits_for_it_and_a_start_finds_what_was_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for queue_id in (1, 2, 3):
            journal.batch.queue(queue(queue_id))
        await journal.flush()
        spill(journal, OF_ONE)
        spill(journal, OF_OTHER, 2)
        spill(journal, (1_000,), 3)
        assert journal.busy()
        assert not journal.busy(sends=True)
        send(journal, 2_000)
        assert journal.busy(sends=True)
        await journal.flush()
        assert await on_pages(journal) == {**dict.fromkeys(OF_ONE, True), 2_000: False}
        keep(journal, 2, len(OF_OTHER))
        journal.batch.end_spill(3, keep=False)
        await journal.flush()
        assert not any((await on_pages(journal, 2)).values())
        assert await on_pages(journal, 3) == {}
    assert await after(tmp_path) == {1: [2_000], 2: list(OF_OTHER)}


@pytest.mark.parametrize("together", [True, False])
async def test_what_was_read_back_may_go_to_disk_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Though its rows lay far apart: those of others that leave so stay for a while, and would be in the way."""
    monkeypatch.setattr(tombstones, "far_apart", lambda ordered, gap=1: bool(ordered))
    back, again = OF_ONE[10:40], (OF_ONE[10], OF_ONE[20])
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        spill(journal, OF_ONE)
        spill(journal, OF_OTHER, 2)
        await journal.flush()
        journal.batch.unspill(1, back)
        assert not any(each in back for each in await on_pages(journal)), "it is in memory"
        if not together:
            await journal.flush()
        send(journal, again[0])
        spill(journal, (again[1],))
        await journal.flush()
        left = [n for n in OF_ONE if n not in back]
        assert await on_pages(journal) == {**dict.fromkeys(left, True), again[0]: False, again[1]: True}
        assert set((await on_pages(journal, 2)).values()) == {True}
    assert await after(tmp_path) == {1: [again[0]]}


async def test_what_fails_its_checksum_takes_nothing_away(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        spill(journal, (32, 33, 64))
        await journal.flush()
        with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
            connection.execute("UPDATE spilled SET bits = bits | 4 WHERE block = 1")
        send(journal, 34)
        spill(journal, (35,))
        await journal.flush()
        assert await on_pages(journal) == {32: False, 33: False, 34: False, 35: False, 64: True}
    async with opened(tmp_path) as (_, recovered):
        assert [each.sequence for each in recovered.references] == [32, 33, 34, 35]


async def test_what_a_crash_took_is_counted_as_lost(tmp_path: Path) -> None:
    def count(queue_id: int, minute: int, **increments: int) -> None:
        row = journal.batch.counts(queue_id, minute)
        for name, number in increments.items():
            row[QueueStat[name.upper()]] += number

    journal = (await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS))[0]
    for queue_id in (1, 2, 3):
        journal.batch.queue(queue(queue_id))
    # Of the first some are there and one is kept; the second is empty; of the third one is kept that was not counted in yet.
    count(1, 5, sent=8, transient_sent=8, succeeded=2, transient_succeeded=2)
    count(1, 6, kept=1, moved_in=2, transient_moved_in=2, dropped=1, transient_dropped=1)
    count(2, 5, sent=3, transient_sent=3, expired=3, transient_expired=3)
    count(3, 5, kept=1)
    send(journal, 10)
    journal.batch.add(reference(20))
    journal.batch.add(reference(30, 3))
    await journal.close(clean=False)
    for _ in range(2):
        async with opened(tmp_path, NOW_MS + 60_000):
            pass
        sums = "queue_id, sum(sent), sum(transient_sent), sum(lost)"
        assert query(tmp_path, f"SELECT {sums} FROM minute GROUP BY 1") == [(1, 9, 8, 6), (2, 3, 3, 0), (3, 1, 1, 0)]
        assert query(tmp_path, "SELECT minute FROM minute WHERE lost > 0") == [((NOW_MS + 60_000) // 60_000,)]
        assert check(tmp_path).problems == []
