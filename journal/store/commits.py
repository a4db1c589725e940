"""What must be there: the number of the last commit, in the database and beside it.

SQLite takes the first damaged frame of a write-ahead log for the log's end, as it must after a power cut, and a missing log for an empty
one: what was confirmed since would be gone without a word. So each transaction counts itself in table ``meta``, and the number of the last
one that returned is noted in a small file beside the database before anybody is answered. A start finds the database behind that file only
where confirmed work is missing.

The file is written without a sync: when the process ends the page cache stays, and after a power cut an older number, or none, only means
that less is found out. It has two slots, written in turn, so that a torn write leaves the one before. Its number never runs ahead of the
disk: it is written after the commit's own sync.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from ..errors import JournalError
from .directory import DATABASE_NAME, LAST_COMMIT_NAME, damaged, sync_names
from .sqlite import Writing, sync_commits

log = logging.getLogger("homing.journal")

#: To be a part of each transaction that does not know its number.
COUNT: Final = "UPDATE meta SET value = value + 1 WHERE key = 'commits'"
_NUMBER: Final = "UPDATE meta SET value = ? WHERE key = 'commits'"
#: Two slots, in sectors of their own: what names the format, the number, the ids reserved, and a checksum of these.
_SLOT: Final = struct.Struct("<8sQQI")
_SLOT_BYTES: Final = 512
_FORMAT: Final = b"HomingC1"


def next_number(connection: sqlite3.Connection) -> int:
    """Of the commit that comes."""
    known = connection.commits if isinstance(connection, Writing) else None
    return (counted(connection) if known is None else known) + 1


def commit(connection: sqlite3.Connection, number: int | None = None) -> int:
    """End the open transaction with a COMMIT that counts itself; returns its number (``number``: see next_number). Every transaction of the
    writer ends here, but for packed ones (commit/packed_commits.py), which are their number's row."""
    number = next_number(connection) if number is None else number
    connection.execute(_NUMBER, (number,))
    connection.execute("COMMIT")
    if isinstance(connection, Writing):
        connection.commits = number
    return number


def commit_clean_stop(connection: sqlite3.Connection, next_id: int) -> int:
    """Mark a clean stop, with what is reserved from then on, and empty the write-ahead log; returns the commit's number."""
    sync_commits(connection)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('clean_stop', 1), ('reserved_up_to', ?)", (next_id,))
    number = commit(connection)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return number


class LastCommit(NamedTuple):
    """What the file says: how many commits it knows of, and below which number ids may be in use."""

    commits: int
    reserved_up_to: int


def read_last_commit(directory: Path) -> LastCommit | None:
    """None where there is no such file, as in a journal of an earlier version, or nothing of it is readable."""
    try:
        content = (directory / LAST_COMMIT_NAME).read_bytes()
    except FileNotFoundError:
        return None
    found = [_slot(content[start : start + _SLOT.size]) for start in (0, _SLOT_BYTES)]
    return max((last_commit for last_commit in found if last_commit is not None), default=None)


def _slot(content: bytes) -> LastCommit | None:
    if len(content) < _SLOT.size or crc32(content[:-4]) != int.from_bytes(content[-4:], "little") or not content.startswith(_FORMAT):
        return None
    _, commits, reserved_up_to, _ = _SLOT.unpack(content)
    return LastCommit(commits, reserved_up_to)


class LastCommitFile:
    """Writes it."""

    def __init__(self, directory: Path, last_commit: LastCommit) -> None:
        """Make the file durable with this in it."""
        self._reserved_up_to = last_commit.reserved_up_to
        self._descriptor = os.open(directory / LAST_COMMIT_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(self._descriptor).st_size < 2 * _SLOT_BYTES:
                os.pwrite(self._descriptor, bytes(2 * _SLOT_BYTES), 0)
            self._write(last_commit.commits)
            os.fsync(self._descriptor)
            sync_names(directory)
        except BaseException:
            self.close()
            raise

    def advance(self, commits: int, reserved_up_to: int | None) -> None:
        """This commit is on disk. ``reserved_up_to``: where it raised that."""
        if reserved_up_to is not None:
            self._reserved_up_to = reserved_up_to
        if self._descriptor < 0:
            return
        try:
            self._write(commits)
        except OSError as error:
            # An old number does no harm, and the journal's own writes will find the same.
            log.warning(
                "last-commit-unwritable: %s cannot be written (%s): missing commits will not be found out until the next start",
                LAST_COMMIT_NAME,
                error.strerror,
            )
            self.close()

    def _write(self, commits: int) -> None:
        head = _SLOT.pack(_FORMAT, commits, self._reserved_up_to, 0)[:-4]
        os.pwrite(self._descriptor, head + crc32(head).to_bytes(4, "little"), commits % 2 * _SLOT_BYTES)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def nothing_missing(directory: Path, go_on: bool) -> Iterator[LastCommit | None]:
    """Look before the journal is opened for writing; yields what the file says. JournalError ``journal-damaged`` where commits are missing.

    ``go_on``: say so and take what is there. While this lasts a reader has the database open: should the writer be refused it is not the
    last to close it, and the write-ahead log, the damaged part of it too, stays as it was found.
    """
    last_commit = read_last_commit(directory)
    database = directory / DATABASE_NAME
    if not _size(database):
        if last_commit is not None or _size(directory / f"{DATABASE_NAME}-wal"):
            raise _no_database(last_commit)
        yield None
    elif last_commit is None:
        yield None
    else:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
            missing = missing_commits(connection, last_commit)
            if missing is not None:
                # Where there is not even a table there is nothing to go on with; a copy of an earlier version counted nothing.
                if not go_on or not has_table(connection, "meta"):
                    raise damaged(missing)
                log.error("commits-missing: %s: the broker goes on with what is there, as on-damage says", missing)
            yield last_commit


def missing_commits(connection: sqlite3.Connection, last_commit: LastCommit | None) -> str | None:
    """What is not there, as a sentence without its end; None when nothing is known to be missing. The file was read before."""
    if last_commit is None:
        return None
    number = counted(connection)
    if number >= last_commit.commits:
        return None
    return (
        f"{last_commit.commits - number} of {last_commit.commits} commits are missing, all since number {number}; the write-ahead log"
        f" ({DATABASE_NAME}-wal) is damaged or missing, or {DATABASE_NAME} is an older copy"
    )


def counted(connection: sqlite3.Connection, packed: bool = True) -> int:
    """The number of the last commit in the database; 0 where the database does not say. Not ``packed``: that the tables hold."""
    if not has_table(connection, "meta"):
        return 0
    found = connection.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()
    number = found[0] if found is not None and type(found[0]) is int else 0
    if packed and has_table(connection, "packed_commit"):
        number = connection.execute("SELECT max(coalesce(max(number), 0), ?) FROM packed_commit", (number,)).fetchone()[0]
    return int(number)


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone() is not None


def _no_database(last_commit: LastCommit | None) -> JournalError:
    what = "its write-ahead log is there" if last_commit is None else f"it had {last_commit.commits} commits"
    return JournalError(
        "journal-damaged",
        f"The journal is damaged: {DATABASE_NAME} is missing or empty, and {what}.",
        f"Nothing was changed; put {DATABASE_NAME} back, restore a backup into a new data directory,"
        f" or, to begin with nothing, move what is named {DATABASE_NAME}* away.",
    )


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
