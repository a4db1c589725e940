"""The way back from a migration: a copy of the database as it was, made before the tables change."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from ..migrations import VERSION, bring_up, version_of
from ..store.building import building
from ..store.commits import LastCommit, LastCommitFile
from ..store.directory import DATABASE_NAME, Disk, sync_names

log = logging.getLogger("homing.journal")

_PREFIX: Final = "before-version-"
_KEPT_S: Final = 7 * 86_400


def bring_up_with_copy(connection: sqlite3.Connection, directory: Path, keep: bool) -> None:
    """See ``bring_up``; of an older journal a copy stands in the directory afterwards, where twice its size was free and ``keep`` wants it.

    It is what ``homing journal restore`` of the Homing before takes. There is one at most: that of the last migration.
    """
    found = version_of(connection)
    if found >= VERSION or not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        bring_up(connection)
        return
    place = _copy(connection, directory) if keep else None
    bring_up(connection)
    if place is None:
        log.warning(
            "journal-migrated: from version %d to %d, without a copy (%s); the way back is a backup that was made before",
            found,
            VERSION,
            "twice its size is not free on the disk" if keep else "journal: {keep-before-migration: false}",
        )
        return
    log.warning(
        "journal-migrated: from version %d to %d; as it was it stands in %s, until an orderly stop a week from now. To go back: stop the"
        " broker, install the Homing before, `homing journal restore %s --data NEW-DIRECTORY`; what came since is not in it",
        found,
        VERSION,
        place,
        place,
    )


def _copy(connection: sqlite3.Connection, directory: Path) -> Path | None:
    """Whole and on disk when this returns; None where there is too little room."""
    disk = Disk(directory, 0)
    if disk.free_bytes() < 2 * disk.database_bytes():
        return None
    for older in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(older)
    target = directory / f"{_PREFIX}{VERSION}"
    with building(target, f"{_PREFIX}*") as half_made:
        with closing(sqlite3.connect(half_made / DATABASE_NAME, isolation_level=None)) as copy:
            connection.backup(copy)
            meta = dict(copy.execute("SELECT key, value FROM meta"))
        with (half_made / DATABASE_NAME).open("rb") as file:
            os.fsync(file.fileno())
        LastCommitFile(half_made, LastCommit(int(meta.get("commits", 0)), int(meta.get("reserved_up_to", 1)))).close()
        os.rename(half_made, target)
        sync_names(directory)
    return target


def remove_copy_in_time(directory: Path) -> None:
    """At an orderly stop: a copy of more than a week ago goes."""
    for place in directory.glob(f"{_PREFIX}*"):
        try:
            if time.time() - place.stat().st_mtime > _KEPT_S:
                shutil.rmtree(place)
                log.info("migration-copy-removed: %s was made more than a week ago", place)
        except OSError as error:
            log.warning("migration-copy-stays: %s cannot be removed: %s", place, error)
