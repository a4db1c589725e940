"""Entries of the replicated log: what a batch writes is in them; a journal commits only what the log took."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from homing.journal.backup.backup import make_of_directory, restore
from homing.journal.commit import packed_batch as packed_batch_module
from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.packed_batch import BadEntry, pack_batch, unpack_batch
from homing.journal.commit.writer_thread import Standing, WriterThread
from homing.journal.contract import AddressRecord, EditRecord, FaultRecord, FaultStat, PolicyRecord, QueueStat
from homing.journal.declarations import DeclarationRecord
from homing.journal.errors import JournalError
from homing.journal.follower import Follower
from homing.journal.journal import Journal, JournalOptions
from homing.journal.opening import open_directory
from homing.journal.rebuild import rebuild
from homing.journal.replication import entry as entry_module
from homing.journal.replication import leader as leader_module
from homing.journal.replication.entry import Entry, Position, after, follow
from homing.journal.replication.leader import BEAT_S, Leader
from homing.journal.replication.leadership import Watch, follow_until_leading
from homing.journal.store.directory import DATABASE_NAME
from tests.model.log_in_memory import NOWHERE, LogInMemory
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

#: What is of the batch that gathers, and not of what it writes.
_NOT_WRITTEN = {"_after", "_as_record", "_older", "_wake", "applied", "closed_s", "elide", "elided", "fault_changes", "size"}
_NOT_WRITTEN |= {"stores", "touched", "to_tables", "urgent"}


def full() -> WriteBatch:
    """Something of everything."""
    batch = WriteBatch(elide=False)
    batch.queue(queue())
    batch.address(AddressRecord("orders", 3, True, NOW_MS))
    batch.delete_address("gone")
    batch.declare(DeclarationRecord("binding", "b", {"key": b"\xff"}))
    batch.delete_declaration("exchange", "e")
    batch.add(reference(10, hops=[hop(3), hop(1, exchange="x")], delivery_count=2, cause=17))
    batch.add(reference(11, of=message(7, address="", body=b"", properties=None, priority=0, sent_at_ms=0, producer=""), shared=True))
    batch.add_fresh({12: reference(12, hops=[])}, 5, {12: 4})
    batch.spill({13: reference(13, spilled=True)}, 5)
    batch.add_message(message(7))
    batch.delete_message(8)
    batch.change([20, 21, 23], counted())
    batch.change([22], counted(failed=3))
    batch.delete_all({30})
    batch.unspill(1, [31])
    batch.end_spill(2, True)
    keep_attempt(batch, attempt(10, 10, 1, client={"host": "h"}))
    batch.delete_attempt(10, 10, 1)
    batch.outcome(outcome(5, 5))
    batch.counts(1, 7)[QueueStat.SENT] += 2
    batch.add_consumer_stats(1, 7, "c", [1, 2, 3, 4, 5, 6])
    faults = batch.faults()
    faults.counts(5, NOW_MS)[FaultStat.FAILURES] += 1
    faults.records[5] = FaultRecord(5, "f", "q", "E", 1, 2, [10], [("c", "h", "1", 1, 2)])
    faults.texts[5] = ("text", "traceback")
    faults.folded[6] = 1
    faults.keys[10] = "key"
    faults.causes[20] = 81
    batch.producer_high_watermark("p", 9, NOW_MS)
    batch.forget_producer("old")
    batch.duplicate("orders", "a")
    batch.committed("t", NOW_MS)
    batch.policy(PolicyRecord("abc", NOW_MS, {"max_delivery_attempts": 3}))
    batch.settings(NOW_MS, {"#": {"a": 1}})
    batch.edit(EditRecord(10, 9, 1, NOW_MS))
    batch.story("q", "s", (10, 2))
    batch.story("q", "over", None)
    batch.event("fault.new", NOW_MS, "q", "orders", {"n": 1})
    batch.clock(NOW_MS)
    batch.begun_ms = NOW_MS
    batch.deleted_first.add(10)
    return batch


def held(batch: WriteBatch) -> dict[str, object]:
    names = {name for kind in type(batch).__mro__ for name in getattr(kind, "__slots__", ())} - _NOT_WRITTEN
    changes = batch.fault_changes
    faults = {name: getattr(changes, name) for name in type(changes).__slots__}
    plain = {name: getattr(batch, name) for name in names}
    records = [record._replace(programs=[(a, b, c, d, e) for a, b, c, d, e in record.programs]) for record in changes.records.values()]
    return {**plain, **faults, "records": records}


@pytest.mark.plain
def test_an_entry_holds_all_that_a_batch_writes() -> None:
    batch = full()
    read, reserve_up_to = unpack_batch(pack_batch(batch, 77))
    assert reserve_up_to == 77
    found, wanted = held(read), held(batch)
    assert found == wanted
    assert all(wanted.values()), f"nothing of {[name for name, value in wanted.items() if not value]}"


def test_an_entry_leaves_out_what_a_batch_would_not_write() -> None:
    batch = WriteBatch()
    batch.add_message(message(7))
    batch.add_message(message(8))
    batch.add(reference(1, of=message(8), shared=True))
    batch.delete_message(7)
    batch.delete_message(8)
    read, reserve_up_to = unpack_batch(pack_batch(batch, None))
    assert (list(read.messages), read.messages_deleted, reserve_up_to) == ([8], {7, 8}, None)


def test_an_entry_follows_the_one_that_it_names() -> None:
    first, at = after(NOWHERE, 1, b"")
    second, end = after(at, 2, pack_batch(full(), None))
    entry, there = follow(at, second)
    assert (there, Position.unpack(end.pack()), entry.number) == (end, end, 2)
    for before, packed in [(NOWHERE, second), (at, first), (at, after(at, 0, b"")[0]), (at._replace(hash=bytes(32)), second)]:
        with pytest.raises(BadEntry, match="is not the one behind"):
            follow(before, packed)
    with pytest.raises(BadEntry, match="of version 200"):
        Entry.unpack(second[:3] + b"\xc8" + second[4:])


def test_no_bytes_break_whoever_reads_them() -> None:
    good, rng = after(NOWHERE, 1, pack_batch(full(), 5))[0], random.Random(20261127)
    read = refused = 0
    for _ in range(20_000):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(bad))
            bad[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        try:
            unpack_batch(Entry.unpack(bytes(bad)).batch)
            read += 1
        except BadEntry:
            refused += 1
    assert read
    assert refused


async def test_what_a_journal_commits_the_log_has_and_nobody_is_answered_after_a_fence(tmp_path: Path) -> None:
    log = LogInMemory(random.Random(4), trouble=0.3)
    leader = Leader(log, 0, NOWHERE, without_beats)
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS, leader)
    journal.batch.queue(queue())
    for first in (*range(1, 30), 100, 300):
        for number in range(first, first + (1 if first < 100 else 90)):
            send(journal, number)
        await journal.flush()
        ((applied,),) = query(tmp_path, "SELECT value FROM meta WHERE key = 'applied'")
        assert Position.unpack(applied) == leader.at
        assert log.standing.ends_at(leader.at)
    at, written = NOWHERE, set[int]()
    reserved = 0
    for packed in log.entries:
        entry, at = follow(at, packed)
        batch, reserve_up_to = unpack_batch(entry.batch)
        written |= batch.added.keys()
        reserved = max(reserved, reserve_up_to or 0)
    assert sorted(written) == sequences(tmp_path)
    assert len(written) == 209
    assert reserved >= journal.next_id(), "no other leader hands it out"
    answered: list[int] = []
    log.trouble, log.standing = 0.0, log.standing._replace(epoch=1, leader="b")
    send(journal, 500)
    journal.when_safe(lambda: answered.append(500))
    with pytest.raises(JournalError, match="journal-fenced: Another node leads: b"):
        await journal.flush()
    await journal.close()
    assert sorted(written) == sequences(tmp_path)
    assert not answered


async def test_a_leader_that_was_paused_before_it_read_an_answer_knows_that_others_saw_nothing_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, late_s = 0.0, 0.0

    class Late(LogInMemory):
        async def append(self, before: Position, at: Position, entry: bytes) -> bool:
            nonlocal now_s
            done = await super().append(before, at, entry)
            now_s += late_s
            return done

    monkeypatch.setattr(leader_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    leader = Leader(Late(random.Random(4)), 0, NOWHERE, without_beats)
    for late_s in (0.5, 5.0, 0.5):
        await leader.append(b"")
        assert leader.in_doubt(3.0) == (late_s > 3)


async def without_beats(pause_s: float) -> None:
    """The disk is compared with what the log has."""
    await asyncio.sleep(0 if pause_s < BEAT_S else 3_600)


def tables(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows, but for what each node has for itself."""
    names = [name for (name,) in query(directory, "SELECT name FROM sqlite_schema WHERE type = 'table'") if name != "meta"]
    shared = "SELECT * FROM meta WHERE key NOT IN ('clean_stop', 'commits', 'created_at_ms', 'reserved_up_to')"
    return {"meta": query(directory, shared), **{name: query(directory, f"SELECT * FROM {name}") for name in names}}


async def test_who_follows_leads_with_what_the_leader_had_and_all_others_have_the_same(tmp_path: Path) -> None:
    log = LogInMemory(random.Random(4))
    options = JournalOptions(**OPTIONS)

    async def follower(name: str) -> Follower:
        return await Follower.open(tmp_path / name, options, lambda: NOW_MS + 60_000, "cell")

    async def lead(name: str) -> Journal:
        copy = await follower(name)
        leader = await follow_until_leading(log, copy, name, Watch(name, 3), lambda: 0.0, without_beats)
        await copy.close()
        journal, recovered = await Journal.open(tmp_path / name, options, NOW_MS, leader)
        assert recovered.broker_id == "cell"
        return journal

    journal = await lead("a")
    journal.batch.queue(queue())
    for number in range(1, 50):
        send(journal, number)
        await journal.flush()
    settle(journal, 7)
    journal.batch.spill({60: reference(60, spilled=True)}, 5)
    journal.batch.counts(1, 1)[QueueStat.TRANSIENT_SENT] += 1
    await journal.flush()
    written, shown = tables(tmp_path / "a"), journal.next_id()
    journal.failed.set_exception(JournalError("journal-io", "As if killed.", ""))
    await journal.close()  # which writes nothing
    other = await follower("c")
    await other.apply(log.entries)
    await other.close()
    assert tables(tmp_path / "c") == written
    assert len(written["reference"]) == 49
    journal = await lead("b")
    assert journal.next_id() > shown
    await journal.flush()
    other = await follower("c")
    await other.apply(log.entries[other.at.number :])
    await other.close()
    led, followed = tables(tmp_path / "b"), tables(tmp_path / "c")
    # The leader's last reservation is no transaction of its own; old minutes are put together by each node when it comes to it.
    own = {"meta": None, "minute": None}
    assert {**followed, **own} == {**led, **own}
    assert (len(written["spilled"]), len(led["spilled"])) == (1, 0)
    for name in ("b", "c"):
        assert query(tmp_path / name, "SELECT sum(sent), sum(lost) FROM minute") == [(49, 1)]
    await journal.close()


async def follow_and_be_cut_off(directory: Path) -> None:
    """A copy that ends behind any of its transactions goes on from there, and comes to the same."""
    log, options = LogInMemory(random.Random(4)), JournalOptions(**OPTIONS)
    journal, _ = await Journal.open(directory / "leader", options, NOW_MS, Leader(log, 0, NOWHERE, without_beats))
    journal.batch.queue(queue())
    for number in range(1, 4):
        send(journal, number)
        await journal.flush()
    await journal.close()

    async def follow_to_the_end(name: str, cut_off: Callable[[str], None] | None = None) -> dict[str, list[tuple[object, ...]]]:
        async def opening(*arguments: Any, **named: Any) -> Any:
            parts = await open_directory(*arguments, **named)
            await parts.store.run(lambda connection: connection.set_trace_callback(cut_off))
            return parts

        with patch("homing.journal.follower.open_directory", opening):
            follower = await Follower.open(directory / name, options, lambda: NOW_MS, "cell")
        await follower.apply(log.entries[follower.at.number :])
        await follower.close()
        return tables(directory / name)

    def keep(statement: str) -> None:
        if statement.startswith("BEGIN"):
            copies.append(f"cut off {len(copies)}")
            shutil.copytree(directory / "whole", directory / copies[-1], ignore=without_lock)

    copies: list[str] = []
    without_lock = shutil.ignore_patterns("*.lock", "*-shm")
    whole = await follow_to_the_end("whole", keep)
    assert len(copies) >= len(log.entries)
    for name in copies:
        assert await follow_to_the_end(name) == whole


async def test_a_copy_goes_on_from_wherever_it_was_cut_off(tmp_path: Path) -> None:
    await follow_and_be_cut_off(tmp_path)


async def test_a_place_in_the_log_that_is_written_by_itself_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what an entry wrote, and that it was written, are two transactions."""
    commit = WriterThread.commit

    def in_two(writer: WriterThread, connection: sqlite3.Connection, batch: WriteBatch, reserve_up_to: int | None) -> Standing | None:
        applied, batch.applied = batch.applied, None
        standing = commit(writer, connection, batch, reserve_up_to)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('applied', ?)", [applied])
        connection.execute("COMMIT")
        return standing

    monkeypatch.setattr(WriterThread, "commit", in_two)
    with pytest.raises((AssertionError, JournalError)) as found:
        await follow_and_be_cut_off(tmp_path)
    print(found.value)


async def test_a_node_that_joined_with_a_broker_id_of_its_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a restored backup, which is another broker's, is taken for a copy."""
    options = JournalOptions(**OPTIONS)
    await (await Follower.open(tmp_path / "copy", options, lambda: NOW_MS, "cell")).close()
    restore(tmp_path / "copy", tmp_path / "restored")

    async def fetch(place: Path) -> None:
        shutil.copy(tmp_path / "restored" / DATABASE_NAME, place)

    with pytest.raises(JournalError, match=r"journal-unusable: .* it is no copy of this broker's journal"):
        await rebuild(tmp_path / "joins", "cell", fetch)
    monkeypatch.setattr("homing.journal.rebuild._foreign", lambda directory, broker_id: "")
    await rebuild(tmp_path / "joins", "cell", fetch)
    with pytest.raises(JournalError, match="journal-foreign"):
        await Follower.open(tmp_path / "joins", options, lambda: NOW_MS, "cell")


async def test_a_copy_is_opened_by_no_other_broker_and_nothing_else_is_made_one(tmp_path: Path) -> None:
    options = JournalOptions(**OPTIONS)
    await (await Follower.open(tmp_path / "copy", options, lambda: NOW_MS, "cell")).close()
    with pytest.raises(JournalError, match=r"journal-replicated: .* journal\.replication"):
        await Journal.open(tmp_path / "copy", options, NOW_MS)
    async with opened(tmp_path / "alone"):
        pass
    for directory, broker_id in (("alone", "cell"), ("copy", "another")):
        with pytest.raises(JournalError, match="journal-foreign"):
            await Follower.open(tmp_path / directory, options, lambda: NOW_MS, broker_id)
    restored = restore(tmp_path / "copy", tmp_path / "restored")
    async with opened(tmp_path / "restored") as (_, recovered):
        assert recovered.broker_id == restored["broker_id"] != "cell"


async def test_an_idle_leader_shows_that_it_lives_and_finds_out_that_it_does_not_lead(tmp_path: Path) -> None:
    log = LogInMemory(random.Random(4))
    leader = Leader(log, 0, NOWHERE, lambda _: asyncio.sleep(0))
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS, leader)
    while log.standing.last < 5:  # noqa: ASYNC110 - turns of the loop, not time
        await asyncio.sleep(0)
    log.standing = log.standing._replace(epoch=1, leader="b")
    with pytest.raises(JournalError, match="journal-fenced"):
        await journal.failed
    await journal.close()


@pytest.mark.plain
async def test_entries_are_of_the_version_that_every_node_reads_and_who_reads_less_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one version; another is planted."""
    monkeypatch.setitem(packed_batch_module.PACKERS, 2, lambda batch, reserve, pack: b"2" + pack_batch(batch, reserve))
    monkeypatch.setitem(packed_batch_module.UNPACKERS, 2, lambda packed: unpack_batch(packed.removeprefix(b"2")))
    for module in (entry_module, leader_module):
        monkeypatch.setattr(module, "VERSION", 2)
    log, options = LogInMemory(random.Random(4)), JournalOptions(**OPTIONS)
    leader = Leader(log, 0, NOWHERE)
    journal, _ = await Journal.open(tmp_path / "a", options, NOW_MS, leader)
    journal.batch.queue(queue())
    for number, reads in enumerate(([1, 2], [2, 3], [1], [])):
        leader.read_by(reads)
        send(journal, number + 1)
        await journal.flush()
    await journal.close()
    assert [Entry.unpack(entry).version for entry in log.entries] == [1, 1, 2, 2, 2], "it never falls: they are read in order"

    async def last_of(name: str) -> int:
        copy = await Follower.open(tmp_path / name, options, lambda: NOW_MS, "cell")
        copy.at = NOWHERE
        try:
            await copy.apply(log.entries)
        finally:
            await copy.close()
        return copy.at.number

    assert await last_of("newer") == 5
    assert tables(tmp_path / "newer")["reference"] == tables(tmp_path / "a")["reference"]
    monkeypatch.setattr(entry_module, "VERSION", 1)
    older = await Follower.open(tmp_path / "older", options, lambda: NOW_MS, "cell")
    older.at = NOWHERE
    said = r"log-newer: .* behind entry 2, it is of version 2, and this Homing reads them up to 1\."
    with pytest.raises(JournalError, match=said):
        await follow_until_leading(log, older, "c 1", Watch("c", 1), lambda: 0.0)
    await older.close()


async def test_a_batch_that_cannot_be_packed_is_appended_nowhere(tmp_path: Path) -> None:
    log = LogInMemory(random.Random(4))
    journal, _ = await Journal.open(tmp_path, JournalOptions(**OPTIONS), NOW_MS, Leader(log, 0, NOWHERE))
    journal.batch.outcome(outcome(1, 1, queue_id=2**70))
    with pytest.raises(JournalError, match="journal-bad-record"):
        await journal.flush()
    await journal.close()
    assert len(log.entries) == 1


async def test_a_node_is_backed_up_from_its_directory_while_it_follows(tmp_path: Path) -> None:
    log, options = LogInMemory(random.Random(4)), JournalOptions(**OPTIONS)
    journal, _ = await Journal.open(tmp_path / "a", options, NOW_MS, Leader(log, 0, NOWHERE))
    journal.batch.queue(queue())
    for number in range(1, 60):
        send(journal, number)
        await journal.flush()
    await journal.close()
    node = await Follower.open(tmp_path / "b", options, lambda: NOW_MS, "cell")
    node.at = NOWHERE
    await node.apply(log.entries[:10])
    made = asyncio.create_task(asyncio.to_thread(make_of_directory, tmp_path / "b", tmp_path / "backups", "monday"))
    for entry in log.entries[10:]:
        await node.apply([entry])
        await asyncio.sleep(0.01)
    copied = await made
    await node.apply([])
    await node.close()
    ((applied,),) = query(tmp_path / "backups" / "monday", "SELECT value FROM meta WHERE key = 'applied'")
    assert 10 <= Position.number_of(applied) <= 60
    assert copied["messages"] == Position.number_of(applied) - 1, "the first entry reserves ids"
    assert query(tmp_path / "b", "SELECT count(*) FROM reference") == [(59,)]
    async with opened(tmp_path / "alone"):
        with pytest.raises(JournalError, match="journal-locked"):
            await asyncio.to_thread(make_of_directory, tmp_path / "alone", tmp_path / "backups", "tuesday")


async def test_a_look_that_was_begun_is_done_before_the_copy_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby looks each second, also in the one in which it begins to lead."""
    standing, upkeep = WriterThread.standing, WriterThread.upkeep

    def of_something(writer: WriterThread, connection: sqlite3.Connection, idle: bool) -> Standing:
        connection.execute("SELECT 1")
        return upkeep(writer, connection, idle)

    monkeypatch.setattr(WriterThread, "standing", lambda *arguments: replace(standing(*arguments), upkeep_due=True))
    monkeypatch.setattr(WriterThread, "upkeep", of_something)
    follower = await Follower.open(tmp_path, JournalOptions(**OPTIONS), lambda: NOW_MS, "cell")
    looking = asyncio.create_task(follower.look())
    await asyncio.sleep(0)
    await follower.close()
    await looking
