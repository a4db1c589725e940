"""A journal of a node that follows: what others commit is written to it entry by entry, by the same writer as their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .commit.batch import WriteBatch
from .commit.packed_batch import pack_batch, unpack_batch
from .commit.writer_state import WriterState
from .commit.writer_thread import Standing
from .errors import JournalError
from .opening import Opened, open_directory
from .options import JournalOptions
from .replication.entry import Entry, Position, beginning, follow
from .store.commits import LastCommit, commit


class Follower:
    """A directory that this process has locked. Make it with ``open``; end it with ``close``, also after a failure.

    With an entry it holds what the leader's journal held with it. What each does by itself, as removing old history, may be further in one
    of them.
    """

    def __init__(self, opened: Opened[Position], now_ms: Callable[[], int]) -> None:
        #: The last entry that is in it.
        self.at = opened.found
        self._now_ms = now_ms
        self._lock = opened.lock
        self._store = opened.store
        self._writer_thread = opened.writer_thread
        #: By the last look: there is little room on the disk.
        self.space_low = opened.standing.space_low

    @classmethod
    async def open(cls, directory: Path, options: JournalOptions, now_ms: Callable[[], int], broker_id: str) -> Follower:
        """Raises JournalError: as Journal.open does, and ``journal-foreign`` for what is no copy of that broker's journal."""
        begin = partial(_begin, broker_id=broker_id)
        return cls(await open_directory(directory, options, now_ms(), begin, replicated=True), now_ms)

    @property
    def durable(self) -> int:
        """The number of the last entry that is on disk for sure."""
        return Position.number_of(self._writer_thread.durable)

    async def apply(self, entries: list[bytes]) -> None:
        """See replication.leadership.Copy."""
        for packed in entries:
            entry, at = follow(self.at, packed)
            upkeep_due = await self._store.run(self._write, entry, at)
            self.at = at
            if upkeep_due:
                await self._store.run(self._writer_thread.upkeep, False)

    def _write(self, connection: sqlite3.Connection, entry: Entry, at: Position) -> bool:
        batch, reserve_up_to = unpack_batch(entry.batch, entry.version)
        batch.applied = at.pack()
        standing = self._writer_thread.commit(connection, batch, reserve_up_to)
        return standing is not None and standing.upkeep_due

    async def look(self) -> None:
        """How things stand, and what is to be done about it, where no entry brings that along. What was begun is done before ``close``."""
        self.space_low = (await self._store.run(self._look)).space_low

    def _look(self, connection: sqlite3.Connection) -> Standing:
        standing = self._writer_thread.standing(connection, True)
        return self._writer_thread.upkeep(connection, True) if standing.upkeep_due else standing

    def opening(self) -> bytes:
        """See replication.leadership.Copy: what was not durable went with the leader before."""
        batch = WriteBatch()
        batch.begun_ms = self._now_ms()
        return pack_batch(batch, None)

    async def close(self) -> None:
        self._writer_thread.close()
        await self._store.close()
        self._lock.release()


def _begin(
    connection: sqlite3.Connection, now_ms: int, options: JournalOptions, last_commit: LastCommit | None, broker_id: str
) -> tuple[Position, WriterState, int, LastCommit]:
    """As ``read.recovery.recover``, without reading messages."""
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if (meta.get("broker_id") or broker_id) != broker_id or ("created_at_ms" in meta and "applied" not in meta):
        raise JournalError(
            "journal-foreign",
            "The journal in this directory is not a copy of the replicated one.",
            "Nothing was changed; name an empty directory, and it becomes one. `homing cluster init` begins a cell with what is there.",
        )
    fresh: dict[str, Any] = {"created_at_ms": now_ms, "next_queue_id": 1, "clock_ms": 0, "history_bytes": 0, "commits": 0}
    fresh |= {"broker_id": broker_id, "reserved_up_to": 1, "applied": beginning(broker_id).pack()}
    meta = {**fresh, **meta, "clean_stop": 0}
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
    number = commit(connection)
    state = WriterState.read(connection)
    return Position.unpack(meta["applied"]), state, meta["reserved_up_to"], LastCommit(number, meta["reserved_up_to"])
