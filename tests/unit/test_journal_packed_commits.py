"""Small commits stand packed in table ``packed_commit`` until the tables have them: whatever comes between, everything is there once."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from homing.journal.backup.backup import make_of_directory, restore
from homing.journal.commit.batch import SMALL_ROWS
from homing.journal.commit.batch_writer import BatchWriter
from homing.journal.commit.packed_commits import problems, remove_rows
from homing.journal.commit.writer_thread import PACKED_ROWS
from homing.journal.errors import JournalError
from homing.journal.journal import Journal
from homing.journal.read.check import check
from homing.journal.read.pages import Page, Wanted
from homing.journal.read.queries import JournalReader
from homing.journal.store.commits import commit, next_number, read_last_commit
from homing.journal.store.commits import counted as counted_commits
from homing.journal.store.sync_thread import Answer, SyncThread
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import (
    NOW_MS,
    attempt,
    counted,
    keep_attempt,
    message,
    opened,
    query,
    queue,
    reference,
    send,
    sequences,
    settle,
    stored,
)

_LAST = "SELECT max(number) FROM packed_commit"
_PACKED = "SELECT number FROM packed_commit ORDER BY number"


@pytest.fixture(autouse=True)
def packed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.journal._PACKED_S", 3600.0)


def _commits(directory: Path) -> int:
    """As noted beside the database."""
    noted = read_last_commit(directory)
    assert noted is not None
    return noted.commits


async def _killed(directory: Path, *, each: int = 5) -> Path:
    """What a kill leaves of so many small commits: the first message failed since, the second is over."""
    async with opened(directory) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        for sequence in range(1, each - 1):
            send(journal, sequence)
            await stored(journal)
        journal.batch.change([1], counted(delivery_count=1, failed=1))
        keep_attempt(journal.batch, attempt(1, 1, 1))
        await stored(journal)
        settle(journal, 2)
        journal.batch.confirms.append(lambda: None)
        await stored(journal)
        assert query(directory, "SELECT count(*) FROM packed_commit") == [(each,)]
        assert sequences(directory) == []
        return Path(shutil.copytree(directory, directory.with_name(f"{directory.name}-killed")))


async def test_what_a_kill_leaves_packed_is_there_after_a_start(tmp_path: Path) -> None:
    killed = await _killed(tmp_path / "a")
    noted = _commits(killed)
    async with opened(killed) as (journal, recovered):
        assert {each.sequence: (each.delivery_count, each.failed) for each in recovered.references} == {1: (1, 1), 3: (0, 0)}
        assert query(killed, "SELECT message_id, sequence, attempt FROM attempts") == [(1, 1, 1)]
        assert query(killed, "SELECT value FROM meta WHERE key = 'commits'")[0][0] > noted
        assert query(killed, _PACKED) == []
        send(journal, 9)
        await stored(journal)
    assert query(killed, _PACKED) == [], "after a clean stop"
    async with opened(killed) as (_, again):
        assert [each.sequence for each in again.references] == [1, 3, 9]
    assert check(killed).problems == []


async def test_who_reads_a_directory_that_a_kill_left_sees_all_and_changes_nothing(tmp_path: Path) -> None:
    killed = await _killed(tmp_path / "a")
    before = (killed / "homing.db-wal").read_bytes()
    with JournalReader(killed) as reader:
        history = reader.history(1)
        assert history is not None
        assert [each["attempt"] for each in history["attempts"]] == [1]
    assert check(killed).problems == []
    assert (killed / "homing.db-wal").read_bytes() == before
    assert make_of_directory(killed, tmp_path, "backup")["messages"] == 2
    assert query(tmp_path / "backup", _PACKED) == []
    restore(tmp_path / "backup", tmp_path / "restored")
    async with opened(tmp_path / "restored") as (_, recovered):
        assert [each.sequence for each in recovered.references] == [1, 3]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (f"UPDATE packed_commit SET batch_blob = zeroblob(length(batch_blob)) WHERE number = ({_LAST}) - 2", "checksum"),
        (f"UPDATE packed_commit SET number = number + 1000 WHERE number = ({_LAST})", "checksum"),
        (f"DELETE FROM packed_commit WHERE number = ({_LAST}) - 2", "nothing is there"),
        ("UPDATE packed_commit SET version = 99", "version"),
        ("UPDATE meta SET value = value + 2 WHERE key = 'commits'", "is in the tables already"),
    ],
)
async def test_a_damaged_packed_row_is_found(tmp_path: Path, damage: str, said: str) -> None:
    killed = await _killed(tmp_path / "a")
    with closing(sqlite3.connect(killed / "homing.db")) as connection, connection:
        connection.execute(damage)
    assert any(said in problem for problem in check(killed).problems)
    with pytest.raises(JournalError, match=said) as raised:
        async with opened(killed):
            pass
    assert raised.value.code == "journal-damaged"
    async with opened(killed, on_damage="quarantine") as (_, recovered):
        assert [each.sequence for each in recovered.references][:1] in ([1], [3], [])
    assert query(killed, _PACKED) == []


async def test_a_missing_packed_row_at_the_end_is_a_missing_commit(tmp_path: Path) -> None:
    killed = await _killed(tmp_path / "a")
    with closing(sqlite3.connect(killed / "homing.db")) as connection, connection:
        connection.execute(f"DELETE FROM packed_commit WHERE number = ({_LAST})")
    with pytest.raises(JournalError, match=r"1 of .* commits are missing"):
        async with opened(killed):
            pass


async def test_a_page_shows_what_stands_packed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        send(journal, 2)
        settle(journal, 1)
        await stored(journal)
        seen: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        def take(page: Page) -> None:
            seen.set_result([record.sequence for record in page.records])

        journal.read(Wanted(1, "ready", 4), take, seen.set_exception)
        assert await asyncio.wait_for(seen, 20) == [2]


async def test_who_reads_the_tables_is_called_when_they_have_it(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        send(journal, 1)
        await stored(journal)
        journal.when_readable(lambda: seen.append(sequences(tmp_path)))
        await stored(journal)
        assert seen == [[1]]
        journal.when_readable(lambda: seen.append(sequences(tmp_path)))
        assert seen == [[1], [1]], "at once: nothing stands packed"


async def test_few_wait_for_more_and_go_to_the_tables_after_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.journal._PACKED_S", 0.01)
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        send(journal, 1)
        await stored(journal)
        async with asyncio.timeout(20):
            while sequences(tmp_path) != [1]:  # noqa: ASYNC110 - until a time has passed
                await asyncio.sleep(0.01)
        assert query(tmp_path, _PACKED) == []


async def test_they_wait_no_longer_where_one_follows_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.journal._PACKED_S", 0.0)
    monkeypatch.setattr("homing.journal.commit.writer_thread._LONG_S", 30.0)
    seen: list[int] = []
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()

        def go_on(number: int) -> None:
            seen.extend(sequences(tmp_path)[len(seen) :])
            if number < 10:  # far fewer rows than go together
                send(journal, number)
                journal.when_safe(partial(go_on, number + 1))

        go_on(1)
        await stored(journal)
        while journal.busy():
            await stored(journal)
        assert seen[:6] == [1, 2, 3, 4, 5, 6]


async def test_what_comes_while_it_stops_does_not_stay_packed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())

        def late() -> None:
            send(journal, 1)

        journal.when_safe(late)
    assert (sequences(tmp_path), query(tmp_path, _PACKED)) == ([1], [])
    assert query(tmp_path, "SELECT value FROM meta WHERE key = 'clean_stop'") == [(1,)]


async def test_to_wait_for_what_is_there_already_is_no_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        before = _commits(tmp_path)
        journal.batch.after.append(lambda: None)
        await journal.flush()
        assert _commits(tmp_path) == before


async def test_an_error_of_who_is_told_of_a_commit_ends_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.writer_thread._NO_DISK_MS", 0.0)
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()

        def in_doubt() -> None:
            raise ValueError("in doubt")

        journal.on_answered = in_doubt
        send(journal, 1)
        with pytest.raises(JournalError, match="in doubt"):
            await asyncio.wait_for(journal.failed, 20)


async def test_what_goes_to_the_tables_says_nothing_of_the_disk_and_leaves_out_no_history_uncounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        journal.batch.queue(queue())
        await journal.flush()
        writer = inside.writer
        for number in (1, 2):
            send(journal, number)
            journal.batch.change([number], counted(delivery_count=1, failed=1))
            keep_attempt(journal.batch, attempt(number, number, 1))
            await stored(journal)
            if number == 1:
                writer.sync_ms = 100.0
                await inside.store.run(writer.merge)
                assert writer.sync_ms == 100.0
        write, refused = writer.writer.write, sqlite3.OperationalError("database or disk is full")
        refused.sqlite_errorcode = sqlite3.SQLITE_FULL

        def full_at_first(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(writer.writer, "write", write)
            raise refused

        monkeypatch.setattr(writer.writer, "write", full_at_first)
        await journal.flush()
        assert query(tmp_path, "SELECT message_id FROM attempts") == [(1,)]
        assert journal.statistics.history_dropped == 1


@pytest.mark.parametrize("seed", range(4))
async def test_packed_or_not_a_journal_holds_the_same(tmp_path: Path, seed: int) -> None:
    """What was done to it is remembered beside, and what it holds after a kill at any time compared with that."""
    rng, here = random.Random(seed), dict[int, int]()
    async with opened(tmp_path / "a", elide=bool(seed % 2)) as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        for sequence in range(1, 250):
            _act(rng, journal, here, sequence)
            await (journal.flush() if rng.random() < 0.03 else stored(journal))
            if rng.random() < 0.05:
                killed = shutil.copytree(tmp_path / "a", tmp_path / f"killed-{sequence}")
                async with opened(killed) as (_, recovered):
                    assert {each.sequence: each.failed for each in recovered.references} == here
                    assert query(killed, "SELECT coalesce(sum(sent), 0) FROM minute") == [(sequence,)]
                    assert query(killed, "SELECT count(*) FROM attempts") == [(sum(here.values()),)]
                shutil.rmtree(killed)
    assert check(tmp_path / "a").problems == []


def _act(rng: random.Random, journal: Journal, here: dict[int, int], sequence: int) -> None:
    """Sends one, and fails or ends some of those that are there."""
    send(journal, sequence, of=message(sequence, rng.randbytes(rng.choice((0, 300, 20_000)))))
    here[sequence] = 0
    for each in rng.sample(sorted(here), min(len(here), rng.randrange(3))):
        if here[each] or rng.random() < 0.5:
            settle(journal, each)
            for number in range(1, here.pop(each) + 1):
                journal.batch.delete_attempt(each, each, number)
        else:
            here[each] += 1
            journal.batch.change([each], counted(delivery_count=1, failed=1))
            keep_attempt(journal.batch, attempt(each, each, 1))


async def test_everything_that_a_small_commit_may_hold_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as (journal, _):
        journal.batch.queue(queue())
        await journal.flush()
        batch: Any = journal.batch
        batch.add_message(message(70))
        batch.add(reference(7, of=message(70), shared=True))
        batch.producer_high_watermark("client/1", 17, NOW_MS)
        batch.duplicate("orders", "first")
        batch.committed("t-1", NOW_MS)
        batch.clock(NOW_MS + 77)
        await stored(journal)
        assert len(query(tmp_path / "a", _PACKED)) == 1
        killed = shutil.copytree(tmp_path / "a", tmp_path / "killed")
    async with opened(killed) as (_, recovered):
        assert [each.message.message_id for each in recovered.references] == [70]
        assert recovered.producers == {"client/1": (17, NOW_MS)}
        assert recovered.committed == {"t-1": NOW_MS}
        assert recovered.clock_ms == NOW_MS + 77


@pytest.mark.plain
async def test_the_loop_writes_a_small_batch_and_a_thread_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[tuple[str, bool]] = []
    async with opened_inside(tmp_path) as (journal, inside):
        writer, here = inside.writer, threading.get_ident()
        ways: dict[str, Callable[..., Any]] = {"write": writer.writer.write, "pack": writer.writer.pack}
        synced = threading.Event()

        def by(way: str, refused: BaseException | None = None) -> Callable[..., Any]:
            def writing(*arguments: Any, **named: Any) -> Any:
                nonlocal refused
                wrote.append((way, threading.get_ident() == here))
                if error := refused:
                    refused = None
                    raise error
                return ways[way](*arguments, **named)

            return writing

        for way in ways:
            monkeypatch.setattr(writer.writer, way, by(way))
        monkeypatch.setattr(writer.meter, "sync", lambda: synced.wait(30))
        # A thread may find a moment to be slow in, whatever it runs.
        monkeypatch.setattr("homing.journal.commit.writer_thread._LONG_S", 30.0)
        send(journal, 1)
        storing = asyncio.create_task(stored(journal))
        async with asyncio.timeout(30):
            while query(tmp_path, "SELECT count(*) FROM packed_commit") != [(1,)]:  # noqa: ASYNC110 - until it is written
                await asyncio.sleep(0)
        assert not storing.done(), "nobody is answered before the sync"
        assert sequences(tmp_path) == []
        synced.set()
        await storing
        await journal.flush()
        assert (sequences(tmp_path), query(tmp_path, _PACKED)) == ([1], [])
        assert wrote == [("pack", True), ("write", False)], "packed, until somebody reads the tables"
        wrote.clear()
        for count in (PACKED_ROWS - 1, PACKED_ROWS, SMALL_ROWS - 1, SMALL_ROWS):  # and a row of counts
            for number in range(count):
                send(journal, 1000 * count + number)
            await stored(journal)
        assert wrote == [("pack", True), ("write", True), ("write", True), ("write", False)], "few rows packed, some not, many not here"
        wrote.clear()
        for over in (30.0, 0.0):
            monkeypatch.setattr("homing.journal.commit.writer_thread._LONG_S", over)
            send(journal, int(over) + 2)
            await stored(journal)
        send(journal, 3)
        await stored(journal)
        assert wrote == [("pack", True), ("pack", True), ("write", False)], "not while the last took long"
        monkeypatch.setattr("homing.journal.commit.writer_thread._LONG_S", 30.0)
        inside.rest()
        monkeypatch.setattr("homing.journal.commit.writer_thread._IDLE_CHECKPOINT_BYTES", 1)
        await inside.upkeep(idle=True)
        wrote.clear()
        for number in (4, 5):
            send(journal, number)
            await stored(journal)
        assert wrote == [("write", False), ("pack", True)], "with the first after a checkpoint SQLite may wait for the disk"
        wrote.clear()
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        monkeypatch.setattr(writer.writer, "pack", by("pack", full))
        for number in (6, 7):
            send(journal, number)
            await stored(journal)
        assert wrote == [("pack", True), ("write", False), ("pack", True)], "what makes room is the thread's"
        monkeypatch.setattr(writer.disk, "space_low", True)
        send(journal, 8)
        await stored(journal)
        assert wrote[3:] == [("write", False)]


async def _waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, none_ms: float) -> None:
    order: list[str] = []
    monkeypatch.setattr("homing.journal.commit.writer_thread._NO_DISK_MS", none_ms)
    async with opened_inside(tmp_path) as (journal, inside):
        sync = inside.writer.meter.sync

        def synced() -> None:
            sync()
            order.append("synced")

        monkeypatch.setattr(inside.writer.meter, "sync", synced)
        for number in range(1, 6):
            send(journal, number)
            journal.when_safe(lambda: order.append("answered"))
            await stored(journal)
    assert order[:10] == 5 * ["synced", "answered"]


async def test_nobody_is_answered_before_the_disk_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _waits(tmp_path, monkeypatch, none_ms=0.0)


async def test_nor_where_the_loop_itself_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _waits(tmp_path, monkeypatch, none_ms=1e9)


async def test_whenever_a_transaction_begins_everything_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small commits, one after the other, whose rows go to the tables now and then: what is on disk is looked at between any two."""
    monkeypatch.setattr("homing.journal.commit.writer_thread._LONG_S", 30.0)
    confirmed, copies = 0, dict[Path, int]()
    async with opened_inside(tmp_path / "a") as (journal, inside):
        assert inside.store.connection is not None

        def look(statement: str) -> None:
            if statement.startswith(("BEGIN", "INSERT INTO packed_commit")):
                copies[shutil.copytree(tmp_path / "a", tmp_path / f"{len(copies)}")] = confirmed

        journal.batch.queue(queue())
        await journal.flush()
        inside.store.connection.set_trace_callback(look)
        for number in range(1, 26):
            send(journal, number)
            await stored(journal)
            confirmed = number
        inside.store.connection.set_trace_callback(None)
    there = {killed: set(query(killed, _PACKED)) for killed in copies}
    assert any(numbers < before for before, numbers in pairwise(there.values())), "some went to the tables"
    for killed, least in copies.items():
        async with opened(killed) as (_, recovered):
            assert [each.sequence for each in recovered.references] in (list(range(1, least + more + 1)) for more in (0, 1))
            assert query(killed, "SELECT coalesce(sum(sent), 0) FROM minute") == [(len(recovered.references),)]


def _answers_first(syncs: SyncThread, sync: Callable[[], None], answer: Answer) -> None:
    answer(None)
    _begin(syncs, sync, lambda error: None)


def _writes_alone(writer: BatchWriter, connection: sqlite3.Connection, *others: Any, **named: Any) -> Any:
    if writer.packed.rows:
        number = next_number(connection)
        connection.execute("BEGIN IMMEDIATE")
        remove_rows(connection)
        commit(connection, number)
    return _write(writer, connection, *others, **named)


_begin, _write = SyncThread.begin, BatchWriter.write
_WRITER = "homing.journal.commit.batch_writer"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("place", "fault", "found_by"),
    [
        (
            "homing.journal.store.sync_thread.SyncThread.begin",
            _answers_first,
            test_nobody_is_answered_before_the_disk_has_it,
        ),
        (f"{_WRITER}.remove_rows", lambda connection: None, test_what_a_kill_leaves_packed_is_there_after_a_start),
        (f"{_WRITER}.remove_rows", lambda connection: None, test_whenever_a_transaction_begins_everything_is_there_once),
        (f"{_WRITER}.BatchWriter.write", _writes_alone, test_whenever_a_transaction_begins_everything_is_there_once),
        (
            f"{_WRITER}.next_number",
            lambda connection: counted_commits(connection, False) + 1,
            test_whenever_a_transaction_begins_everything_is_there_once,
        ),
        ("homing.journal.commit.writer_thread.WriterThread.merge", lambda *_: None, test_a_page_shows_what_stands_packed),
        (
            "homing.journal.read.queries.packed_commits.there_are",
            lambda connection: False,
            test_who_reads_a_directory_that_a_kill_left_sees_all_and_changes_nothing,
        ),
    ],
    ids=[
        "answered before the sync",
        "packed after it is in the tables",
        "applied twice",
        "removed before it is in the tables",
        "numbers fall",
        "a page past it",
        "a reader past it",
    ],
)
async def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: Callable[..., Any], found_by: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, fault)
    with pytest.raises((AssertionError, JournalError, sqlite3.Error)):
        await (found_by(tmp_path, monkeypatch) if "monkeypatch" in signature(found_by).parameters else found_by(tmp_path))


def test_a_packed_row_that_holds_no_bytes_is_damaged() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(
            "CREATE TABLE packed_commit (number, version, checksum, batch_blob); INSERT INTO packed_commit VALUES (1, 1, 0, 7)"
        )
        connection.execute("CREATE TABLE meta (key, value)")
        assert problems(connection) == ["commit 1 (table packed_commit) is not what was written: its checksum is another"]
