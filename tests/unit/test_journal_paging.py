"""Pages come back in order and whole, bodies stay as long as anything needs them, and what a deleted queue held goes in steps."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.pages import Page, Wanted, read_alone
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import NOW_MS, OPTIONS, change, hop, message, opened, query, queue, send, settle


async def page(journal: Journal, wanted: Wanted) -> Page:
    taken: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
    journal.read(wanted, taken.set_result, taken.set_exception)
    return await taken


def raise_(error: Exception) -> None:
    raise error


def sequences(found: Page) -> list[int]:
    return [record.sequence for record in found.records]


async def test_a_page_is_what_was_written_in_order_of_one_priority(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        written = [send(journal, n, of=message(n, b"%d" % n * n), hops=[hop(0, reason="expired")] if n % 2 else None) for n in range(1, 8)]
        for n in (20, 21):
            send(journal, n, priority=9)
        await journal.flush()
        found = await page(journal, Wanted(1, "ready", 4, after=2, rows=3))
        assert (found.records, found.more) == (written[2:5], True)
        rest = await page(journal, Wanted(1, "ready", 4, after=5, rows=3))
        assert (sequences(rest), rest.more) == ([6, 7], False)
        assert sequences(await page(journal, Wanted(1, "ready", 9))) == [20, 21]


async def test_a_page_ends_with_the_bytes_it_may_have_and_has_at_least_one_row(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for n in (1, 2, 3):
            send(journal, n, of=message(n, bytes(1000)))
        await journal.flush()
        found = await page(journal, Wanted(1, "ready", 4, size=2500))
        assert (sequences(found), found.more) == ([1, 2], True)
        assert sequences(await page(journal, Wanted(1, "ready", 4, size=1))) == [1]


async def test_pages_by_time_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for n, due_ms in ((1, 50), (2, 30), (3, 30), (4, None), (5, 90)):
            send(journal, n, due_at_ms=due_ms, expires_at_ms=None if due_ms is None else due_ms + 1)
        assert sequences(await page(journal, Wanted(1, "due", until_ms=60))) == []  # nothing of it is on disk, and nothing is waited for
        await journal.flush()
        first = await page(journal, Wanted(1, "due", until_ms=60, rows=2))
        assert (sequences(first), first.more, first.next_ms) == ([2, 3], True, 50)
        last = await page(journal, Wanted(1, "due", after_ms=30, after=3, until_ms=60))
        assert (sequences(last), last.next_ms) == ([1], 90)
        assert sequences(await page(journal, Wanted(1, "expired", until_ms=31))) == [2, 3]
        assert sequences(await page(journal, Wanted(1, "ready", 4))) == [4]
        assert sequences(await page(journal, Wanted(1, "all", 4))) == [1, 2, 3, 4, 5]


async def test_what_is_being_deleted_is_left_out_of_a_page(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for n in (1, 2, 3):
            send(journal, n)
        await journal.flush()
        taken: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        journal.read(Wanted(1, "ready", 4), taken.set_result, taken.set_exception)
        settle(journal, 2)
        assert sequences(await taken) == [1, 3]


async def test_pages_come_in_turn_and_none_waits_for_ever(tmp_path: Path) -> None:
    order: list[str] = []
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        journal.read(Wanted(1, "all", 4), lambda _: order.append("look"), raise_)
        for name in ("first", "second", "third"):
            journal.read(Wanted(1, "ready", 4), lambda _, name=name: order.append(name), raise_)  # type: ignore[misc]
        await page(journal, Wanted(1, "all", 5))
        await page(journal, Wanted(1, "ready", 4))
    assert order == ["first", "look", "second", "third"]


async def test_a_shared_body_stays_while_a_reference_on_disk_needs_it(tmp_path: Path) -> None:
    shared = message(50, b"shared")
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        journal.batch.add_message(shared)
        send(journal, 1, of=shared, shared=True)
        send(journal, 2, queue_id=2, of=shared, shared=True)
        # Consumed before it was written, by a caller who knows nothing of the other reference.
        settle(journal, 1)
        journal.batch.delete_message(50)
        await journal.flush()
        assert query(tmp_path, "SELECT count(*) FROM message") == [(1,)]
        (record,) = (await page(journal, Wanted(2, "ready", 4))).records
        assert (record.message, record.shared) == (shared, True)
        settle(journal, 2, queue_id=2)
        journal.batch.delete_message(50)
        await journal.flush()
        assert query(tmp_path, "SELECT count(*) FROM message") == [(0,)]
        journal.batch.add_message(shared)
        journal.batch.delete_message(50)
        await journal.flush()
        assert query(tmp_path, "SELECT count(*) FROM message") == [(0,)]


async def test_a_large_journal_is_counted_and_only_what_stands_apart_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for queue_id in (1, 2):
            journal.batch.queue(queue(queue_id))
        for n in range(1, 6):
            send(journal, n)
        send(journal, 10, priority=7, expires_at_ms=NOW_MS + 9)
        send(journal, 11, due_at_ms=NOW_MS + 7)
        send(journal, 12, due_at_ms=NOW_MS + 5, state=2)
        parked = send(journal, 13, queue_id=2, state=1)
        await journal.flush()
    async with opened(tmp_path, load_limit=8) as (journal, recovered):
        assert [record.sequence for record in recovered.references] == [12, 13]
        assert recovered.references[1] == parked
        first, second = recovered.on_disk
        assert (first.ready, first.due, first.first_due_ms, first.first_expiry_ms) == ({4: 5, 7: 1}, 1, NOW_MS + 5, NOW_MS + 9)
        assert first.mean_bytes > 0
        assert (second.ready, second.due) == ({}, 0)
    async with opened(tmp_path, load_limit=9) as (journal, recovered):
        assert (len(recovered.references), list(recovered.on_disk)) == (9, [])


async def test_few_large_bodies_are_not_read_at_the_start_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        send(journal, 2, of=message(2, body=b"x" * 100_000))
        await journal.flush()
    monkeypatch.setattr("homing.journal.read.recovery._LOAD_BYTES", 100_000)
    async with opened(tmp_path) as (_, recovered):
        assert (recovered.references, recovered.on_disk[0].ready) == ([], {4: 2})
    monkeypatch.setattr("homing.journal.read.recovery._LOAD_BYTES", 200_000)
    async with opened(tmp_path) as (_, recovered):
        assert (len(recovered.references), list(recovered.on_disk)) == (2, [])


async def test_bodies_beyond_what_is_packed_at_a_time_are_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.batch_writer._PACKED_BYTES", 250)
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for n in range(1, 8):
            send(journal, n, of=message(n, body=bytes([n]) * 100), priority=n % 2)
        for n in range(8, 15):
            journal.batch.add_message(message(n, body=bytes([n]) * 100))
            send(journal, n, of=message(n, body=bytes([n]) * 100), shared=True)
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        assert {each.sequence: each.message.body for each in recovered.references} == {n: bytes([n]) * 100 for n in range(1, 15)}


async def test_a_damaged_row_ends_the_broker_or_is_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for n in (1, 2, 3):
            send(journal, n)
        await journal.flush()
        change(tmp_path, "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 2")
    async with opened(tmp_path, load_limit=1, on_damage="quarantine") as (journal, _):
        found = await page(journal, Wanted(1, "ready", 4))
        assert (sequences(found), found.set_aside) == ([1, 3], [(4, None, 0)])
        assert query(tmp_path, "SELECT sequence, reason FROM quarantine") == [(2, "fails its checksum")]
        change(tmp_path, "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 3")
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS, load_limit=1), NOW_MS)
    journal.read(Wanted(1, "ready", 4), lambda found: None, raise_)
    with pytest.raises(JournalError, match="row 3 of table reference") as raised:
        await journal.failed
    assert raised.value.code == "journal-damaged"
    await journal.close()


async def test_what_a_deleted_queue_held_is_purged_in_steps_and_counted(tmp_path: Path) -> None:
    shared = message(9000, b"shared")
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        for n in range(1, 2501):
            send(journal, n)
        send(journal, 2600, failed=2, delivery_count=3)
        journal.batch.add_message(shared)
        for queue_id in (1, 2):
            send(journal, 2700 + queue_id, queue_id=queue_id, of=shared, shared=True)
        await journal.flush()
        journal.batch.queue(queue(deleted_at_ms=NOW_MS + 1))
        await journal.flush()
        async with asyncio.timeout(40):
            while journal.upkeep_due:  # noqa: ASYNC110 - the journal's own work, of which nobody is told
                await asyncio.sleep(0.001)
        assert query(tmp_path, "SELECT sequence FROM reference") == [(2702,)]
        assert query(tmp_path, "SELECT count(*) FROM message") == [(1,)]
        assert query(tmp_path, "SELECT sum(purged) FROM minute WHERE queue_id = 1") == [(2502,)]
        assert query(tmp_path, "SELECT sequence, outcome FROM outcomes") == [(2600, "purged")]


async def test_references_of_deleted_queues_are_not_recovered(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        journal.batch.queue(queue(deleted_at_ms=NOW_MS + 1))
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        assert (recovered.references, recovered.queues) == ([], [])


async def test_a_page_that_cannot_be_read_or_taken_fails_alone(tmp_path: Path) -> None:
    def refuse(_: Page) -> None:
        raise KeyError("the caller's own affair")

    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        errors: list[Exception] = []
        journal.read(Wanted(1, "all", 4, after=1 << 63), raise_, errors.append)  # type: ignore[arg-type]
        journal.read(Wanted(1, "ready", 4), refuse, errors.append)
        assert sequences(await page(journal, Wanted(1, "all", 4))) == [1]
        assert {type(error) for error in errors} == {OverflowError, KeyError}
        send(journal, 2)
        await journal.flush()
        assert query(tmp_path, "SELECT count(*) FROM reference") == [(2,)]


async def test_a_page_that_is_to_be_set_aside_on_a_full_disk_leaves_nothing_half_done(tmp_path: Path) -> None:
    async with opened_inside(tmp_path, on_damage="quarantine") as (journal, inside):
        journal.batch.queue(queue())
        for n in (1, 2):
            send(journal, n, of=message(n, bytes(20_000)))
        await journal.flush()
        change(tmp_path, "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 2")
        ((pages,),) = query(tmp_path, "PRAGMA page_count")
        await inside.store.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchall())
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await page(journal, Wanted(1, "ready", 4))
        await inside.store.run(lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchall())
        assert (await page(journal, Wanted(1, "ready", 4))).set_aside == [(4, None, 0)]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR_NOMEM])
def test_what_sqlite_says_of_the_disk_or_the_file_ends_the_broker_and_nothing_else(code: int) -> None:
    class Failing(sqlite3.Connection):
        def execute(self, *_: Any) -> Any:
            error = sqlite3.OperationalError("what it says")
            error.sqlite_errorcode = code
            raise error

    with closing(sqlite3.connect(":memory:", factory=Failing)) as connection, pytest.raises(Exception, match="what it says") as raised:
        read_alone(connection, Wanted(1, "ready", 4))
    reported = {sqlite3.SQLITE_IOERR_READ: "journal-io", sqlite3.SQLITE_CORRUPT: "journal-damaged", sqlite3.SQLITE_IOERR_NOMEM: None}[code]
    assert getattr(raised.value, "code", None) == reported
