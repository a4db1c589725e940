"""What kept a journal from being opened, in a sentence."""

from __future__ import annotations

import errno
import sqlite3

from .commit.writer_thread import is_full, says_damaged
from .errors import JournalError, io_failure
from .store.directory import damaged


def no_room(error: sqlite3.Error | OSError) -> bool:
    """While opening, when no commit can have been cut short: the second is said of the file that SQLite shares its memory in."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return is_full(error) or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE


def open_error(error: sqlite3.Error | OSError) -> JournalError:
    if isinstance(error, sqlite3.Error) and (says_damaged(error) or isinstance(error, sqlite3.IntegrityError | sqlite3.DataError)):
        return damaged(str(error))
    if no_room(error):
        return JournalError(
            "journal-full",
            "The disk is too full to open the journal.",
            "Free space on the data directory's file system, then start again; nothing confirmed is lost.",
        )
    if isinstance(error, OSError):
        fix = "See that this user may read and write what lies in the data directory, or name another one (data-directory, or --data)."
        return JournalError("journal-io", f"The journal could not be opened: {error.strerror} ({error.filename}).", fix)
    return io_failure(f"{getattr(error, 'sqlite_errorname', type(error).__name__)}, {error}")
