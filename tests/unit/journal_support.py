"""Records for journal tests, and a journal that is opened and closed around a block."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

from homing.journal.commit.batch import WriteBatch
from homing.journal.contract import (
    AttemptDetail,
    Attempts,
    EndedEntry,
    HopDetail,
    HopRecord,
    MessageRecord,
    OutcomeDetail,
    Outcomes,
    QueueRecord,
    QueueStat,
    Recovered,
    ReferenceCounts,
    ReferenceRecord,
)
from homing.journal.journal import Journal, JournalOptions
from homing.journal.store.history_rows import ATTEMPTS, OUTCOMES

NOW_MS = 1_700_000_000_000
#: What table ``minute`` counts of messages that are not durable, since version 15.
TRANSIENT = [column.name.lower() for column in QueueStat if column >= QueueStat.TRANSIENT_SENT]
#: Small, so that a test neither fills the disk nor takes time.
OPTIONS: dict[str, Any] = {"disk_reserve_bytes": 1 << 20, "id_block": 1_000}


@asynccontextmanager
async def opened(directory: Path, now_ms: int = NOW_MS, **options: Any) -> AsyncIterator[tuple[Journal, Recovered]]:
    journal, recovered = await Journal.open(directory, JournalOptions(**{**OPTIONS, **options}), now_ms)
    try:
        yield journal, recovered
    finally:
        await journal.close()


def queue(queue_id: int = 1, name: str | None = None, **fields: Any) -> QueueRecord:
    name = name or f"q{queue_id}"
    return QueueRecord(queue_id, name, name, "anycast", None, True, True, False, {"max_length": 5}, NOW_MS)._replace(**fields)


def message(message_id: int, body: bytes = b"body", **fields: Any) -> MessageRecord:
    return MessageRecord(message_id, "orders", body, {"k": "v", "n": 7}, 4, NOW_MS, None, "client/1")._replace(**fields)


def reference(sequence: int, queue_id: int = 1, of: MessageRecord | None = None, **fields: Any) -> ReferenceRecord:
    stored = of or message(sequence)
    return ReferenceRecord(queue_id, 4, sequence, 0, 0, 0, 0, None, None, 0, 0, NOW_MS, None, stored, False)._replace(**fields)


def hop(sequence: int, **detail: Any) -> HopRecord:
    """One that ended the entry ``sequence``."""
    known = {"reason": "rejected", "queue": "q1", "address": "q1", "routing_type": "anycast", "at_ms": NOW_MS, "attempts": 1}
    return sequence, cast(HopDetail, {**known, "delivery_count": 1, "expires_at_ms": None, **detail})


def counted(**fields: Any) -> ReferenceCounts:
    return ReferenceCounts(1, 1, 1, 0, NOW_MS + 5_000, None)._replace(**fields)


def attempt(message_id: int, sequence: int, number: int, at_ms: int = NOW_MS, **fields: Any) -> Attempts:
    detail = AttemptDetail(
        "orders", "nack", "c1", "7", at_ms - 3, at_ms - 2, number, number, 5_000, at_ms + 5_000,
        "redeliver", "abc", {"error_type": "Timeout", "error_text": "no answer"},
    )._replace(**fields)  # fmt: skip
    return Attempts(1, number, at_ms, detail, [(message_id, sequence)])


def keep_attempt(batch: WriteBatch, attempts: Attempts) -> None:
    """The record alone, without the counts that ``WriteBatch.failed`` has beside it."""
    if not batch.touched:
        batch.touch()
    batch.attempts.append(attempts)


def outcome(message_id: int, sequence: int, at_ms: int = NOW_MS, **fields: Any) -> Outcomes:
    entries: list[EndedEntry] = [(message_id, sequence, at_ms - 7, at_ms - 5)]
    return Outcomes(1, at_ms, "succeeded", OutcomeDetail("orders", 1, 1), entries)._replace(**fields)


def send(journal: Journal, sequence: int, queue_id: int = 1, **fields: Any) -> ReferenceRecord:
    """Add a reference and count it in, as the broker does."""
    record = reference(sequence, queue_id, **fields)
    journal.batch.add(record)
    journal.batch.counts(queue_id, 1)[QueueStat.SENT] += 1
    return record


def settle(journal: Journal, sequence: int, queue_id: int = 1) -> None:
    journal.batch.delete_all((sequence,))
    journal.batch.counts(queue_id, 1)[QueueStat.SUCCEEDED] += 1


async def stored(journal: Journal) -> None:
    """All that was appended is on disk, packed or not. Raises what ``failed`` holds after a failure."""
    over = asyncio.get_running_loop().create_future()
    journal.when_safe(lambda: over.set_result(None))
    await asyncio.wait([over, journal.failed], return_when=asyncio.FIRST_COMPLETED)
    if not over.done():
        journal.failed.result()


def query(directory: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What is on disk now, through a connection of its own; ``attempts`` and ``outcomes``: a row for each."""
    with closing(sqlite3.connect(f"{(directory / 'homing.db').as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute(f"CREATE TEMP VIEW attempts AS SELECT * FROM {ATTEMPTS}")
        connection.execute(f"CREATE TEMP VIEW outcomes AS SELECT * FROM {OUTCOMES}")
        return connection.execute(sql, values).fetchall()


def change(directory: Path, sql: str, *values: Any) -> None:
    """By another hand than the journal's, open or not."""
    with closing(sqlite3.connect(directory / "homing.db", isolation_level=None)) as connection:
        connection.execute(sql, values)


def sequences(directory: Path) -> list[int]:
    return [row[0] for row in query(directory, "SELECT sequence FROM reference ORDER BY sequence")]
