"""What small commits wrote as one packed row each (table ``packed_commit``) and the tables do not hold yet.

Such a row costs a third of what rows of the tables, their indexes and counts take. What several commits wrote joins here, as in batches
that wait, so that what came and went needs no row. Together it goes to the tables in the transaction that removes the packed rows: with
the next commit that is not packed, at the latest. What a crash left of them is applied before anything is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from ..store.commits import counted, has_table, next_number
from ..store.directory import damaged
from ..store.packing import packer
from ..store.sqlite import Writing
from .batch import SMALL_BYTES, SMALL_ROWS, WriteBatch
from .packed_batch import VERSION, BadEntry, pack_batch, unpack_batch

#: With so much the next commit is not packed; so the tables take it within two milliseconds.
_MOST_ROWS: Final = SMALL_ROWS
_MOST_BYTES: Final = 8 * SMALL_BYTES

_INSERT: Final = "INSERT INTO packed_commit VALUES (?, ?, ?, ?)"
_CLEAR: Final = "DELETE FROM packed_commit"
_ALL: Final = "SELECT number, version, checksum, batch_blob FROM packed_commit ORDER BY number"


class PackedCommits:
    """Of the one connection that writes."""

    def __init__(self, elide: bool) -> None:
        self._elide = elide
        self._pack = packer()
        self.clear()

    def clear(self) -> None:
        #: All that they hold, and up to where they reserve ids.
        self.batch = WriteBatch(elide=self._elide)
        self.reserved_up_to: int | None = None
        #: Rows of the tables that they stand for, about; 0: there are none.
        self.rows = 0

    @property
    def full(self) -> bool:
        return self.rows >= _MOST_ROWS or self.batch.size >= _MOST_BYTES

    def write(self, connection: Writing, batch: WriteBatch, reserve_up_to: int | None, rows: int) -> tuple[int, int]:
        """One more, which is a transaction. Returns the number of the commit, and bytes. ``batch`` may be read yet."""
        batch.make_records()
        packed = pack_batch(batch, reserve_up_to, VERSION, self._pack)
        number = next_number(connection)
        connection.execute(_INSERT, (number, VERSION, crc32(packed, number), bytearray(packed)))
        connection.commits = number
        self._join(batch, reserve_up_to, rows)
        return number, len(packed)

    def read(self, connection: sqlite3.Connection, go_on: bool) -> list[str]:
        """Those that a crash left. Raises JournalError ``journal-damaged``; ``go_on``: what is damaged is left out, and returned."""
        left_out = []
        for found in _all(connection):
            if not isinstance(found, str):
                self._join(*found, 1)
            elif go_on:
                left_out.append(found)
                self.rows += 1
            else:
                raise damaged(found)
        return left_out

    def _join(self, batch: WriteBatch, reserve_up_to: int | None, rows: int) -> None:
        self.batch.absorb_changes(batch)
        self.reserved_up_to = reserve_up_to or self.reserved_up_to
        self.rows += rows


def there_are(connection: sqlite3.Connection) -> bool:
    return has_table(connection, "packed_commit") and connection.execute("SELECT 1 FROM packed_commit LIMIT 1").fetchone() is not None


def remove_rows(connection: sqlite3.Connection) -> None:
    """In the transaction that writes to the tables what they hold."""
    connection.execute(_CLEAR)


def problems(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with them, a sentence each. As of one moment: a broker may be at work."""
    connection.execute("BEGIN")
    try:
        return [found for found in _all(connection) if isinstance(found, str)]
    finally:
        connection.execute("ROLLBACK")


def _all(connection: sqlite3.Connection) -> Iterator[tuple[WriteBatch, int | None] | str]:
    """What each holds, and up to where it reserves ids; or what is wrong, as a sentence without its end."""
    if not has_table(connection, "packed_commit"):
        return  # of an earlier version
    last = counted(connection, packed=False)
    for number, version, checksum, packed in connection.execute(_ALL).fetchall():
        if number <= last:
            yield f"commit {number} (table packed_commit) is in the tables already"
            continue
        if number != last + 1:
            yield f"of commits {last + 1} to {number - 1} nothing is there (table packed_commit)"
        last = number
        try:
            if not isinstance(packed, bytes) or crc32(packed, number) != checksum:
                raise BadEntry("its checksum is another")
            yield unpack_batch(packed, version)
        except BadEntry as error:
            yield f"commit {number} (table packed_commit) is not what was written: {error}"
