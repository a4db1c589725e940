"""What outlives a message, for how long, and pages given back."""

from __future__ import annotations

import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from homing.journal.commit.writer_thread import UNSEEN_ROWS
from homing.journal.contract import AddressRecord, PolicyRecord, QueueStat
from homing.journal.journal import Journal
from homing.journal.read.check import check
from homing.journal.read.queries import JournalReader
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import (
    NOW_MS,
    attempt,
    change,
    hop,
    keep_attempt,
    message,
    opened,
    outcome,
    query,
    queue,
    reference,
    send,
    settle,
)

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.retention._STEP_ROWS", 10)
    monkeypatch.setattr("homing.journal.upkeep.retention._HISTORY_ROWS", 10)


def _history_bytes(directory: Path) -> tuple[int, int]:
    """(as kept, as counted)."""
    kept = query(directory, "SELECT value FROM meta WHERE key = 'history_bytes'")[0][0]
    counted = [
        query(directory, f"SELECT coalesce(sum(length({name}_blob) + length(stays)), 0) FROM {name}")[0][0]
        for name in ("failure", "outcome")
    ]
    return kept, sum(counted)


async def test_of_each_kind_of_event_the_last_200_are_kept(tmp_path: Path) -> None:
    """However many come in one commit or in several; a kind of which there are few does not go for one of which there are many."""
    async with opened(tmp_path) as (journal, _):
        for number in range(3):
            journal.batch.event("fault.new", NOW_MS, "q", "q", {"n": number})
        for begin, end in ((0, 199), (199, 200), (200, 201), (201, 750)):
            for number in range(begin, end):
                journal.batch.event("queue.full", NOW_MS, "q", "q", {"n": number})
            await journal.flush()
            with JournalReader(tmp_path) as reader:
                kept = [content["n"] for *_, content in reader.events(["queue.full"], 0, 0, -1)]
            assert kept == [*range(max(0, end - 200), end)]
    with JournalReader(tmp_path) as reader:
        assert [content["n"] for *_, content in reader.events([], 0, 0, 3)] == [0, 1, 2]


async def test_history_goes_by_age_but_not_while_its_message_is_here(tmp_path: Path) -> None:
    async with opened_inside(tmp_path, history_retention_ms=7 * DAY_MS) as (journal, inside):
        journal.batch.queue(queue())
        journal.batch.add_message(message(3_000))
        send(journal, 1_000)
        journal.batch.add(reference(2_001, of=message(2_000), hops=[hop(2_000)]))
        journal.batch.add(reference(3_001, of=message(3_000), shared=True))
        for message_id in (1_000, 2_000, 3_000, *range(1, 41)):
            keep_attempt(journal.batch, attempt(message_id, message_id, 1))
            journal.batch.outcome(outcome(message_id, message_id))
        keep_attempt(journal.batch, attempt(41, 41, 1, NOW_MS + 7 * DAY_MS))
        journal.batch.clock(NOW_MS + 7 * DAY_MS + 1)
        await journal.flush()
        await inside.sweep()
        assert [row[0] for row in query(tmp_path, "SELECT message_id FROM attempts ORDER BY 1")] == [41, 1_000, 2_000, 3_000]
        assert query(tmp_path, "SELECT count(*) FROM outcomes") == [(0,)]
        kept, counted = _history_bytes(tmp_path)
        assert kept == counted > 0
        assert journal.statistics.history_rows_removed == 40 + 43
        # What is older than that may be gone, and an export says so.
        assert query(tmp_path, "SELECT value FROM meta WHERE key = 'history_from_ms'") == [(NOW_MS + 1,)]


async def test_what_attempts_share_goes_with_the_last_of_them(tmp_path: Path) -> None:
    async with opened_inside(tmp_path, history_retention_ms=7 * DAY_MS) as (journal, inside):
        journal.batch.queue(queue())
        send(journal, 1_000)
        together = [*range(1, 31), 1_000]
        keep_attempt(journal.batch, attempt(0, 0, 1)._replace(entries=[(number, number) for number in together]))
        journal.batch.clock(NOW_MS + 7 * DAY_MS + 1)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT message_id FROM attempts") == [(1_000,)]
        kept, counted = _history_bytes(tmp_path)
        assert kept == counted > 0
        settle(journal, 1_000)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT * FROM attempts") == query(tmp_path, "SELECT * FROM failure") == []
        assert _history_bytes(tmp_path) == (0, 0)


async def test_shared_history_above_its_size_goes_in_steps(tmp_path: Path) -> None:
    async with opened_inside(tmp_path, history_max_bytes=3_000) as (journal, inside):
        for at in range(1, 5):
            entries = [(number, number) for number in range(100 * at, 100 * at + 35)]
            keep_attempt(journal.batch, attempt(0, 0, 1, NOW_MS + at)._replace(entries=entries))
        await journal.flush()
        await inside.sweep()
        kept, counted = _history_bytes(tmp_path)
        assert kept == counted
        assert 2_000 < kept <= 3_000
        left = [row[0] for row in query(tmp_path, "SELECT message_id FROM attempts ORDER BY 1")]
        assert set(range(400, 435)) <= set(left)


async def test_history_above_its_size_loses_the_oldest_first(tmp_path: Path) -> None:
    async with opened_inside(tmp_path, history_max_bytes=4_000) as (journal, inside):
        for number in range(1, 101):
            keep_attempt(journal.batch, attempt(number, number, 1, NOW_MS + number))
            journal.batch.outcome(outcome(number, number, NOW_MS + number))
        await journal.flush()
        await inside.sweep()
        kept, counted = _history_bytes(tmp_path)
        assert kept == counted
        assert 3_000 < kept <= 4_000
        attempts = [row[0] for row in query(tmp_path, "SELECT message_id FROM attempts ORDER BY 1")]
        outcomes = [row[0] for row in query(tmp_path, "SELECT message_id FROM outcomes ORDER BY 1")]
        assert attempts == list(range(attempts[0], 101))
        assert outcomes == list(range(outcomes[0], 101))
        assert abs(attempts[0] - outcomes[0]) <= 10


async def test_the_size_survives_a_restart_and_deleted_attempts(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for number in range(1, 31):
            keep_attempt(journal.batch, attempt(1, 1, number))
        await journal.flush()
        for number in range(11, 21):
            journal.batch.delete_attempt(1, 1, number)
        await journal.flush()
    async with opened(tmp_path) as (journal, _):
        kept, counted = _history_bytes(tmp_path)
        assert journal.statistics.history_bytes == kept == counted
        assert query(tmp_path, "SELECT count(*) FROM attempts") == [(20,)]


async def test_attempts_that_share_a_row_are_deleted_one_by_one(tmp_path: Path) -> None:
    far = [1, 2, 1_500, 1_501, 9_000]
    async with opened(tmp_path) as (journal, _):
        for number in (1, 2):
            keep_attempt(journal.batch, attempt(0, 0, number)._replace(entries=[(message_id, 7 * message_id) for message_id in far]))
        await journal.flush()
        assert query(tmp_path, "SELECT first_message, last_message FROM failure WHERE attempt = 2") == [(1, 2), (1500, 1501), (9000, 9000)]
        for message_id in (2, 1_500, 1_501, 9_000):
            journal.batch.delete_attempt(message_id, 7 * message_id, 1)
        journal.batch.delete_attempt(1, 8, 1)  # another entry of that message
        await journal.flush()
        assert query(tmp_path, "SELECT message_id, sequence FROM attempts WHERE attempt = 1") == [(1, 7)]
        assert query(tmp_path, "SELECT count(*) FROM attempts WHERE attempt = 2") == [(5,)]
        kept, counted = _history_bytes(tmp_path)
        assert kept == counted > 0
        assert check(tmp_path).problems == []


async def test_a_damaged_row_of_history_hurts_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for number in (1, 2):
            keep_attempt(journal.batch, attempt(0, 0, number)._replace(entries=[(1, 1), (2, 2)]))
        journal.batch.outcome(outcome(1, 1))
        await journal.flush()
        for table, entries in (("failure", "[[1,1],[2"), ("outcome", "{")):
            change(tmp_path, f"UPDATE {table} SET stays = ? WHERE {table}_id = 1", entries)
        journal.batch.delete_attempt(1, 1, 1)
        journal.batch.delete_attempt(1, 1, 2)
        await journal.flush()
        assert query(tmp_path, "SELECT stays FROM failure") == [("[[1,1],[2",), ("[[2,2]]",)]
    assert len(check(tmp_path).problems) == 2
    async with opened_inside(tmp_path, now_ms=NOW_MS + 8 * DAY_MS) as (journal, inside):
        await inside.sweep()
        assert query(tmp_path, "SELECT count(*) FROM failure") == query(tmp_path, "SELECT count(*) FROM outcome") == [(0,)]
        assert journal.statistics.history_bytes >= 0


async def test_marks_and_transactions_go_after_a_day(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.producer_high_watermark("old", 1, NOW_MS)
        journal.batch.producer_high_watermark("new", 1, NOW_MS + DAY_MS)
        journal.batch.committed("old", NOW_MS)
        journal.batch.committed("new", NOW_MS + DAY_MS)
        journal.batch.clock(NOW_MS + DAY_MS + 1)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT producer FROM producer") == [("new",)]
        assert query(tmp_path, "SELECT transaction_id FROM committed") == [("new",)]


async def test_a_deleted_queue_stays_while_history_may_speak_of_it(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue(1, deleted_at_ms=NOW_MS))
        journal.batch.queue(queue(2))
        journal.batch.counts(1, 1)[0] += 1
        journal.batch.clock(NOW_MS + 6 * DAY_MS)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT queue_id FROM queue") == [(1,), (2,)]
        journal.batch.clock(NOW_MS + 8 * DAY_MS)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT queue_id FROM queue") == [(2,)]
        assert query(tmp_path, "SELECT count(*) FROM minute") == [(0,)]
    async with opened(tmp_path) as (_, recovered):
        assert recovered.next_queue_id == 3


async def test_free_pages_go_back_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.retention._VACUUM_LEAST_PAGES", 100)
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue())
        for sequence in range(1, 501):
            send(journal, sequence, of=message(sequence, b"x" * 12_000))
        await journal.flush()
        for sequence in range(1, 501):
            journal.batch.delete_all((sequence,))
        await journal.flush()
        before = query(tmp_path, "PRAGMA page_count")[0][0]
        sizes = [before]
        for _ in range(12):
            inside.rest()
            await inside.upkeep(idle=False)
            sizes.append(query(tmp_path, "PRAGMA page_count")[0][0])
        assert all(0 <= earlier - later <= 65 for earlier, later in pairwise(sizes))
        assert sizes[-1] < before - 300
        assert journal.statistics.pages_given_back >= 300


async def test_checkpoints_come_every_so_much_wal_and_it_is_used_again(tmp_path: Path) -> None:
    async with opened(tmp_path, checkpoint_every_bytes=1 << 20) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 401):
            send(journal, sequence, of=message(sequence, b"x" * 12_000))
            if sequence % 10 == 0:
                await journal.flush()
        assert journal.statistics.checkpoints >= 3
        assert journal.wal_bytes < 2 << 20
        assert (tmp_path / "homing.db-wal").stat().st_size < 3 << 20
    assert not (tmp_path / "homing.db-wal").exists()


async def test_a_reader_that_holds_the_wal_is_told_of_and_nobody_waits(tmp_path: Path) -> None:
    reported: list[bool] = []
    async with opened_inside(tmp_path, checkpoint_every_bytes=1 << 20, wal_limit_bytes=2 << 20) as (journal, inside):
        journal.on_wal_limit = reported.append
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        reader = sqlite3.connect(f"{(tmp_path / 'homing.db').as_uri()}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM reference").fetchone()
        for sequence in range(2, 402):
            send(journal, sequence, of=message(sequence, b"x" * 12_000))
            if sequence % 10 == 0:
                await journal.flush()
        assert reported == [True]
        held_up = journal.statistics.checkpoints
        for sequence in range(402, 422):
            send(journal, sequence)
            await journal.flush()
        assert journal.statistics.checkpoints <= held_up + 5
        reader.close()
        inside.rest()
        for sequence in range(500, 500 + 2 * UNSEEN_ROWS):
            send(journal, sequence)
            await journal.flush()
        assert reported == [True, False]


def _minutes(directory: Path) -> list[tuple[int, ...]]:
    return query(directory, "SELECT queue_id, minute, sent, succeeded FROM minute ORDER BY 1, 2")


async def test_counts_get_coarser_with_age_and_keep_their_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.retention._FOLD_QUEUES", 2)
    now = NOW_MS // 60_000
    week, ages = 7 * 1_440, (0, 5, 59, 60, 61, 3_000)
    spread = [now - week * weeks - age for weeks in (0, 1, 8, 104) for age in ages]
    async with opened_inside(tmp_path, history_retention_ms=week * 60_000) as (journal, inside):
        for queue_id in range(1, 6):
            journal.batch.queue(queue(queue_id))
            for place, minute in enumerate(spread):
                counts = journal.batch.counts(queue_id, minute)
                counts[0], counts[3] = 10**place % 997, 10**place % 997
        journal.batch.clock(NOW_MS + 3_600_000)
        before = {queue_id: sum(sent for one, _, sent, _ in _counted(journal) if one == queue_id) for queue_id in range(1, 6)}
        await journal.flush()
        await inside.sweep()
        rows = _minutes(tmp_path)
        for queue_id in range(1, 6):
            mine = [row for row in rows if row[0] == queue_id]
            assert sum(row[2] for row in mine) == sum(row[3] for row in mine) == before[queue_id]
            assert [row[1] for row in mine] == sorted(_expected(spread, now + 60, week))
    assert check(tmp_path).problems == []


def _counted(journal: Journal) -> list[tuple[int, int, int, int]]:
    return [(queue_id, minute, counts[0], counts[3]) for (queue_id, minute), counts in journal.batch.queue_stats.items()]


def _expected(minutes: list[int], now: int, week: int) -> set[int]:
    """Where each count stands in the end: at the beginning of the widest stretch that ended before its age's limit."""
    found = set()
    for minute in minutes:
        for retentions, width in ((1, 60), (8, 1_440), (104, 43_200)):
            limit = now - retentions * week
            if minute < limit - limit % width:
                minute -= minute % width
        found.add(minute)
    return found


async def test_folding_goes_on_in_bounded_steps_and_rests_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of its own accord it does nothing meanwhile.
    monkeypatch.setattr("homing.journal.commit.wakeup._IDLE_S", 3600.0)
    old = NOW_MS // 60_000 - 8 * 1_440
    async with opened_inside(tmp_path) as (journal, inside):
        for minute in range(old - 300, old):
            journal.batch.counts(1, minute)[0] += 1
        journal.batch.queue(queue())
        journal.batch.clock(NOW_MS + 3_600_000)
        await journal.flush()
        inside.rest()
        sizes, due = [300], True
        while due:
            due = (await inside.upkeep(idle=False)).upkeep_due
            sizes.append(query(tmp_path, "SELECT count(*) FROM minute")[0][0])
        assert all(0 <= earlier - later <= 10 for earlier, later in pairwise(sizes))
        assert sizes[-1] in (5, 6)
        assert query(tmp_path, "SELECT sum(sent) FROM minute") == [(300,)]
        journal.batch.counts(1, old - 1)[0] += 1
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT sent FROM minute WHERE minute = ?", old - 1) == [(1,)]
        journal.batch.clock(NOW_MS + 7_200_000)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT sum(sent), count(*) FROM minute") == [(301, sizes[-1])]


async def test_queues_that_come_and_go_leave_a_bounded_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.leftovers.DELETED_QUEUES", 500)
    monkeypatch.setattr("homing.journal.upkeep.retention._HISTORY_ROWS", 256)
    monkeypatch.setattr("homing.journal.upkeep.retention._STEP_ROWS", 4_096)
    async with opened_inside(tmp_path) as (journal, inside):
        for queue_id in range(1, 10_001):
            ended_ms = NOW_MS + queue_id * 1_000
            journal.batch.queue(queue(queue_id, created_at_ms=ended_ms - 500, deleted_at_ms=ended_ms))
            if queue_id % 3:
                # Two of three had a message; one of ten is still told of.
                journal.batch.counts(queue_id, ended_ms // 60_000)[QueueStat.SENT] += 1
            if queue_id % 10 == 1:
                journal.batch.counts(queue_id, ended_ms // 60_000)[QueueStat.FAILED] += 1
                keep_attempt(journal.batch, attempt(queue_id, queue_id, 1, ended_ms)._replace(queue_id=queue_id))
        journal.batch.clock(NOW_MS + 10_000_000)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT count(*) FROM queue WHERE queue_id % 10 = 1") == [(1_000,)]
        (plain,) = query(tmp_path, "SELECT count(*) FROM queue WHERE queue_id % 10 != 1")[0]
        assert plain <= 500
        assert query(tmp_path, "SELECT count(*) FROM minute")[0][0] <= 1_000 + 500
        assert query(tmp_path, "SELECT count(*) FROM minute WHERE queue_id NOT IN (SELECT queue_id FROM queue)") == [(0,)]
        journal.batch.clock(NOW_MS + 9 * DAY_MS)
        await journal.flush()
        await inside.sweep()
        for table in ("queue", "minute", "failure"):
            assert query(tmp_path, f"SELECT count(*) FROM {table}") == [(0,)]


async def test_duplicate_ids_go_with_their_address_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.leftovers._STEP_ROWS", 10)
    address = AddressRecord("a", 1, True, NOW_MS)
    async with opened_inside(tmp_path) as (journal, inside):
        for name in ("a", "b", "back"):
            journal.batch.address(address._replace(name=name))
            for number in range(25):
                journal.batch.duplicate(name, f"old {number}")
        await journal.flush()
        for name in ("a", "back"):
            journal.batch.delete_address(name)
        await journal.flush()
        journal.batch.address(address._replace(name="back"))
        for number in (0, 99):
            journal.batch.duplicate("back", f"old {number}")
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT address, count(*) FROM duplicate GROUP BY address") == [("b", 25), ("back", 2)]
        # One that was removed and is there again in one commit keeps what came since.
        journal.batch.delete_address("b")
        journal.batch.address(address._replace(name="b"))
        journal.batch.duplicate("b", "new")
        journal.batch.delete_address("back")
        await journal.flush()
    async with opened_inside(tmp_path) as (journal, inside):
        assert "back" not in inside.found.duplicates
        await inside.sweep()
        assert query(tmp_path, "SELECT DISTINCT address FROM duplicate") == [("b",)]


@pytest.mark.parametrize("apart", [True, False])
async def test_duplicate_ids_of_an_address_that_was_removed_do_not_come_back_after_a_kill(tmp_path: Path, apart: bool) -> None:
    """A message would be taken for one that was sent to the address of that name before, and confirmed without being kept."""
    address = AddressRecord("a", 1, True, NOW_MS)
    async with opened(tmp_path / "j") as (journal, _):
        journal.batch.address(address)
        journal.batch.duplicate("a", "old")
        if apart:
            await journal.flush()
        journal.batch.delete_address("a")
        if apart:
            await journal.flush()
        journal.batch.address(address)
        journal.batch.duplicate("a", "new")
        await journal.flush()
        shutil.copytree(tmp_path / "j", tmp_path / "killed")
    async with opened(tmp_path / "killed") as (_, recovered):
        assert recovered.duplicates == {"a": ["new"]}


async def test_policies_that_clients_bring_are_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.leftovers.POLICIES", 5)
    monkeypatch.setattr("homing.journal.upkeep.leftovers._STEP_ROWS", 10)
    async with opened_inside(tmp_path) as (journal, inside):
        for number in range(40):
            journal.batch.policy(PolicyRecord(f"p{number}", NOW_MS + number, {"max_delivery_attempts": number}))
        await journal.flush()
        journal.batch.policy(PolicyRecord("p3", NOW_MS + 99, {"max_delivery_attempts": 3}))
        await journal.flush()
        await inside.sweep()
        kept = query(tmp_path, "SELECT policy, from_ms - ? FROM policy ORDER BY from_ms", NOW_MS)
        assert kept == [("p36", 36), ("p37", 37), ("p38", 38), ("p39", 39), ("p3", 99)], "those that were entered last"


async def test_counts_that_come_after_their_queue_has_gone_go_too(tmp_path: Path) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue(1, deleted_at_ms=NOW_MS))
        journal.batch.clock(NOW_MS)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT count(*) FROM queue") == [(0,)]
        journal.batch.counts(1, NOW_MS // 60_000)[QueueStat.PURGED] += 1
        journal.batch.clock(NOW_MS + 3_600_000)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT count(*) FROM minute") == [(0,)]
