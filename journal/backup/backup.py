"""A backup of the journal that a broker is running on, and of a stopped one; and the way back.

Another connection's backup would begin again at each commit. Here the files are copied as they lie, by a process of its own, while commits
and checkpoints go on: each checkpoint notes which pages it writes, those are copied again, and only while the last few of them and the
write-ahead log are copied do checkpoints wait. What was committed by then is in the backup, the rest of the log is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import json
import os
import re
import shutil
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from .. import apart
from ..commit.batch_writer import merge_packed
from ..commit.writer_thread import says_damaged
from ..errors import JournalError
from ..migrations import bring_up
from ..read.queries import open_as_it_is
from ..store.building import building
from ..store.commits import LastCommit, commit, missing_commits, read_last_commit
from ..store.directory import DATABASE_NAME, DirectoryLock, check_header, damaged, make_directory, no_broker, sync_names
from .copy import LOG_NAME, Copied, Copy
from .watch import BackupWatch

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Ids that a restored journal leaves out: more than a broker gives out in the life of a backup (a hundred thousand a second for 127 days).
SKIPPED_IDS: Final = 1 << 40
#: After so many rounds checkpoints wait, however many pages there are still.
_ROUNDS: Final = 10

OnWriter = Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]


class Backups:
    """Of one open journal, one at a time. ``on_writer``: calls a function on the writer's thread, between two commits. ``spare_bytes``: so
    much of the disk is left free."""

    def __init__(self, directory: Path, place: Path, on_writer: OnWriter, watch: BackupWatch, spare_bytes: int) -> None:
        self._directory = directory
        self._place = place
        self._on_writer = on_writer
        self._watch = watch
        self._spare_bytes = spare_bytes
        self._task: asyncio.Task[dict[str, Any]] | None = None

    def make(self, name: str) -> asyncio.Task[dict[str, Any]]:
        """Begins; the task's result is ``{path, broker_id, commits, messages, bytes}``.

        Raises JournalError: ``backup-name``, ``backup-exists``, ``backup-running``; the task also ``backup-no-room``, ``backup-io``,
        ``backup-interrupted`` and ``journal-damaged``. Nothing stands under the name then.
        """
        with _failures(self._place):
            target = _target(self._place, name)
        return self.copy(target)

    def copy(self, target: Path) -> asyncio.Task[dict[str, Any]]:
        """As ``make``, in a directory of that path, which is not there yet."""
        if self._task is not None and not self._task.done():
            raise JournalError("backup-running", "Another backup is being made.", "Wait until it is done.")
        self._task = asyncio.get_running_loop().create_task(self._make(target), name="backup")
        return self._task

    async def stop(self) -> None:
        """Before the journal is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _make(self, target: Path) -> dict[str, Any]:
        with _failures(target.parent):
            _check_room(self._directory, target.parent, self._spare_bytes)
            with building(target, "*") as half_made:
                return await self._copied(target, half_made)

    async def _copied(self, target: Path, half_made: Path) -> dict[str, Any]:
        await self._on_writer(lambda _: self._watch.begin())
        child = None
        try:
            child = await apart.start("homing.journal.backup.copy", str(self._directory), str(half_made))
            copied = await self._converse(child)
            _name(half_made, target)
            return {"path": str(target), **copied._asdict()}
        finally:
            self._watch.end()
            if child is not None:
                await apart.end(child)

    async def _converse(self, child: asyncio.subprocess.Process) -> Copied:
        await _answer(child)
        for number in range(_ROUNDS):
            pages = await self._on_writer(partial(self._watch.take, number + 1 == _ROUNDS))
            await _send_order(child, {"pages": sorted(pages)})
            if self._watch.held:
                break
        size, commits = await self._on_writer(self._watch.position)
        await _send_order(child, {"log": size, "commits": commits})
        interrupted = self._watch.interrupted
        self._watch.end()
        if interrupted:
            raise JournalError(
                "backup-interrupted",
                "The write-ahead log had to be cut while the backup needed it: it reached its limit, or the disk is nearly full.",
                "Try again when the broker is less busy, or raise journal: {wal-limit}.",
            )
        return Copied(**await _answer(child))


def _check_room(directory: Path, place: Path, spare_bytes: int) -> None:
    """A disk that is full would keep producers waiting."""
    needed, free = _size_of(directory), shutil.disk_usage(place).free
    if free < needed + spare_bytes:
        raise JournalError(
            "backup-no-room",
            f"The copy takes up to {needed >> 20:,} MiB, and of {free >> 20:,} MiB that are free {spare_bytes >> 20:,} are kept.",
            f"Make room on the file system of {place}, or set journal: {{backup-directory}}.",
        )


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / DATABASE_NAME, directory / LOG_NAME) if path.exists())


async def _send_order(child: asyncio.subprocess.Process, order: dict[str, Any]) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(order).encode() + b"\n")
    with contextlib.suppress(ConnectionError):
        await child.stdin.drain()
    await _answer(child)


async def _answer(child: asyncio.subprocess.Process) -> dict[str, Any]:
    assert child.stdout is not None
    line = await child.stdout.readline()
    answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
    if "code" in answer:
        raise JournalError(answer["code"], answer["message"], answer["fix"])
    if not answer:
        raise JournalError("backup-io", "The process that copies the journal ended early.", "Look at the broker's log, then try again.")
    return answer


def make_of_directory(directory: Path, place: Path, name: str) -> dict[str, Any]:
    """Backs up a journal that no broker runs on, in its directory's lock; or a replicated one, which a node writes meanwhile."""
    if not (directory / DATABASE_NAME).is_file():
        raise JournalError("journal-missing", f"There is no journal in {directory}.", "Name the data directory of a broker with --data.")
    try:
        lock = DirectoryLock(directory)
    except JournalError as error:
        with closing(open_as_it_is(directory)) as connection:
            connection.execute("BEGIN")
            if connection.execute("SELECT 1 FROM meta WHERE key = 'applied'").fetchone() is None:
                fix = "Leave out --data, so that the broker makes the backup, or stop it first."
                raise JournalError(error.code, error.message, fix) from error
            # As long as this reads, what is in the write-ahead log stays there.
            return asyncio.run(_make_beside_a_node(directory, place, name))
    try:
        check_header(directory / DATABASE_NAME)
        with _failures(place):
            target = _target(place, name)
            last_commit = read_last_commit(directory)
            with building(target, "*") as half_made:
                copy = _copy_whole(directory, half_made)
                copied = copy.finish(0 if last_commit is None else last_commit.commits)
                _name(half_made, target)
        return {"path": str(target), **copied._asdict()}
    finally:
        lock.release()


async def _make_beside_a_node(directory: Path, place: Path, name: str) -> dict[str, Any]:
    """By a process that has the database not open: closing a file once more would take away the locks that its reader has on it."""
    last_commit = read_last_commit(directory)
    with _failures(place):
        target = _target(place, name)
        # The write-ahead log grows meanwhile, by no more than is copied in that time.
        _check_room(directory, place, _size_of(directory))
        with building(target, "*") as half_made:
            child = await apart.start("homing.journal.backup.copy", str(directory), str(half_made))
            try:
                await _answer(child)
                await _send_order(child, {"log": None, "commits": 0 if last_commit is None else last_commit.commits})
                copied = Copied(**await _answer(child))
            finally:
                await apart.end(child)
            _name(half_made, target)
    return {"path": str(target), **copied._asdict()}


def restore(backup: Path, directory: Path) -> dict[str, Any]:
    """A new data directory from a backup, or from any copy of a stopped journal, checked and under an identity of its own.

    It goes on with ids far beyond those of the backup, as the broker it was taken of gave out more. Returns ``{path, broker_id,
    previous_broker_id, commits, messages, bytes}``. Raises JournalError ``journal-missing``, ``journal-locked``, ``restore-exists``,
    ``journal-damaged``, ``backup-io``. Of ``backup`` nothing is changed, nor is anything beside ``directory``.
    """
    if backup.name == DATABASE_NAME and backup.is_file():
        backup = backup.parent
    if not (backup / DATABASE_NAME).is_file():
        raise JournalError(
            "journal-missing", f"There is no backup in {backup}.", "Name the directory of a backup, or one with a homing.db."
        )
    directory = Path(os.path.abspath(directory))
    if directory.is_symlink() or (directory.exists() and not (directory.is_dir() and not any(directory.iterdir()))):
        raise JournalError("restore-exists", f"{directory} is there already and not an empty directory.", "Name a new data directory.")
    with _failures(directory.parent), no_broker(backup):
        make_directory(directory.parent)
        last_commit = read_last_commit(backup)
        with building(directory, glob.escape(directory.name)) as half_made:
            copy = _copy_whole(backup, half_made)
            check_header(half_made / DATABASE_NAME)
            previous = _renewed(half_made / DATABASE_NAME, last_commit)
            copied = copy.finish()
            _name(half_made, directory)
    return {"path": str(directory), "previous_broker_id": previous, **copied._asdict()}


def _copy_whole(source: Path, target: Path) -> Copy:
    copy = Copy(source, target)
    copy.database()
    copy.log()
    return copy


def _renewed(database: Path, last_commit: LastCommit | None) -> str:
    """Give the journal in ``database`` another broker_id and leave out a block of ids; returns the id that it had."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        missing = missing_commits(connection, last_commit)
        if missing is not None:
            raise damaged(missing)
        bring_up(connection)
        merge_packed(connection)
        connection.execute("BEGIN IMMEDIATE")
        found = connection.execute("SELECT value FROM meta WHERE key = 'broker_id'").fetchone()
        if found is None:
            raise damaged(f"{DATABASE_NAME} is empty: no broker ever ran on it")
        (previous,) = found
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('broker_id', ?), ('previous_broker_id', ?), ('clean_stop', 1)",
            (str(uuid.uuid4()), previous),
        )
        connection.execute("UPDATE meta SET value = value + ? WHERE key = 'reserved_up_to'", (SKIPPED_IDS,))
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('commits', 0)")
        connection.execute("DELETE FROM meta WHERE key = 'applied'")
        commit(connection)
    return str(previous)


def _target(place: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise JournalError(
            "backup-name",
            "The name of a backup is letters, digits, dots, hyphens and underscores, 100 at most, and begins with a letter or digit.",
            "Choose a plain name; journal: {backup-directory} says where backups stand.",
        )
    target = place / name
    if target.exists() or target.is_symlink():
        raise JournalError("backup-exists", f"There is a backup {name} already.", f"Choose another name, or remove {target}.")
    make_directory(place)
    return target


def _name(half_made: Path, target: Path) -> None:
    os.rename(half_made, target)
    sync_names(target.parent)


@contextlib.contextmanager
def _failures(place: Path) -> Iterator[None]:
    """What SQLite and the system say about a copy that is made under ``place``, as JournalErrors."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and says_damaged(error):
            raise damaged(str(error)) from error
        raise JournalError("backup-io", f"The copy could not be made: {error}.", f"See to {place}, then try again.") from error
