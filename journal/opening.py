"""From a directory to what a journal works with; or what kept it from being opened, in a sentence."""

from __future__ import annotations

import errno
import logging
import sqlite3
from pathlib import Path
from typing import NamedTuple

from .backup.before_migration import bring_up_with_copy
from .commit.batch_writer import BatchWriter
from .commit.writer_thread import Standing, WriterThread, is_full, says_damaged
from .contract import Recovered
from .errors import JournalError, io_failure
from .options import JournalOptions
from .read.recovery import recover
from .store.commits import LastCommitFile, nothing_missing
from .store.directory import DATABASE_NAME, DirectoryLock, Disk, Files, beyond_quarantine, check_header, damaged, prepare_directory
from .store.sqlite import Store, WalMeter, open_store, sync_commits

log = logging.getLogger("homing.journal")


class Opened(NamedTuple):
    """A directory that this process has locked, with what was in it. ``first_id``: that may be handed out."""

    lock: DirectoryLock
    store: Store
    writer_thread: WriterThread
    standing: Standing
    recovered: Recovered
    first_id: int


async def open_directory(directory: Path, options: JournalOptions, now_ms: int) -> Opened:
    """See Journal.open."""
    try:
        return await _open_directory(directory, options, now_ms)
    except JournalError as error:
        if error.code == "journal-damaged" and options.on_damage == "quarantine":
            raise beyond_quarantine(error) from error
        raise


async def _open_directory(directory: Path, options: JournalOptions, now_ms: int) -> Opened:
    prepare_directory(directory)
    try:
        lock = DirectoryLock(directory)
        try:
            return await _open_locked(directory, options, now_ms, lock)
        except BaseException:
            lock.release()
            raise
    except (sqlite3.Error, OSError) as error:
        raise _open_error(error) from error
    except UnicodeDecodeError as error:
        # SQLite's own words about a damaged schema quote from it.
        raise damaged("its schema is no text") from error


async def _open_locked(directory: Path, options: JournalOptions, now_ms: int, lock: DirectoryLock) -> Opened:
    check_header(directory / DATABASE_NAME)
    try:
        return await _open(directory, options, now_ms, lock)
    except (sqlite3.Error, OSError) as error:
        if not _no_room(error):
            raise
        log.warning("disk-reserve-spent: the disk is full: the reserve is given up for this start")
        Disk(directory, 0).release_reserve()
        return await _open(directory, options, now_ms, lock)


async def _open(directory: Path, options: JournalOptions, now_ms: int, lock: DirectoryLock) -> Opened:
    database, quarantine = directory / DATABASE_NAME, options.on_damage == "quarantine"
    with nothing_missing(directory, quarantine) as last_commit:
        store = await open_store(database, options.cache_bytes)
        try:
            await store.run(bring_up_with_copy, directory, options.keep_before_migration)
            limits = (options.id_block, options.duplicate_ids_per_address, quarantine, options.load_limit)
            recovered, state, first_id, kept = await store.run(recover, now_ms, *limits, last_commit)
            disk = Disk(directory, options.disk_reserve_bytes)
            disk.take_reserve()
            writer = BatchWriter(state, options.duplicate_ids_per_address)
            writer_thread = WriterThread(writer, disk, Files(directory), WalMeter(database), LastCommitFile(directory, kept), options)
            await store.run(sync_commits, by_sqlite=False)
            standing = await store.run(writer_thread.upkeep, False)
        except BaseException:
            await store.close()
            raise
    return Opened(lock, store, writer_thread, standing, recovered, first_id)


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
