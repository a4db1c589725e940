"""The same processes with one fault put in, to see that the checker finds it: ``python -m …planted FAULT MODULE ARGUMENTS…``.

``normal``: no sync at commit. ``early``: answers before the commit. ``torn``: counts in a transaction of their own.
``unsynced``: the data directory's own name is never synced. ``reused``: ids are handed out without being reserved on disk.

Of small commits that stand packed: ``hasty``: answers before the sync that a thread waits for. ``alone``: they are removed in a
transaction of its own, before the tables have them. ``falling``: the number of the commit that follows them does not count them.
"""

from __future__ import annotations

import runpy
import sqlite3
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.batch_writer import BatchWriter
from homing.journal.commit.counts import write_counts
from homing.journal.commit.packed_commits import remove_rows
from homing.journal.commit.scheduler import CommitScheduler
from homing.journal.store import directory as disk
from homing.journal.store.commits import commit, counted, next_number
from homing.journal.store.sqlite import WalMeter, sync_commits
from homing.journal.store.sync_thread import Answer, SyncThread
from tests.faults.planted.answers_early import take_and_answer


def normal() -> None:
    WalMeter.sync = lambda self: None  # type: ignore[method-assign]


def early() -> None:
    CommitScheduler.take = take_and_answer  # type: ignore[method-assign]


def torn() -> None:
    def apart(connection: sqlite3.Connection, batch: WriteBatch) -> None:
        connection.execute("COMMIT")
        sync_commits(connection)
        connection.execute("BEGIN IMMEDIATE")
        write_counts(connection, batch)

    patch("homing.journal.commit.batch_writer.write_counts", apart).start()


def unsynced() -> None:
    disk.sync_names = lambda directory: None


def reused() -> None:
    write = BatchWriter.write

    def forgetful(self: BatchWriter, connection: sqlite3.Connection, batch: Any, reserve_up_to: int | None, *others: Any) -> Any:
        return write(self, connection, batch, None, *others)

    BatchWriter.write = forgetful  # type: ignore[method-assign, assignment]
    pack = BatchWriter.pack
    BatchWriter.pack = lambda self, connection, batch, reserve_up_to, rows: pack(self, connection, batch, None, rows)  # type: ignore[method-assign]


def hasty() -> None:
    begin = SyncThread.begin

    def answered(self: SyncThread, sync: Callable[[], None], answer: Answer) -> None:
        answer(None)
        begin(self, sync, lambda error: None)

    SyncThread.begin = answered  # type: ignore[method-assign]


def alone() -> None:
    write = BatchWriter.write

    def apart(self: BatchWriter, connection: sqlite3.Connection, *others: Any, **named: Any) -> Any:
        number = next_number(connection)
        if self.packed.rows:
            sync_commits(connection)
            connection.execute("BEGIN IMMEDIATE")
            remove_rows(connection)
            commit(connection, number)
            sync_commits(connection, by_sqlite=False)
        return write(self, connection, *others, **named)

    BatchWriter.write = apart  # type: ignore[method-assign]


def falling() -> None:
    patch("homing.journal.commit.batch_writer.next_number", lambda connection: counted(connection, packed=False) + 1).start()


_ALL = (normal, early, torn, unsynced, reused, hasty, alone, falling)
FAULTS: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in _ALL}

if __name__ == "__main__":
    _, name, module, *arguments = sys.argv
    FAULTS[name]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
