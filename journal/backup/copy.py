"""The copy of a journal, for a backup: pages as they lie in the files, folded into one database and checked.

It runs in a process of its own beside the broker (backup.py), which tells it what to copy; on a stopped journal in the command's.
Neither file needs a lock for that: the database changes at checkpoints only, and those tell which pages; a write-ahead log only grows
until a checkpoint was through all of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..commit.batch_writer import merge_packed
from ..errors import JournalError
from ..read.check import check
from ..store.commits import LastCommit, LastCommitFile, missing_commits
from ..store.directory import DATABASE_NAME, damaged
from ..store.sqlite import PAGE_BYTES

LOG_NAME: Final = f"{DATABASE_NAME}-wal"
_CHUNK_BYTES: Final = 1 << 20
#: No faster than this, so that commits of the broker beside it find the disk free; and so much at a time is not synced yet.
_BYTES_A_SECOND: Final = 128 << 20
_UNSYNCED_BYTES: Final = 8 << 20


class Copied(NamedTuple):
    broker_id: str
    commits: int
    messages: int
    bytes: int


class Copy:
    """From the data directory ``source`` to the empty directory ``target``."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target

    def database(self) -> None:
        size = (self._source / DATABASE_NAME).stat().st_size
        self._copy(DATABASE_NAME, ((place, _CHUNK_BYTES) for place in range(0, size, _CHUNK_BYTES)))

    def pages(self, numbers: Iterable[int]) -> None:
        """Once more, since a checkpoint wrote them. Numbers begin at 1."""
        self._copy(DATABASE_NAME, (((number - 1) * PAGE_BYTES, PAGE_BYTES) for number in sorted(numbers)))

    def log(self, size: int | None = None) -> None:
        """The write-ahead log, up to ``size`` or whole."""
        if size is None:
            with suppress(FileNotFoundError):
                size = (self._source / LOG_NAME).stat().st_size
        if size:
            starts = range(0, size, _CHUNK_BYTES)
            self._copy(LOG_NAME, ((place, min(_CHUNK_BYTES, size - place)) for place in starts))

    def _copy(self, name: str, parts: Iterable[tuple[int, int]]) -> None:
        source = os.open(self._source / name, os.O_RDONLY)
        try:
            target = os.open(self._target / name, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                _copy_parts(source, target, parts)
                os.fsync(target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def finish(self, least_commits: int = 0) -> Copied:
        """Fold the log into the database, check everything, make it durable. Raises JournalError ``journal-damaged``."""
        with closing(sqlite3.connect(self._target / DATABASE_NAME, isolation_level=None)) as connection:
            merge_packed(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            missing = missing_commits(connection, LastCommit(least_commits, 0))
            if missing is not None:
                raise damaged(f"of the copy, {missing}")
            meta = dict(connection.execute("SELECT key, value FROM meta"))
        commits = int(meta.get("commits", 0))
        report = check(self._target, quick=True)
        if report.problems:
            raise damaged(f"the copy was checked: {report.problems[0]}")
        for name in (LOG_NAME, f"{DATABASE_NAME}-shm"):
            (self._target / name).unlink(missing_ok=True)
        with (self._target / DATABASE_NAME).open("rb") as file:
            os.fsync(file.fileno())
        LastCommitFile(self._target, LastCommit(commits, int(meta.get("reserved_up_to", 1)))).close()
        size = (self._target / DATABASE_NAME).stat().st_size
        return Copied(str(meta["broker_id"]), commits, report.rows.get("reference", 0), size)


def _copy_parts(source: int, target: int, parts: Iterable[tuple[int, int]]) -> None:
    unsynced = done = 0
    started_s = time.monotonic()
    for place, size in parts:
        content = os.pread(source, size, place)
        # A file that got shorter meanwhile has no such pages any more.
        os.pwrite(target, content, place)
        done += len(content)
        unsynced += len(content)
        if unsynced >= _UNSYNCED_BYTES:
            os.fdatasync(target)
            unsynced = 0
        ahead_s = done / _BYTES_A_SECOND - (time.monotonic() - started_s)
        if ahead_s > 0.002:
            time.sleep(ahead_s)


def main() -> int:
    """``SOURCE TARGET``: copies the database, then what lines of JSON on standard input say, and answers each with a line of JSON."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    os.nice(10)
    answer: dict[str, Any] = {}
    try:
        copy = Copy(source, target)
        copy.database()
        _say({"copied": "database"})
        for line in sys.stdin:
            order = json.loads(line)
            if "pages" in order:
                copy.pages(order["pages"])
                _say({"copied": "pages"})
                continue
            copy.log(order["log"])
            _say({"copied": "log"})
            answer = copy.finish(order["commits"])._asdict()
            break
    except JournalError as error:
        answer = {"code": error.code, "message": error.message, "fix": error.fix}
    except (OSError, sqlite3.Error) as error:
        answer = {
            "code": "backup-io",
            "message": f"Copying the journal failed: {error}.",
            "fix": f"See to {target.parent}, then try again.",
        }
    if "broker_id" not in answer:
        # The broker ended, or this went wrong: half a copy is of no use.
        shutil.rmtree(target, ignore_errors=True)
    with suppress(BrokenPipeError):
        _say(answer)
    return 0


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
