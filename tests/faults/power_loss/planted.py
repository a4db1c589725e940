"""The same processes with one fault put in, to see that the checker finds it: ``python -m …planted FAULT MODULE ARGUMENTS…``.

``normal``: no sync at commit. ``early``: answers before the commit. ``torn``: deletions in a transaction of their own.
``unsynced``: the data directory's own name is never synced. ``reused``: ids are handed out without being reserved on disk.
"""

from __future__ import annotations

import runpy
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from homing.journal.commit import batch_writer
from homing.journal.commit.batch_writer import BatchWriter
from homing.journal.journal import Journal
from homing.journal.store import directory as disk
from homing.journal.store.sqlite import WalMeter


def normal() -> None:
    WalMeter.sync = lambda self: None  # type: ignore[method-assign]


def early() -> None:
    commit = Journal._commit

    async def hasty(self: Journal, *arguments: bool, **named: bool) -> None:
        callbacks, self.batch._after = self.batch._after, []
        for callback in callbacks:
            callback()
        await commit(self, *arguments, **named)

    Journal._commit = hasty  # type: ignore[method-assign]


def torn() -> None:
    delete = batch_writer._delete_references

    def apart(connection: sqlite3.Connection, sequences: set[int], written: Any, references: int) -> None:
        if sequences:
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        delete(connection, sequences, written, references)

    batch_writer._delete_references = apart


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
