"""Older journals are brought up in one transaction, newer and foreign ones are refused untouched."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgpack
import pytest

from homing.journal.backup.backup import make_of_directory, restore
from homing.journal.backup.before_migration import remove_copy_in_time
from homing.journal.errors import JournalError
from homing.journal.fingerprint import fingerprint
from homing.journal.journal import Journal, JournalOptions
from homing.journal.migrations import VERSION, bring_up, split, steps, version_of
from homing.journal.read.check import check
from homing.journal.read.queries import JournalReader
from homing.journal.store.packing import counts_checksum, pack_message
from homing.journal.store.sqlite import APPLICATION_ID
from tests.unit.journal_support import NOW_MS, OPTIONS, message, opened, query, queue, reference

#: The tables as they were before versions counted.
VERSION_0 = Path(__file__).with_name("journal_version_0.sql")
#: What a broker of release 0.1.0 wrote (``sqlite3 .dump``): of both ``orders`` and ``stock`` two messages rejected over AMQP without a
#: report and one that failed of a KeyError; that rejection muted, that error fixed in 1.4.
VERSION_14 = Path(__file__).with_name("journal_version_14.sql")
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
        connection.execute("INSERT INTO minute (queue_id, minute, sent, succeeded) VALUES (1, ?, 3, 1)", (NOW_MS // 60_000,))
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
        assert journal.statistics.history_bytes == 3 * (len(NACK) + len("[[5,5]]")) + len(DETAIL) + len("[[7,7]]")
    assert check(tmp_path).problems == []
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


def _copies(directory: Path) -> list[Path]:
    return list(directory.glob("before-version-*"))


async def test_as_it_was_it_stands_beside_for_a_week_and_the_log_says_how_to_go_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _make_version_0(tmp_path)
    (tmp_path / "before-version-1").mkdir()
    with caplog.at_level("INFO", "homing.journal"):
        async with opened(tmp_path):
            pass
    (copy,) = _copies(tmp_path)
    assert copy.name == f"before-version-{VERSION}", "one at a time"
    with closing(sqlite3.connect(copy / "homing.db")) as connection:
        assert version_of(connection) == 0
        assert connection.execute("SELECT sequence FROM reference ORDER BY 1").fetchall() == [(5,), (6,)]
    assert f"homing journal restore {copy} --data NEW-DIRECTORY" in caplog.text
    assert check(copy).version == 0
    restore(copy, tmp_path / "restored")
    async with opened(tmp_path / "restored") as (_, recovered):
        assert len(recovered.references) == 2
    remove_copy_in_time(tmp_path)
    assert copy.exists()
    week_ago_s = time.time() - 7 * 86_400 - 1
    os.utime(copy, (week_ago_s, week_ago_s))
    remove_copy_in_time(tmp_path)
    assert not copy.exists()


@pytest.mark.parametrize(("free", "keep", "why"), [(1, True, "twice its size is not free"), (1 << 40, False, "keep-before-migration")])
async def test_without_a_copy_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, free: int, keep: bool, why: str
) -> None:
    _make_version_0(tmp_path)
    monkeypatch.setattr("homing.journal.store.directory.Disk.free_bytes", lambda disk: free)
    async with opened(tmp_path, keep_before_migration=keep):
        pass
    assert _copies(tmp_path) == []
    assert why in caplog.text


def test_an_older_journal_is_checked_read_and_backed_up_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    _make_version_0(directory)
    before = (directory / "homing.db").read_bytes()
    report = check(directory)
    assert (report.version, report.rows["reference"]) == (0, 2)
    assert report.ok
    with JournalReader(directory) as reader:
        history = reader.history(5)
    assert history is not None
    assert [each["attempt"] for each in history["attempts"]] == [1, 2]
    made = make_of_directory(directory, tmp_path / "backups", "one")
    assert made["messages"] == 2
    assert (directory / "homing.db").read_bytes() == before


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


def _make_version_14(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "homing.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 16384")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(VERSION_14.read_text())
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 14")


async def test_faults_of_version_14_muted_and_fixed_ones_become_those_of_their_queues(tmp_path: Path) -> None:
    _make_version_14(tmp_path)
    async with opened(tmp_path) as (_, recovered):
        groups = {(each.record.error_class, each.record.queue): each.record for each in recovered.faults}
    rejected, failed = ([groups[error, queue] for queue in ("orders", "stock")] for error in ("rejected", "KeyError"))
    assert [each.fingerprint for each in rejected] == [fingerprint("rejected", "orders"), fingerprint("rejected", "stock")]
    assert all(each.muted for each in rejected)
    reported = fingerprint("listener", "any", "KeyError", "'GBP'", 'File "make.py", line 22, in bad')
    assert [each.fingerprint for each in failed] == [reported, reported], "a report spans queues"
    assert [each.fixed_in for each in failed] == ["1.4", "1.4"]
    assert check(tmp_path).ok
    with JournalReader(tmp_path) as reader:
        history = reader.history(9)
    assert history is not None
    assert history["attempts"][0]["fault"]["fingerprint"] == failed[0].fingerprint


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
    assert (error.code, error.exit_code) == ("journal-foreign", 6)
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
