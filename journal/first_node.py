"""The directory that a cell begins with: what a single broker kept there becomes its first node's copy."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from .backup.before_migration import bring_up_with_copy
from .commit.batch_writer import merge_packed
from .commit.writer_thread import says_damaged
from .errors import JournalError, io_failure
from .migrations import VERSION, version_of
from .replication.entry import Position, beginning, behind_a_journal
from .store.commits import commit, nothing_missing
from .store.directory import DATABASE_NAME, DirectoryLock, check_header, damaged
from .store.sqlite import sync_commits


class FirstNode:
    """``broker_id``: of the cell, as of what is there. ``at``: where its log begins: behind that."""

    def __init__(self, directory: Path, meta: dict[str, Any]) -> None:
        self._directory = directory
        self._there = "broker_id" in meta
        self.broker_id: str = meta.get("broker_id") or str(uuid.uuid4())
        self.at = beginning(self.broker_id)
        if self._there:
            self.at = Position.unpack(meta["applied"]) if "applied" in meta else behind_a_journal(self.broker_id)

    def begin(self, keep_before_migration: bool) -> None:
        """From here on the journal that is there is a node's, which its log alone writes."""
        if not self._there:
            return
        with _connected(self._directory, "rw") as connection:
            sync_commits(connection)
            bring_up_with_copy(connection, self._directory, keep_before_migration)
            merge_packed(connection)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('applied', ?)", (self.at.pack(),))
            commit(connection)


@contextmanager
def first_node(directory: Path) -> Iterator[FirstNode]:
    """Within it no broker runs there. Raises JournalError: ``journal-locked``, ``journal-damaged``, ``journal-newer``, ``journal-io``."""
    if not (directory / DATABASE_NAME).exists():
        yield FirstNode(directory, {})
        return
    lock = DirectoryLock(directory)
    try:
        check_header(directory / DATABASE_NAME)
        with nothing_missing(directory, False):
            yield FirstNode(directory, _meta(directory))
    except sqlite3.Error as error:
        raise damaged(str(error)) if says_damaged(error) else io_failure(str(error)) from error
    finally:
        lock.release()


def _meta(directory: Path) -> dict[str, Any]:
    with _connected(directory, "ro") as connection:
        if (found := version_of(connection)) > VERSION:
            raise JournalError(
                "journal-newer",
                f"The journal has version {found}, and this Homing knows versions up to {VERSION}.",
                "Run the one that wrote it.",
            )
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
            return {}
        return dict(connection.execute("SELECT key, value FROM meta"))


@contextmanager
def _connected(directory: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"{(directory / DATABASE_NAME).absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        yield connection
