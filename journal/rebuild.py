"""A node's copy that is made anew: another node's takes the place of what is there, which is kept aside.

Whole it stands in DIRECTORY/rebuilt, and from then on each start goes on with what is left to do: what was there goes below that directory,
the new database in its place, and what was there, last, to DIRECTORY/before-rebuild-TIME, which a start removes after a week. Nothing is
removed before that: what the log lost is perhaps nowhere else.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from .errors import JournalError
from .read.check_apart import check_apart
from .store.building import building
from .store.directory import DATABASE_NAME, LAST_COMMIT_NAME, DirectoryLock, prepare_directory, sync_names

log = logging.getLogger("homing.journal")

#: Stands in the directory of a node whose copy was found damaged, as long as there is no other.
MARK_NAME: Final = "homing.damaged"
_REBUILT: Final = "rebuilt"
_BEFORE: Final = "before"
_ASIDE: Final = "before-rebuild-"
_KEPT_S: Final = 7 * 86_400
_FILES: Final = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-journal", f"{DATABASE_NAME}-shm", LAST_COMMIT_NAME, MARK_NAME)


def copy_damaged(directory: Path, error: JournalError) -> JournalError:
    """Notes that the copy in this directory is damaged, so that the next start does not go on with it. Returns what is to be raised."""
    (directory / MARK_NAME).touch()
    sync_names(directory)
    return JournalError(
        "journal-copy-damaged",
        f"This node's copy of the replicated journal is damaged: {error.message}",
        "Started again it is made anew from another node's.",
    )


def refuse_damaged(directory: Path) -> None:
    """Raises JournalError ``journal-copy-damaged`` where it was found so."""
    if (directory / MARK_NAME).exists():
        raise copy_damaged(directory, JournalError("journal-damaged", "it was found so before this start.", ""))


async def rebuild(directory: Path, broker_id: str, fetch: Callable[[Path], Awaitable[None]]) -> None:
    """Makes it anew of what ``fetch`` writes to the file that it is called with: another node's database, all of it.

    Raises JournalError: ``journal-locked``, ``journal-io``, ``journal-unusable`` where that is no copy of the broker's journal; nothing is
    changed then. May be called again, in whatever state it left the directory.
    """
    prepare_directory(directory)
    lock = DirectoryLock(directory)
    try:
        put_in_place(directory)
        with building(directory / _REBUILT, _REBUILT) as half_made:
            await fetch(half_made / DATABASE_NAME)
            found = await check_apart(half_made, 0.0)
            if wrong := found.failed or found.first or _foreign(half_made, broker_id):
                raise JournalError("journal-unusable", f"What another node gave cannot be used: {wrong}.", "It is tried again.")
            (half_made / DATABASE_NAME).chmod(0o600)
            _sync(half_made / DATABASE_NAME)
            os.rename(half_made, directory / _REBUILT)
            sync_names(directory)
        put_in_place(directory)
    except OSError as error:
        fix = "See to the data directory: it needs room for a whole copy beside what is there."
        raise JournalError("journal-io", f"The node's copy could not be made anew: {error}.", fix) from error
    finally:
        lock.release()


def _foreign(directory: Path, broker_id: str) -> str:
    with closing(sqlite3.connect(f"file:{directory / DATABASE_NAME}?mode=ro&immutable=1", uri=True)) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    return "" if meta.get("broker_id") == broker_id and "applied" in meta else "it is no copy of this broker's journal"


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_names(path.parent)


def put_in_place(directory: Path) -> None:
    """Goes on where a rebuild was ended, at whatever point; called within the directory's lock, before the journal is opened."""
    rebuilt = directory / _REBUILT
    if (rebuilt / DATABASE_NAME).exists():
        before = rebuilt / _BEFORE
        before.mkdir(mode=0o700, exist_ok=True)
        for name in _FILES:
            if (directory / name).exists():
                os.rename(directory / name, before / name)
        sync_names(before)
        sync_names(directory)
        os.rename(rebuilt / DATABASE_NAME, directory / DATABASE_NAME)
        sync_names(directory)
    if rebuilt.exists():
        _keep_aside(directory, rebuilt)
    _remove_in_time(directory)


def _keep_aside(directory: Path, rebuilt: Path) -> None:
    before, kept = rebuilt / _BEFORE, directory / f"{_ASIDE}{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    if before.exists():
        (before / f"{DATABASE_NAME}-shm").unlink(missing_ok=True)
        if any(before.iterdir()):
            os.utime(before)
            os.rename(before, kept)
            log.warning("copy-kept: what this node had before stands in %s, and goes at a start a week from now", kept)
    shutil.rmtree(rebuilt)
    sync_names(directory)


def _remove_in_time(directory: Path) -> None:
    for place in directory.glob(f"{_ASIDE}*"):
        try:
            if time.time() - place.stat().st_mtime > _KEPT_S:
                shutil.rmtree(place)
                log.info("copy-removed: %s was kept for a week", place)
        except OSError as error:
            log.warning("copy-stays: %s cannot be removed: %s", place, error)
