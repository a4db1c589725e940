"""What the store uses of aiosqlite's inside, what it sets on SQLite, and how it measures the WAL."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from importlib import metadata
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from homing.journal.store.bulk_statements import delete_integers, release_memory, run_keys, run_values
from homing.journal.store.sqlite import APPLICATION_ID, MAX_VARIABLES, PAGE_BYTES, Store, WalMeter, open_store


def _thread_and_settings(connection: sqlite3.Connection) -> tuple[int, dict[str, object]]:
    names = "page_size auto_vacuum journal_mode synchronous wal_autocheckpoint secure_delete trusted_schema application_id".split()
    return threading.get_ident(), {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


def test_the_version_whose_inside_is_used() -> None:
    assert metadata.version("aiosqlite") == "0.22.1"
    assert aiosqlite.core._STOP_RUNNING_SENTINEL is not None


async def test_run_calls_one_function_on_the_connections_thread(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "x.db")
    assert isinstance(store, Store)
    thread, settings = await store.run(_thread_and_settings)
    again, _ = await store.run(_thread_and_settings)
    await store.close()
    assert thread == again != threading.get_ident()
    assert settings == {
        "page_size": PAGE_BYTES,
        "auto_vacuum": 2,
        "journal_mode": "wal",
        "synchronous": 2,
        "wal_autocheckpoint": 0,
        "secure_delete": 0,
        "trusted_schema": 0,
        "application_id": APPLICATION_ID,
    }


async def test_run_passes_exceptions_and_goes_on(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "x.db")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await store.run(lambda connection: connection.execute("SELECT * FROM missing"))
    assert (await store.run(_thread_and_settings))[1]["journal_mode"] == "wal"
    await store.close()


async def test_a_cancelled_caller_does_not_stop_the_function(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "x.db")
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        started.set()
        go_on.wait(30)
        connection.execute("CREATE TABLE t (a)")
        ended.set()

    task = asyncio.create_task(store.run(slow))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    await store.close()


async def test_a_file_that_is_no_database_is_refused_and_the_thread_ends(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database at all" * 1_000)
    before = threading.enumerate()
    with pytest.raises(sqlite3.DatabaseError):
        await open_store(tmp_path / "x.db")
    assert [thread.name for thread in threading.enumerate() if "connection_worker" in thread.name and thread not in before] == []


async def test_the_meter_counts_frames_as_sqlite_does(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = await open_store(path)
    meter = WalMeter(path)

    def write(connection: sqlite3.Connection, rows: int) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS t (a BLOB)")
        connection.executemany("INSERT INTO t VALUES (zeroblob(20000))", [()] * rows)

    def checkpoint(connection: sqlite3.Connection) -> tuple[int, int]:
        _, log, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return log, copied

    frame = PAGE_BYTES + 24
    for rows in (1, 3, 40, 2, 1):
        await store.run(write, rows)
        pending = meter.pending_bytes()
        log, copied = await store.run(checkpoint)
        assert log == copied
        assert pending == log * frame
        meter.note_checkpoint(copied)
        assert meter.pending_bytes() == 0
    meter.close()
    await store.close()


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 2_047, 2_048, 2_049, 5_000])
def test_statements_cover_every_row_whatever_the_number(rows: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, MAX_VARIABLES)
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, " + ", ".join(f"c{n}" for n in range(16)) + ")")
    flat = [value for key in range(rows) for value in (key, *range(16))]
    assert run_values(connection, "INSERT INTO t VALUES {values}", 17, flat) == rows
    assert connection.execute("SELECT count(*), coalesce(sum(c15), 0) FROM t").fetchone() == (rows, 15 * rows)
    odd = [(key,) for key in range(1, rows, 2)]
    assert run_keys(connection, "DELETE FROM t WHERE k IN (VALUES {values})", 1, odd) == len(odd)
    left = list(range(0, rows, 2))
    assert [row[0] for row in connection.execute("SELECT k FROM t ORDER BY k")] == left
    assert delete_integers(connection, "t", "k", [*left, 10**9]) == len(left)
    connection.close()


def test_ranges_take_only_what_was_named() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO t VALUES (?)", [(key,) for key in range(300)])
    named = {*range(10, 40), 41, 43, *range(100, 200), 299}
    assert delete_integers(connection, "t", "k", named) == len(named)
    assert [row[0] for row in connection.execute("SELECT k FROM t")] == [key for key in range(300) if key not in named]
    connection.close()


class Noting(sqlite3.Connection):
    """With the statements that were run on it."""

    statements: set[str]

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.statements.add(sql)
        return super().execute(sql, parameters)


def test_statements_are_few_whatever_the_number_of_rows() -> None:
    connection = sqlite3.connect(":memory:", factory=Noting)
    connection.statements = set()
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    for rows in range(1, 5_000, 77):
        run_values(connection, "INSERT OR REPLACE INTO t VALUES {values}", 1, range(rows))
        run_keys(connection, "DELETE FROM t WHERE k IN (VALUES {values})", 1, [(key,) for key in range(rows)])
    assert len(connection.statements) <= 1 + 2 * 12, "of 1 to 2,048 rows, doubled each time"
    connection.close()


async def test_statements_that_are_remembered_are_forgotten(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "x.db")
    sql = " ".join(["SELECT", "1 AS one"])
    unknown = sys.getrefcount(sql)
    await store.run(lambda connection: connection.execute(sql).fetchall())
    assert sys.getrefcount(sql) > unknown
    await store.run(release_memory)
    assert sys.getrefcount(sql) == unknown
    await store.close()
