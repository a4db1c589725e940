"""Messages that go on to another queue: the body is taken along on disk, the way is told by hops."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from homing.journal.read.check import check
from homing.journal.read.queries import JournalReader
from homing.journal.store.packing import pack
from tests.unit.journal_support import TRANSIENT, hop, message, opened, query, queue, reference, send, sequences, settle


async def test_a_message_that_goes_on_takes_its_body_along_from_the_row_it_leaves(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        for sequence in (1, 2, 3):
            send(journal, sequence)
        await journal.flush()
        before = dict(query(tmp_path, "SELECT message_id, message_blob FROM reference"))
        send(journal, 4)
        for old in (1, 2, 4):  # 4 was never on disk
            settle(journal, old)
            hops = [hop(old)]
            send(journal, 10 + old, 2, of=message(old), hops=hops)
        send(journal, 23, 2, of=message(3), hops=[hop(3)], failed=1)  # its old row stays
        await journal.flush()
        moved = query(
            tmp_path, "SELECT sequence, message_id, queue_id, failed, due_at_ms, overlay_blob IS NULL FROM reference WHERE queue_id = 2"
        )
        assert moved == [(11, 1, 2, 0, None, 0), (12, 2, 2, 0, None, 0), (14, 4, 2, 0, None, 0), (23, 3, 2, 1, None, 0)]
        after = dict(query(tmp_path, "SELECT message_id, message_blob FROM reference WHERE queue_id = 2"))
        assert {number: after[number] for number in before} == before
    async with opened(tmp_path) as (_, recovered):
        went = [reference for reference in recovered.references if reference.queue_id == 2]
        assert [(reference.message, reference.hops) for reference in went] == [(message(number), [hop(number)]) for number in (1, 2, 4, 3)]


async def test_runs_of_rows_that_a_job_moves_keep_what_each_says(tmp_path: Path) -> None:
    """Some alone, few or many together; one whose row is not there."""
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        old = [1, 3, 4, 5, *range(10, 40), 50]
        for sequence in old:
            send(journal, sequence)
        await journal.flush()
        _, detail = hop(0)
        came = {
            sequence: reference(sequence, 2, of=message(each), hops=[(each, detail)], delivery_count=each // 10)
            for sequence, each in enumerate(old, 100)
        }
        gone = reference(200, 2, of=message(60), hops=[hop(60)])
        journal.batch.add_fresh({**came, 200: gone}, 0, {**dict(zip(came, old, strict=True)), 200: 60})
        journal.batch.delete_all([*old, 60])
        await journal.flush()
        assert journal.statistics.references_added == 2 * len(old) + 1
    async with opened(tmp_path) as (_, recovered):
        assert {each.sequence: each for each in recovered.references} == {**came, 200: gone}


async def test_a_message_whose_old_row_is_gone_is_written_from_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 2)
        await journal.flush()
        for old in (1, 2):  # 1 was set aside meanwhile
            settle(journal, old)
            send(journal, 10 + old, of=message(old), hops=[hop(old)])
        await journal.flush()
        assert journal.statistics.references_added == 3
    assert "1 messages go on to another queue from rows that are not there" in caplog.text
    async with opened(tmp_path) as (_, recovered):
        assert [(reference.sequence, reference.message) for reference in recovered.references] == [(11, message(1)), (12, message(2))]


async def test_a_hop_that_names_a_row_of_another_message_takes_no_body_from_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in (1, 2):
            send(journal, sequence)
        await journal.flush()
        for old, named in ((1, 2), (2, 1)):
            settle(journal, old)
            send(journal, 10 + old, of=message(old), hops=[hop(named)])
    async with opened(tmp_path) as (_, recovered):
        assert [(reference.sequence, reference.message) for reference in recovered.references] == [(11, message(1)), (12, message(2))]


async def test_bodies_that_go_on_are_taken_along_some_megabytes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.commit.batch_writer._PACKED_BYTES", 100)
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 8):
            send(journal, sequence, of=message(sequence, b"x" * 40))
        await journal.flush()
        for sequence in range(1, 8):
            settle(journal, sequence)
            send(journal, 10 + sequence, of=message(sequence, b"x" * 40), hops=[hop(sequence)])
        await journal.flush()
        assert sequences(tmp_path) == list(range(11, 18))


async def test_messages_that_go_on_together_keep_their_places_and_ways(tmp_path: Path) -> None:
    """Runs, short ones and long ones, in and out of order, with hops that are one map for all or differ."""
    alike, other = hop(0)[1], hop(0, reason="expired")[1]
    ways = [(old, [(old, alike)]) for old in range(1, 41)]
    ways += [(41, [(41, other)]), (42, [(42, alike), (7, other)]), *((old, [(old, alike)]) for old in range(60, 42, -1))]
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        journal.batch.queue(queue(2))
        for sequence in range(1, 61):
            send(journal, sequence)
        await journal.flush()
        expected = []
        for number, (old, hops) in enumerate(ways, 101):
            settle(journal, old)
            expected.append(send(journal, number + (old > 20), 2, of=message(old), hops=hops))
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        assert recovered.references == expected
    with JournalReader(tmp_path) as reader:
        reported = reader.history(42)
        assert reported is not None
        (here,) = reported["references"]
        assert here["hops"] == [alike | {"message_id": 42, "sequence": 42}, other | {"message_id": 42, "sequence": 7}]


async def test_hops_that_an_older_journal_holds_are_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 8, of=message(3), hops=[hop(3)])
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        detail = hop(3, message_id=3)[1]
        connection.execute("UPDATE reference SET overlay_blob = ?", (pack([{**detail, "sequence": 3}, {**detail, "sequence": 2}]),))
        connection.execute("DROP TABLE gone")
        connection.execute("ALTER TABLE queue DROP COLUMN policy")
        for table in ("returned", "fault", "fault_text", "fault_count", "edit", "event", "story", "spilled", "packed_commit"):
            connection.execute(f"DROP TABLE {table}")
        for index in ("reference_dead", "reference_key"):
            connection.execute(f"DROP INDEX {index}")
        for column in ("counts_checksum", "cause", "redrive", "message_key"):
            connection.execute(f"ALTER TABLE reference DROP COLUMN {column}")
        for table, columns in (
            ("minute", f"failed_first failed_ms {' '.join(TRANSIENT)}"),
            ("served", "failed failed_ms first_ms last_ms"),
        ):
            for column in columns.split():
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 5")
    async with opened(tmp_path) as (_, recovered):
        assert recovered.references == [reference(8, of=message(3), hops=[(3, detail), (2, detail)])]


FOREIGN: dict[str, Any] = {
    "queue": None,
    "reason": b"x",
    "address": 1,
    "routing_type": True,
    "at_ms": 1 << 62,
    "attempts": "1",
    "expires_at_ms": "x",
}


async def test_hops_that_are_none_are_damage(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 8, hops=[hop(3)])
    with closing(sqlite3.connect(tmp_path / "homing.db", isolation_level=None)) as connection:
        detail = hop(3)[1]
        entries: list[dict[str, Any]] = [{"behind": behind} for behind in (0, -1, 9, (1 << 64) - 1, -(1 << 63), True, 1.0, "1", [1])]
        entries += [{"sequence": sequence} for sequence in (8, -1, True, "3", None)]
        wrong: list[Any] = [detail | entry for entry in ({}, *entries)]
        wrong += [{"behind": 1}, "q1", *(detail | {"behind": 1, name: value} for name, value in FOREIGN.items())]
        for blob in (5, "", {}, *([each] for each in wrong), [detail | {"behind": 5}, detail]):
            connection.execute("UPDATE reference SET overlay_blob = ?", (pack(blob),))
            (problem,) = check(tmp_path).problems
            assert "has hop" in problem, blob
        async with opened(tmp_path, on_damage="quarantine") as (_, recovered):
            assert not recovered.references
