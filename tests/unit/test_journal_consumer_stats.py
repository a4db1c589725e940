"""Which consumer the successes went to: booked with the minute that counts them, kept by the hour, gone with history."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from homing.journal.commit.batch import WriteBatch
from homing.journal.contract import QueueStat
from homing.journal.journal import Journal
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import NOW_MS, query, queue, reference

HOUR = NOW_MS // 3_600_000


def test_it_goes_to_the_batch_whose_minute_counts_the_success() -> None:
    waiting: deque[WriteBatch] = deque()
    older, now = WriteBatch(older=waiting), WriteBatch(older=waiting)
    older.add(reference(1))
    older.closed_s = 1.0
    waiting.append(older)
    now.succeed(1, 7, {1, 9}, True, "c1/1", 50)
    now.succeed(1, 7, {10}, True, "c1/2", 3)
    assert older.consumer_stats == {(1, 7, "c1/1"): [1, 50, 0, 0, 0, 0]}
    assert now.consumer_stats == {(1, 7, "c1/1"): [1, 0, 0, 0, 0, 0], (1, 7, "c1/2"): [1, 3, 0, 0, 0, 0]}
    for batch in (older, now):
        assert sum(number for number, *_ in batch.consumer_stats.values()) == batch.queue_stats[1, 7][QueueStat.SUCCEEDED]
    older.absorb(now)
    assert older.consumer_stats == {(1, 7, "c1/1"): [2, 50, 0, 0, 0, 0], (1, 7, "c1/2"): [1, 3, 0, 0, 0, 0]}


def serve(journal: Journal, minute: int, consumer: str, number: int, held_ms: int) -> None:
    journal.batch.add_consumer_stats(1, minute, consumer, [number, held_ms, 0, 0, 0, 0])
    journal.batch.counts(1, minute)[QueueStat.SUCCEEDED] += number


async def test_it_is_kept_by_the_hour_until_history_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.retention._STEP_ROWS", 10)
    monkeypatch.setattr("homing.journal.upkeep.retention._HISTORY_ROWS", 10)
    async with opened_inside(tmp_path, history_retention_ms=3_600_000) as (journal, inside):
        journal.batch.queue(queue())
        for minute in (0, 1, 59, 60, 240):
            serve(journal, HOUR * 60 + minute, "c1/1", 2, 30)
        for number in range(25):
            serve(journal, HOUR * 60, f"c{number}/9", 1, 0)
        await journal.flush()
        serve(journal, HOUR * 60 + 5, "c1/1", 1, 5)
        await journal.flush()
        rows = query(tmp_path, "SELECT hour, succeeded, held_ms FROM served WHERE consumer = 'c1/1' ORDER BY 1")
        assert rows == [(HOUR, 7, 95), (HOUR + 1, 2, 30), (HOUR + 4, 2, 30)]
        journal.batch.clock((HOUR + 3) * 3_600_000)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT hour FROM served") == [(HOUR + 4,)]


async def test_where_there_are_very_many_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.upkeep.retention._SERVED_ROWS", 12)
    async with opened_inside(tmp_path) as (journal, inside):
        for hour in range(4):
            for number in range(5):
                serve(journal, (HOUR + hour) * 60, f"c{number}/1", 1, 0)
        await journal.flush()
        await inside.sweep()
        assert query(tmp_path, "SELECT DISTINCT hour FROM served ORDER BY 1") == [(HOUR + 2,), (HOUR + 3,)]
