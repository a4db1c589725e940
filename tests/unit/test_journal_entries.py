"""Small commits stand packed in table ``entry`` until the tables have them: whatever comes between, everything is there once."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from homing.journal.backup.backup import make_of_directory, restore
from homing.journal.commit.batch import SMALL_ROWS
from homing.journal.commit.writer_thread import PACKED_ROWS
from homing.journal.errors import JournalError
from homing.journal.journal import Journal
from homing.journal.read.check import check
from homing.journal.read.pages import Page, Wanted
from homing.journal.read.queries import JournalReader
from homing.journal.store.commits import read_last_commit
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

_PACKED = "SELECT number FROM entry ORDER BY number"


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
        assert query(directory, "SELECT count(*) FROM entry") == [(each,)]
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
        ("UPDATE entry SET batch_blob = zeroblob(length(batch_blob)) WHERE number = (SELECT max(number) - 2 FROM entry)", "checksum"),
        ("UPDATE entry SET number = number + 1000 WHERE number = (SELECT max(number) FROM entry)", "checksum"),
        ("DELETE FROM entry WHERE number = (SELECT max(number) - 2 FROM entry)", "nothing is there"),
        ("UPDATE entry SET version = 99", "version"),
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
        assert [each.sequence for each in recovered.references][:1] in ([1], [])
    assert query(killed, _PACKED) == []


async def test_a_missing_packed_row_at_the_end_is_a_missing_commit(tmp_path: Path) -> None:
    killed = await _killed(tmp_path / "a")
    with closing(sqlite3.connect(killed / "homing.db")) as connection, connection:
        connection.execute("DELETE FROM entry WHERE number = (SELECT max(number) FROM entry)")
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
            while query(tmp_path, "SELECT count(*) FROM entry") != [(1,)]:  # noqa: ASYNC110 - until it is written
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
