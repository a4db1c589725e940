"""What the broker's batches write, packed as entries of a log and applied to another journal, is there as it is in its own: table by table.
So it is where small ones stand packed in the journal itself until they are written together, or until a start finds them.

The lives are those of the model of the whole broker.
"""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.batch_writer import BatchWriter, merge_packed
from homing.journal.commit.packed_batch import pack_batch, unpack_batch
from homing.journal.commit.packed_commits import PackedCommits
from homing.journal.commit.writer_state import WriterState
from homing.journal.migrations import bring_up
from homing.journal.replication.entry import after, follow
from homing.journal.store.sqlite import Writing
from tests.model.log_in_memory import NOWHERE
from tests.model.test_broker_model import BrokerModel, PagedModel

#: How many rows of each table were compared.
rows_seen: dict[str, int] = {}


class Tables:
    """A journal of its own, in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, factory=Writing)
        bring_up(self.connection)
        fresh = {"commits": 0, "clock_ms": 0, "next_queue_id": 1, "history_bytes": 0}
        self.connection.executemany("INSERT INTO meta VALUES (?, ?)", fresh.items())
        self.writer = BatchWriter(WriterState(0, 1, 1, 0, {}, 0, 0, False), 20_000, PackedCommits(elide=True))

    def all_rows(self) -> dict[str, list[tuple[object, ...]]]:
        names = [name for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {name: self.connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


class Replicated(BrokerModel):
    """Each batch is written to one journal, and by its entry to another."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = Tables(), Tables()
        self.at = self.followed = NOWHERE
        journal = self.world.journal
        commit = journal.commit

        def write_and_commit() -> None:
            self.write(journal.batch, self.at.number or None)
            commit()

        journal.commit = write_and_commit  # type: ignore[method-assign]

    def write(self, batch: WriteBatch, reserve_up_to: int | None) -> None:
        entry, self.at = after(self.at, 3, pack_batch(batch, reserve_up_to))
        self.own.writer.write(self.own.connection, batch, reserve_up_to)
        read, self.followed = follow(self.followed, entry)
        self.other.writer.write(self.other.connection, *unpack_batch(read.batch))

    def teardown(self) -> None:
        tables = self.own.all_rows()
        assert self.at == self.followed
        assert self.other.all_rows() == tables
        assert self.other.writer.state == self.own.writer.state
        for name, rows in tables.items():
            rows_seen[name] = rows_seen.get(name, 0) + len(rows)
        super().teardown()


class ReplicatedPaged(Replicated, PagedModel):
    """Of which most is on disk, and some for want of memory alone."""


class Packed(Replicated):
    """Each batch is written to one journal, and to another packed where it is small."""

    written = 0

    def write(self, batch: WriteBatch, reserve_up_to: int | None) -> None:
        self.own.writer.write(self.own.connection, batch, reserve_up_to)
        other, rows = self.other.writer, batch.small_rows()
        if rows and not other.packed.full:
            other.pack(self.other.connection, batch, reserve_up_to, rows)
            rows_seen["packed"] = rows_seen.get("packed", 0) + 1
        else:
            other.write(self.other.connection, batch, reserve_up_to)
        self.written += 1
        if self.written % 11 == 0:
            other.merge(self.other.connection)
        elif self.written % 7 == 0:
            self.start_anew()

    def start_anew(self) -> None:
        merge_packed(self.other.connection)
        self.other.writer = BatchWriter(WriterState.read(self.other.connection), 20_000, PackedCommits(elide=True))

    def teardown(self) -> None:
        self.start_anew()
        for tables in (self.own, self.other):
            # Neither counts what came and went between, nor keeps its rows.
            tables.connection.execute("DELETE FROM meta WHERE key = 'commits'")
        super().teardown()


class PackedPaged(Packed, PagedModel):
    pass


@pytest.mark.parametrize("life", [Replicated, ReplicatedPaged, Packed, PackedPaged])
def test_a_journal_that_is_written_by_entries_is_that_which_wrote_them(life: type[Replicated]) -> None:
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    print({name: count for name, count in rows_seen.items() if count})
    # How many there are depends on which modules are loaded: Hypothesis draws their constants, too.
    assert rows_seen["reference"]
