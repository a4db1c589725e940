"""The journal from outside: append, commit, close or not, open again."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from homing.journal.commit.batch import SMALL_ROWS, WriteBatch
from homing.journal.commit.fault_changes import FaultChanges
from homing.journal.commit.last_states import LastStates
from homing.journal.commit.packed_batch import unpack_batch
from homing.journal.commit.writer_thread import UNSEEN_ROWS
from homing.journal.contract import AddressRecord, PolicyRecord, QueueStat
from homing.journal.declarations import DeclarationRecord
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.store import returned
from homing.journal.store.directory import Disk, prepare_directory
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import (
    NOW_MS,
    OPTIONS,
    attempt,
    counted,
    hop,
    keep_attempt,
    message,
    opened,
    outcome,
    query,
    queue,
    reference,
    send,
    sequences,
    settle,
)


async def test_an_empty_directory_becomes_a_journal(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    async with opened(directory) as (_, recovered):
        assert recovered.clean_stop
        assert (recovered.addresses, recovered.queues, recovered.references, recovered.next_queue_id) == ([], [], [], 1)
        assert len(recovered.broker_id) == 36
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "homing.db").stat().st_mode) == 0o600
    async with opened(directory) as (_, again):
        assert again.broker_id == recovered.broker_id
        assert again.clean_stop


async def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    hops = [hop(3, headers={"x": b"\x00"})]
    shared = message(50, b"shared" * 100)
    records = [
        reference(10, 1, message(10, b"\x00\xff" * 600), delivery_count=2, failed=1, assigned=3, state=2, due_at_ms=NOW_MS + 9),
        reference(11, 1, priority=9, expires_at_ms=NOW_MS + 60_000),
        reference(12, 2, message(12, b"", properties=None, expires_at_ms=5, producer=""), hops=hops),
        reference(13, 1, shared, shared=True),
        reference(14, 2, shared, shared=True),
    ]
    async with opened(tmp_path) as (journal, _):
        batch = journal.batch
        batch.address(AddressRecord("orders", 3, True, NOW_MS))
        batch.queue(queue(1))
        batch.queue(queue(2, name="other", selector="k = 'v'", paused=True, options={}))
        batch.add_message(shared)
        for record in records:
            batch.add(record)
        batch.producer_high_watermark("client/1", 17, NOW_MS)
        batch.duplicate("orders", "first")
        batch.duplicate("orders", "second")
        batch.committed("t-1", NOW_MS)
        batch.policy(PolicyRecord("abc", NOW_MS, {"max_delivery_attempts": 3}))
        batch.settings(NOW_MS, {"#": {"a": 1}})
        batch.clock(NOW_MS + 77)
    async with opened(tmp_path) as (_, recovered):
        by_order = [records[1], records[0], records[3], records[2], records[4]]
        assert recovered.references == by_order
        assert recovered.references[2].message is recovered.references[4].message
        assert recovered.addresses == [AddressRecord("orders", 3, True, NOW_MS)]
        assert recovered.queues == [queue(1), queue(2, name="other", selector="k = 'v'", paused=True, options={})]
        assert recovered.next_queue_id == 3
        assert recovered.producers == {"client/1": (17, NOW_MS)}
        assert recovered.duplicates == {"orders": ["first", "second"]}
        assert recovered.committed == {"t-1": NOW_MS}
        assert recovered.clock_ms == NOW_MS + 77


async def test_a_batch_is_on_disk_before_its_callbacks_and_they_come_in_order(tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []

    def note(number: int) -> None:
        packed = [unpack_batch(blob)[0].added for (blob,) in query(tmp_path, "SELECT batch_blob FROM packed_commit")]
        seen.append((number, number in {*sequences(tmp_path), *chain(*packed)}))

    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for number in range(1, 41):
            send(journal, number)
            journal.batch.after.append(lambda number=number: note(number))  # type: ignore[misc]
            if number % 3 == 0:
                await asyncio.sleep(0)
        await journal.flush()
        assert seen == [(number, True) for number in range(1, 41)]
        assert 1 < journal.statistics.groups < 40


@pytest.mark.plain
async def test_flush_waits_for_the_batch_in_flight_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened_inside(tmp_path) as (journal, inside):
        commit, released = inside.writer.commit, threading.Event()

        def late(*arguments: Any) -> Any:
            released.wait(30)
            return commit(*arguments)

        monkeypatch.setattr(inside.writer, "commit", late)
        journal.batch.queue(queue())
        send(journal, 1)
        async with asyncio.timeout(30):
            while journal.batch.touched:  # noqa: ASYNC110 - until the writer takes it
                await asyncio.sleep(0)
        assert journal.busy()
        flushing = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)  # it has begun
        assert not flushing.done()
        released.set()
        await flushing
        assert not journal.busy()
        assert sequences(tmp_path) == [1]
        await journal.flush()


@pytest.mark.plain
def test_whatever_a_batch_holds_counts() -> None:
    counted = {name for name in (*WriteBatch.__slots__, *LastStates.__slots__) if not name.startswith("_")}
    for name in sorted(counted):
        batch = WriteBatch()
        batch.deleted.add(-1)
        assert batch.is_small()
        held: Any = getattr(batch, name)
        many = range(SMALL_ROWS + 1)
        if name in ("attempts", "outcomes"):
            held.append(attempt(1, 1, 1)._replace(entries=[(1, 1)] * len(many)))
        elif isinstance(held, FaultChanges):
            held.causes.update(dict.fromkeys(many, 1))
        elif isinstance(held, dict):
            held.update(dict.fromkeys(many))
        elif isinstance(held, list):
            held.extend(many)
        elif isinstance(held, set):
            held.update(many)
        else:
            continue
        # Of what is added, and of addresses that are declared.
        assert batch.is_small() is (name in ("sources", "forgotten")), name


async def test_a_batch_of_callbacks_only_is_answered_without_a_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        called = asyncio.Event()
        journal.batch.after.append(called.set)
        await asyncio.wait_for(called.wait(), 20)
        assert journal.statistics.groups == 0


async def test_a_failing_callback_does_not_keep_the_next_from_its_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("a session that is gone")

    async with opened(tmp_path) as (journal, _):
        called = asyncio.Event()
        journal.batch.after.extend([broken, called.set])
        await asyncio.wait_for(called.wait(), 20)
        assert not journal.failed.done()
    assert "a callback after a commit failed" in caplog.text


async def test_what_was_consumed_before_it_was_written_is_not_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 101):
            send(journal, sequence)
            settle(journal, sequence)
        journal.batch.duplicate("orders", "kept")
        keep_attempt(journal.batch, attempt(5, 5, 1))
        await journal.flush()
        statistics = journal.statistics
        assert (statistics.references_added, statistics.references_deleted, statistics.references_elided) == (0, 0, 100)
        assert query(tmp_path, "SELECT sent, succeeded FROM minute") == [(100, 100)]
        assert query(tmp_path, "SELECT duplicate_id FROM duplicate") == [("kept",)]
        assert query(tmp_path, "SELECT message_id, attempt FROM attempts") == [(5, 1)]


async def test_without_elision_the_row_is_written_and_removed(tmp_path: Path) -> None:
    async with opened(tmp_path, elide=False) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        settle(journal, 1)
        await journal.flush()
        assert (journal.statistics.references_added, journal.statistics.references_deleted) == (1, 1)
        assert sequences(tmp_path) == []


async def test_changes_and_deletes_reach_rows_of_earlier_batches(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 1_001):
            send(journal, sequence)
        await journal.flush()
        for sequence in range(1, 1_001):
            journal.batch.change([sequence], counted(failed=sequence, due_at_ms=None if sequence % 2 else sequence))
        for sequence in (1, 2, *range(100, 200), 333, 1_000):
            settle(journal, sequence)
        await journal.flush()
        gone = {1, 2, *range(100, 200), 333, 1_000}
        expected = [(n, n, None if n % 2 else n) for n in range(1, 1_001) if n not in gone]
        assert query(tmp_path, "SELECT sequence, failed, due_at_ms FROM reference ORDER BY sequence") == expected
        assert journal.statistics.references_not_found == 0


async def test_what_changes_alike_is_changed_in_runs_and_nothing_between_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 201):
            send(journal, sequence)
        await journal.flush()
        first, second = [*range(10, 60), *range(80, 120), 150], [*range(60, 70), *range(130, 150)]
        journal.batch.change(first, counted(failed=1))
        journal.batch.change(second, counted(failed=2, due_at_ms=None))
        await journal.flush()
        failed = dict.fromkeys(range(1, 201), 0) | dict.fromkeys(first, 1) | dict.fromkeys(second, 2)
        assert dict(query(tmp_path, f"SELECT sequence, {returned.FAILED} FROM reference {returned.JOIN}")) == failed
        assert query(tmp_path, "SELECT count(due_at_ms) FROM reference") == [(len(first),)]
        assert (journal.statistics.references_changed, journal.statistics.references_not_found) == (len(first) + len(second), 0)


async def test_attempts_that_are_alike_are_a_row_each_and_one_deleted_before_it_was_written_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        several = attempt(1, 1, 1)._replace(entries=[(number, number) for number in range(1, 6)])
        journal.batch.delete_attempt(5, 5, 1)  # what is said after it counts
        keep_attempt(journal.batch, several)
        journal.batch.delete_attempt(2, 2, 1)
        journal.batch.delete_attempt(3, 3, 7)  # of another number
        await journal.flush()
        assert query(tmp_path, "SELECT message_id, sequence, attempt FROM attempts") == [(n, n, 1) for n in (1, 3, 4, 5)]
        assert query(tmp_path, "SELECT first_message, last_message, stays FROM failure") == [(1, 5, "[[1,1],[3,3],[4,4],[5,5]]")]


async def test_a_change_of_what_is_not_there_is_counted_not_hidden(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.change([1], counted())
        journal.batch.delete_all((2,))
        await journal.flush()
        assert journal.statistics.references_not_found == 2


async def test_a_row_replaced_within_one_batch(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        journal.batch.delete_all((1,))
        journal.batch.add(reference(1, failed=9))
        await journal.flush()
        assert query(tmp_path, "SELECT failed FROM reference") == [(9,)]


async def test_minute_counts_add_up_over_batches(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for _ in range(3):
            journal.batch.counts(4, 10)[QueueStat.MOVED_OUT] += 2
            journal.batch.counts(4, 10)[QueueStat.SENT] += 1
            await journal.flush()
        assert query(tmp_path, "SELECT queue_id, minute, sent, moved_out, failed FROM minute") == [(4, 10, 3, 6, 0)]


async def test_a_name_passes_to_a_new_queue_in_one_batch_and_ids_are_not_reused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue(1, name="orders"))
        await journal.flush()
        journal.batch.queue(queue(2, name="orders"))
        journal.batch.queue(queue(1, name="orders", deleted_at_ms=NOW_MS))
        journal.batch.queue(queue(3, name="passing"))
        await journal.flush()
        journal.batch.queue(queue(3, name="passing", deleted_at_ms=NOW_MS))
    async with opened(tmp_path) as (_, recovered):
        assert [(record.queue_id, record.name) for record in recovered.queues] == [(2, "orders")]
        assert recovered.next_queue_id == 4


async def test_addresses_producers_and_shared_bodies_can_go(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.address(AddressRecord("a", 1, True, 1))
        journal.batch.producer_high_watermark("p", 4, NOW_MS)
        journal.batch.add_message(message(9))
        await journal.flush()
        assert query(tmp_path, "SELECT count(*) FROM message") == [(1,)]
        journal.batch.delete_address("a")
        journal.batch.forget_producer("p")
        journal.batch.delete_message(9)
        await journal.flush()
        assert query(
            tmp_path, "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM address), (SELECT count(*) FROM producer)"
        ) == [(0, 0, 0)]


async def test_the_newest_duplicates_of_an_address_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, duplicate_ids_per_address=100) as (journal, _):
        for name in ("orders", "other"):
            journal.batch.address(AddressRecord(name, 1, True, 1))
        for number in range(250):
            journal.batch.duplicate("orders", f"id-{number}")
            if number % 10 == 0:
                await journal.flush()
        journal.batch.duplicate("other", "one")
        await journal.flush()
        assert 100 <= query(tmp_path, "SELECT count(*) FROM duplicate WHERE address = 'orders'")[0][0] <= 117
    async with opened(tmp_path, duplicate_ids_per_address=100) as (_, recovered):
        assert recovered.duplicates == {"orders": [f"id-{number}" for number in range(150, 250)], "other": ["one"]}


async def test_the_newest_stories_stay_and_those_that_are_over_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.stories.KEPT", 3)
    async with opened(tmp_path) as (journal, _):
        for number in range(5):
            journal.batch.story("q", f"task {number}", (number, 1))
            await journal.flush()
        journal.batch.story("q", "task 3", (3, 2))
        journal.batch.story("q", "task 2", None)
    async with opened(tmp_path) as (_, recovered):
        assert recovered.stories == [("q", "task 4", 4, 1), ("q", "task 3", 3, 2)]


async def test_a_body_that_nothing_refers_to_is_swept_at_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.add_message(message(1))
        journal.batch.add_message(message(2))
        journal.batch.add(reference(3, of=message(2), shared=True))
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        assert [record.message.message_id for record in recovered.references] == [2]
        assert query(tmp_path, "SELECT message_id FROM message") == [(2,)]


async def test_ids_go_on_after_a_clean_stop_and_leap_after_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path / "first") as (journal, _):
        first = [journal.next_id() for _ in range(5)]
        assert first == [1, 2, 3, 4, 5]
    async with opened(tmp_path / "first") as (journal, recovered):
        assert recovered.clean_stop
        assert journal.next_id() == 6
        # As a kill leaves it.
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    async with opened(tmp_path / "killed") as (journal, recovered):
        assert not recovered.clean_stop
        assert journal.next_id() == 6 + 2 * OPTIONS["id_block"]


async def test_ids_are_reserved_on_disk_ahead_of_their_use(tmp_path: Path) -> None:
    async with opened(tmp_path, id_block=10) as (journal, _):
        for _ in range(20):
            highest = max(journal.next_id() for _ in range(7))
            journal.batch.clock(NOW_MS + highest)
            await journal.flush()
            assert query(tmp_path, "SELECT value FROM meta WHERE key = 'reserved_up_to'")[0][0] > highest + 1


async def test_more_ids_than_reserved_are_given_and_the_next_commit_reserves_them(tmp_path: Path) -> None:
    async with opened(tmp_path, id_block=10) as (journal, _):
        assert [journal.next_id() for _ in range(50)] == list(range(1, 51))
        assert not journal.ids_reserved, "nobody may see them yet"
        journal.batch.queue(queue())
        journal.batch.add(reference(journal.next_ids(1000)))
        commits: list[bool] = []
        journal.on_commit = lambda unwritten: commits.append(journal.ids_reserved)
        await journal.flush()
        assert commits[-1], "whoever is told of the commit may go on"
        assert query(tmp_path, "SELECT value FROM meta WHERE key = 'reserved_up_to'")[0][0] > 1051


async def test_ids_are_reserved_where_nothing_is_written_at_all(tmp_path: Path) -> None:
    """Messages that are not durable take numbers too."""
    async with opened(tmp_path, id_block=10) as (journal, _):
        for _ in range(10):
            journal.next_ids(15)
            while not journal.ids_reserved:
                await journal.flush()
        assert query(tmp_path, "SELECT value FROM meta WHERE key = 'reserved_up_to'")[0][0] > 151


async def test_a_second_open_names_the_holder(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(JournalError) as caught:
            await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
        assert caught.value.code == "journal-locked"
        assert str(os.getpid()) in caught.value.message
    async with opened(tmp_path):
        pass


async def test_a_lock_that_cannot_be_taken_is_the_journal_s_error(tmp_path: Path) -> None:
    (tmp_path / "homing.lock").mkdir()
    with pytest.raises(JournalError) as caught:
        await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
    assert caught.value.code == "journal-io"
    assert "homing.lock" in caught.value.message


def test_a_directory_that_others_use_keeps_its_mode(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letters.txt").write_text("mine")
    prepare_directory(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert "give the journal one of its own" in caplog.text


@pytest.mark.parametrize("bad", [{"n": 2**70}, {"text": "\ud800"}, pytest.param({"set": {1}}, marks=pytest.mark.plain)])
async def test_a_record_that_cannot_be_stored_rolls_its_batch_back_and_stops(tmp_path: Path, bad: dict[str, Any]) -> None:
    answered: list[str] = []
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
    journal.batch.queue(queue())
    send(journal, 1)
    await journal.flush()
    send(journal, 2)
    send(journal, 3, of=message(3, properties=bad))
    journal.batch.after.append(lambda: answered.append("too early"))
    with pytest.raises(JournalError) as caught:
        await journal.flush()
    assert caught.value.code == "journal-bad-record"
    with pytest.raises(JournalError):
        journal.failed.result()
    with pytest.raises(JournalError):
        await journal.flush()
    await journal.close()
    assert answered == []
    assert sequences(tmp_path) == [1]


async def test_a_number_that_sqlite_refuses_at_bind_time_rolls_back_too(tmp_path: Path) -> None:
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
    journal.batch.queue(queue())
    journal.batch.outcome(outcome(1, 1, queue_id=2**63))
    send(journal, 1)
    with pytest.raises(JournalError) as caught:
        await journal.flush()
    await journal.close()
    assert (caught.value.code, caught.value.exit_code) == ("journal-bad-record", 70)
    assert query(tmp_path, "SELECT (SELECT count(*) FROM queue), (SELECT count(*) FROM reference)") == [(0, 0)]


async def test_little_room_tells_producers_to_wait_and_room_lets_them_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[bool] = []
    free = [1 << 40]
    monkeypatch.setattr("homing.journal.store.directory.Disk.free_bytes", lambda disk: free[0])
    async with opened(tmp_path) as (journal, _):
        journal.on_space = reported.append
        free[0] = 3 << 20
        for _ in range(UNSEEN_ROWS):
            journal.batch.touch()
            journal.batch.clock(NOW_MS + 1)
            await journal.flush()
        assert journal.space_low, "it is looked at least once in so many commits, however small"
        free[0] = 1 << 40
        journal.batch.clock(NOW_MS + 3)
        await journal.flush()
        await asyncio.sleep(0)
        assert reported == [True, False]


def test_space_has_hysteresis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mib, free = 1 << 20, [1 << 40]
    monkeypatch.setattr("homing.journal.store.directory.Disk.free_bytes", lambda disk: free[0])
    disk = Disk(tmp_path, reserve_bytes=10 * mib)
    seen = []
    for free_mib in (36, 34, 36, 39, 41, 36):
        free[0] = free_mib * mib
        seen.append(disk.look(20 * mib, 5 * mib, lambda: 0))
    assert seen == [False, True, True, True, False, False]
    free[0] = 20 * mib
    assert not disk.look(20 * mib, 5 * mib, lambda: 15 * mib)
    assert disk.look(20 * mib, 5 * mib, lambda: 14 * mib)
    free[0] = 14 * mib
    assert disk.look(0, 5 * mib, lambda: 1 << 40)


def test_the_reserve_is_taken_released_and_taken_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path, reserve_bytes=1 << 20)
    disk.take_reserve()
    reserve = tmp_path / "homing.reserve"
    assert reserve.stat().st_blocks * 512 >= 1 << 20
    disk.release_reserve()
    assert not reserve.exists()
    disk.space_low = True
    assert not disk.look(0, 0, lambda: 0)
    assert reserve.exists()


async def test_a_broker_in_doubt_stops_the_journal_and_nobody_is_answered(tmp_path: Path) -> None:
    answered: list[str] = []
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS)
    journal.batch.queue(queue())
    journal.batch.after.append(lambda: answered.append("yes"))
    waiting = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    journal.failed.set_exception(RuntimeError("a broken turn"))
    with pytest.raises(RuntimeError, match="a broken turn"):
        await asyncio.wait_for(waiting, 20)
    send(journal, 1)
    await journal.close()
    assert answered == []
    assert sequences(tmp_path) == []


async def test_declarations_come_back_and_go(tmp_path: Path) -> None:
    kept = DeclarationRecord("exchange", "orders", {"kind": "topic", "arguments": {"n": [1, {"deep": b"x"}]}})
    async with opened(tmp_path) as (journal, recovered):
        assert recovered.declarations == ()
        journal.batch.declare(kept._replace(content={}))
        journal.batch.declare(DeclarationRecord("binding", "1", {}))
        await journal.flush()
        journal.batch.declare(kept)
        journal.batch.delete_declaration("binding", "1")
    async with opened(tmp_path) as (_, recovered):
        assert recovered.declarations == (kept,)
