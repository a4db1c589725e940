"""From a directory to what a journal works with; or what kept it from being opened, in a sentence."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from .backup.before_migration import bring_up_with_copy
from .commit.batch_writer import BatchWriter, merge_packed
from .commit.packed_commits import PackedCommits
from .commit.writer_state import WriterState
from .commit.writer_thread import Standing, WriterThread, is_full, says_damaged
from .errors import JournalError, io_failure
from .options import JournalOptions
from .rebuild import copy_damaged, put_in_place, refuse_damaged
from .store.commits import LastCommit, LastCommitFile, nothing_missing
from .store.directory import (
    DATABASE_NAME,
    DirectoryLock,
    Disk,
    Files,
    beyond_quarantine,
    check_header,
    damaged,
    no_broker,
    prepare_directory,
)
from .store.sqlite import Store, WalMeter, open_store, sync_commits

log = logging.getLogger("homing.journal")


Found = TypeVar("Found")
#: As ``read.recovery.recover``: what was found, the writer's state, the first id that may be handed out, what is noted beside the database.
Begin = Callable[[sqlite3.Connection, int, JournalOptions, LastCommit | None], tuple[Found, WriterState, int, LastCommit]]


class Opened(NamedTuple, Generic[Found]):
    """A directory that this process has locked, with what was in it. ``first_id``: that may be handed out."""

    lock: DirectoryLock
    store: Store
    writer_thread: WriterThread
    standing: Standing
    found: Found
    first_id: int


async def open_directory(directory: Path, options: JournalOptions, now_ms: int, begin: Begin[Found], *, replicated: bool) -> Opened[Found]:
    """See Journal.open. ``begin``: is called on the store's thread, and makes of what is there what can go on.

    ``replicated``: a log has what is missing here, so it is synced now and then, and no row is set aside: what is damaged is
    ``journal-copy-damaged``.
    """
    if replicated:
        options = replace(options, on_damage="refuse")
    try:
        return await _open_directory(directory, options, now_ms, begin, replicated)
    except JournalError as error:
        if error.code == "journal-damaged" and replicated:
            raise copy_damaged(directory, error) from error
        if error.code == "journal-damaged" and options.on_damage == "quarantine":
            raise beyond_quarantine(error) from error
        raise


async def _open_directory(directory: Path, options: JournalOptions, now_ms: int, begin: Begin[Found], replicated: bool) -> Opened[Found]:
    prepare_directory(directory)
    try:
        lock = DirectoryLock(directory)
        try:
            put_in_place(directory)
            if replicated:
                refuse_damaged(directory)
            return await _open_locked(directory, options, now_ms, lock, begin, replicated)
        except BaseException:
            lock.release()
            raise
    except (sqlite3.Error, OSError) as error:
        raise _open_error(error) from error
    except UnicodeDecodeError as error:
        # SQLite's own words about a damaged schema quote from it.
        raise damaged("its schema is no text") from error


async def _open_locked(
    directory: Path, options: JournalOptions, now_ms: int, lock: DirectoryLock, begin: Begin[Found], replicated: bool
) -> Opened[Found]:
    check_header(directory / DATABASE_NAME)
    try:
        return await _open(directory, options, now_ms, lock, begin, replicated)
    except (sqlite3.Error, OSError) as error:
        if not _no_room(error):
            raise
        log.warning("disk-reserve-spent: the disk is full: the reserve is given up for this start")
        Disk(directory, 0).release_reserve()
        return await _open(directory, options, now_ms, lock, begin, replicated)


async def _open(
    directory: Path, options: JournalOptions, now_ms: int, lock: DirectoryLock, begin: Begin[Found], replicated: bool
) -> Opened[Found]:
    database = directory / DATABASE_NAME
    with nothing_missing(directory, replicated or options.on_damage == "quarantine") as last_commit:
        store = await open_store(database, options.cache_bytes)
        try:
            await store.run(bring_up_with_copy, directory, options.keep_before_migration)
            if not replicated:
                await store.run(_refuse_copy)
            for left_out in await store.run(merge_packed, options.on_damage == "quarantine"):
                log.error("commits-missing: %s: the broker goes on without, as on-damage says", left_out)
            found, state, first_id, kept = await store.run(begin, now_ms, options, last_commit)
            disk = Disk(directory, options.disk_reserve_bytes)
            disk.take_reserve()
            writer = BatchWriter(state, options.duplicate_ids_per_address, PackedCommits(options.elide))
            writer_thread = WriterThread(
                writer, disk, Files(directory), WalMeter(database), LastCommitFile(directory, kept), options, replicated
            )
            await store.run(sync_commits, by_sqlite=False)
            standing = await store.run(writer_thread.upkeep, False)
        except BaseException:
            await store.close()
            raise
    return Opened(lock, store, writer_thread, standing, found, first_id)


def check_may_change(directory: Path) -> None:
    """Before somebody is asked for what a change of the journal there needs. Raises JournalError ``journal-locked``,
    ``journal-replicated``, and as the opening does where it cannot be read."""
    database = directory / DATABASE_NAME
    if not database.exists():
        return
    try:
        with no_broker(directory):
            check_header(database)
            with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is not None:
                    _refuse_copy(connection)
    except (sqlite3.Error, OSError) as error:
        raise _open_error(error) from error


def _refuse_copy(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT 1 FROM meta WHERE key = 'applied'").fetchone() is not None:
        raise JournalError(
            "journal-replicated",
            "The journal in this directory is a node's copy of a replicated one, which is written by its log alone.",
            "The leader changes it (--url); start the node with its journal.replication. To go on without that, `homing journal restore`"
            " this directory into a new one.",
        )


def _no_room(error: sqlite3.Error | OSError) -> bool:
    """While opening, when no commit can have been cut short: the second is said of the file that SQLite shares its memory in."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return is_full(error) or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE


def _open_error(error: sqlite3.Error | OSError) -> JournalError:
    if isinstance(error, sqlite3.Error) and (says_damaged(error) or isinstance(error, sqlite3.IntegrityError | sqlite3.DataError)):
        return damaged(str(error))
    if _no_room(error):
        return JournalError(
            "journal-full",
            "The disk is too full to open the journal.",
            "Free space on the data directory's file system, then start again; nothing confirmed is lost.",
        )
    if isinstance(error, OSError):
        fix = "See that this user may read and write what is in the data directory, or name another one (data-directory, or --data)."
        return JournalError("journal-io", f"The journal could not be opened: {error.strerror} ({error.filename}).", fix)
    return io_failure(f"{getattr(error, 'sqlite_errorname', type(error).__name__)}, {error}")
