"""Counts of a batch, added to those of their queue and minute, or consumer and hour."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ..contract import QueueStat
from ..store.bulk_statements import run_values
from .batch import WriteBatch

MINUTE_NAMES = [column.name.lower() for column in QueueStat]


def _sums(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} = {name} + excluded.{name}" for name in columns)


COUNT_CONSUMER_STATS = (
    "INSERT INTO served VALUES {values} ON CONFLICT (hour, queue_id, consumer) DO UPDATE SET"
    f" {_sums(('succeeded', 'held_ms', 'failed', 'failed_ms'))},"
    " first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"
)


def write_counts(connection: sqlite3.Connection, batch: WriteBatch) -> None:
    counted = [column for column, counts in enumerate(zip(*batch.queue_stats.values(), strict=True)) if any(counts)]
    if counted:
        flat: list[int] = []
        for key, row in batch.queue_stats.items():
            flat += key
            for column in counted:
                flat.append(row[column])
        run_values(connection, _count_minutes(tuple(counted)), 2 + len(counted), flat)
    served = [v for (queue_id, minute, consumer), row in batch.consumer_stats.items() for v in (minute // 60, queue_id, consumer, *row)]
    run_values(connection, COUNT_CONSUMER_STATS, 9, served)


def _count_minutes(columns: tuple[int, ...]) -> str:
    """Increments of these columns alone: for one it takes a third less than for all."""
    names = [MINUTE_NAMES[column] for column in columns]
    into = ", ".join(("queue_id", "minute", *names))
    return f"INSERT INTO minute ({into}) VALUES {{values}} ON CONFLICT (queue_id, minute) DO UPDATE SET {_sums(names)}"
