"""Older journals are brought up in one transaction, newer and foreign ones are refused untouched."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import msgpack
import pytest

from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.migrations import VERSION, bring_up, split, steps, version_of
from homing.journal.read.check import check
from homing.journal.read.queries import JournalReader
from homing.journal.store.packing import counts_checksum, pack_message
from homing.journal.store.sqlite import APPLICATION_ID
from tests.unit.journal_support import NOW_MS, OPTIONS, message, opened, query, queue, reference

#: The tables as they were before versions counted.
VERSION_0 = Path(__file__).with_name("journal_version_0.sql")
NACK, DETAIL = msgpack.packb({"outcome": "nack"}), msgpack.packb({"address": "a", "sent_at_ms": 5})


def _make_version_0(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "homing.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(VERSION_0.read_text())
        connection.execute("INSERT INTO meta VALUES ('broker_id', 'b-0'), ('reserved_up_to', 500), ('clock_ms', 7), ('clean_stop', 0)")
        values = (1, "q1", "q1", "anycast", None, 1, 1, 0, msgpack.packb({"max_length": 5}), NOW_MS, None)
        connection.execute("INSERT INTO queue VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)
        for sequence, rank in ((5, 5), (6, 0)):
            row = (1, rank, sequence, sequence, 2, 1, 3, 0, None, None, NOW_MS, None, *pack_message(message(sequence)))
            connection.execute("INSERT INTO reference VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", row)
        for message_id, attempt in ((7, 1), (5, 2), (5, 1)):
            attempt_row = (message_id, message_id, attempt, 1, NOW_MS + attempt, NACK)
            connection.execute("INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?)", attempt_row)
        connection.execute("INSERT INTO outcome VALUES (7, 7, 1, ?, 'succeeded', ?)", (NOW_MS + 9, DETAIL))
        connection.execute("INSERT INTO address VALUES ('orders', 1, 1, ?)", (NOW_MS,))
        connection.execute("INSERT INTO duplicate VALUES ('orders', 'd', 4)")


async def test_version_0_comes_up_with_everything_in_it(tmp_path: Path) -> None:
    _make_version_0(tmp_path)
    async with opened(tmp_path) as (journal, recovered):
        assert recovered.references == [
            reference(6, priority=9, delivery_count=2, failed=1, assigned=3),
            reference(5, delivery_count=2, failed=1, assigned=3),
        ]
        assert (recovered.broker_id, recovered.clean_stop, recovered.clock_ms) == ("b-0", False, 7)
        assert (recovered.queues, recovered.next_queue_id) == ([queue()], 2)
        assert recovered.duplicates == {"orders": ["d"]}
        assert journal.next_id() == 500
        # Counts that had no checksum have one now, of what they were.
        ((two,),) = query(tmp_path, "SELECT counts_checksum FROM reference WHERE sequence = 6")
        assert two == counts_checksum(1, 0, 6, 2, 1, 3, 0, None, None)
        assert journal._writer_thread.writer.state.history_bytes == 3 * (len(NACK) + len("[[5,5]]")) + len(DETAIL) + len("[[7,7]]")
    assert check(tmp_path).problems == ["Queue 1 holds messages that were never counted in."]
    with JournalReader(tmp_path) as reader:
        here, gone = reader.history(5), reader.history(7)
    assert here is not None
    assert [(each["attempt"], each["at_ms"], each["outcome"]) for each in here["attempts"]] == [
        (1, NOW_MS + 1, "nack"),
        (2, NOW_MS + 2, "nack"),
    ]
    assert gone is not None
    assert (len(gone["attempts"]), gone["references"]) == (1, [])
    assert gone["outcomes"] == [
        {"sequence": 7, "queue_id": 1, "queue": "q1", "at_ms": NOW_MS + 9, "outcome": "succeeded", "address": "a", "sent_at_ms": 5}
    ]


def test_a_migrated_schema_is_the_schema(tmp_path: Path) -> None:
    def shape(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
        bring_up(connection)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name")]
        return {name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() + _index(connection, name) for name in names}

    _make_version_0(tmp_path)
    with (
        closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as old,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as new,
    ):
        assert shape(old) == shape(new)
        assert version_of(old) == version_of(new) == VERSION


def _index(connection: sqlite3.Connection, name: str) -> list[tuple[object, ...]]:
    return connection.execute(f"PRAGMA index_xinfo({name})").fetchall()


def test_a_step_that_fails_leaves_the_old_version_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_version_0(tmp_path)
    monkeypatch.setattr(
        "homing.journal.migrations.steps", lambda: [*steps(), (VERSION + 1, "CREATE TABLE extra (a);\nINSERT INTO missing VALUES (1);")]
    )
    monkeypatch.setattr("homing.journal.migrations.VERSION", VERSION + 1)
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        before = connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        with pytest.raises(sqlite3.OperationalError):
            bring_up(connection)
        assert connection.execute("SELECT name, sql FROM sqlite_schema").fetchall() == before
        assert version_of(connection) == 0


def test_every_version_has_its_step() -> None:
    assert [version for version, _ in steps()] == list(range(1, VERSION + 1))


def test_split_keeps_statements_whole() -> None:
    assert list(split("CREATE TABLE a (b);\n-- with; a comment\nINSERT INTO a\n  VALUES (1);\n")) == [
        "CREATE TABLE a (b);\n",
        "-- with; a comment\nINSERT INTO a\n  VALUES (1);\n",
    ]


async def _refused(directory: Path) -> JournalError:
    with pytest.raises(JournalError) as caught:
        await Journal.open(directory, JournalOptions(**OPTIONS), NOW_MS)
    return caught.value


async def test_a_journal_of_the_future_is_refused_untouched(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
    path = tmp_path / "homing.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    digest = hashlib.sha256(path.read_bytes()).digest()
    error = await _refused(tmp_path)
    assert (error.code, error.exit_code) == ("journal-newer", 6)
    assert f"version {VERSION + 1}" in error.message
    assert hashlib.sha256(path.read_bytes()).digest() == digest
    with pytest.raises(JournalError) as caught:
        JournalReader(tmp_path)
    assert caught.value.code == "journal-newer"


@pytest.mark.parametrize("content", [b"just some text", b"\x00" * 50_000, b"SQLite format 3\x00" + b"\x07" * 40])
async def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "homing.db"
    path.write_bytes(content)
    error = await _refused(tmp_path)
    assert (error.code, error.exit_code) == ("journal-damaged", 6)
    assert "homing journal check" in error.fix
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "homing.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    digest = hashlib.sha256(path.read_bytes()).digest()
    error = await _refused(tmp_path)
    assert error.code == "journal-damaged"
    assert "another program" in error.message
    assert hashlib.sha256(path.read_bytes()).digest() == digest


async def test_an_empty_file_is_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / "homing.db").touch()
    async with opened(tmp_path) as (_, recovered):
        assert recovered.clean_stop
        assert recovered.references == []


async def test_an_older_copy_that_counted_no_commits_is_served_where_the_operator_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        first_id = journal.next_id()
    # A clean stop left nothing beside it.
    (tmp_path / "homing.db").unlink()
    _make_version_0(tmp_path)
    assert "older copy" in (await _refused(tmp_path)).message
    async with opened(tmp_path, on_damage="quarantine") as (journal, recovered):
        assert len(recovered.references) == 2
        assert journal.next_id() > first_id
    async with opened(tmp_path) as (_, recovered):
        assert len(recovered.references) == 2
