"""The same processes with one fault put in, to see that the checker finds it: ``python -m …planted FAULT MODULE ARGUMENTS…``.

``normal``: no sync at commit. ``early``: answers before the commit. ``torn``: deletions in a transaction of their own.
``unsynced``: the data directory's own name is never synced. ``reused``: ids are handed out without being reserved on disk.
"""

from __future__ import annotations

import runpy
import sqlite3
import sys
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

from homing.journal.commit.batch_writer import BatchWriter
from homing.journal.commit.scheduler import CommitScheduler
from homing.journal.store import directory as disk
from homing.journal.store.bulk_statements import delete_integers
from homing.journal.store.sqlite import WalMeter
from tests.faults.planted.answers_early import take_and_answer


def normal() -> None:
    WalMeter.sync = lambda self: None  # type: ignore[method-assign]


def early() -> None:
    CommitScheduler.take = take_and_answer  # type: ignore[method-assign]


def torn() -> None:
    def apart(connection: sqlite3.Connection, table: str, column: str, keys: Iterable[int]) -> int:
        if table == "reference":
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        return delete_integers(connection, table, column, keys)

    patch("homing.journal.commit.batch_writer.delete_integers", apart).start()


def unsynced() -> None:
    disk.sync_names = lambda directory: None


def reused() -> None:
    write = BatchWriter.write

    def forgetful(self: BatchWriter, connection: sqlite3.Connection, batch: Any, reserve_up_to: int | None, *others: Any) -> Any:
        return write(self, connection, batch, None, *others)

    BatchWriter.write = forgetful  # type: ignore[method-assign, assignment]


FAULTS: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in (normal, early, torn, unsynced, reused)}

if __name__ == "__main__":
    _, name, module, *arguments = sys.argv
    FAULTS[name]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
