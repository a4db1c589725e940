"""The one connection that writes. An aiosqlite connection with one method more: run a whole function on its thread.

aiosqlite hops to its thread for every call, about 0.1 ms each; begin, insert and commit as three calls reached half the
rate of one function that does all three. The method leans on aiosqlite's private ``_execute``, so its version is pinned
and tests/unit/test_journal_store.py holds what is used of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sqlite3
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, cast

import aiosqlite

from ..errors import JournalError

P = ParamSpec("P")
T = TypeVar("T")

PAGE_BYTES = 16_384
#: "Homi" in ASCII; `file` and `PRAGMA application_id` show it.
APPLICATION_ID = 0x486F6D69
#: SQLite's own limit; Debian's build allows more and would hide a statement that is too large elsewhere.
MAX_VARIABLES = 32_766
_BUSY_S = 5.0
CACHED_STATEMENTS = 256
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


class Store(aiosqlite.Connection):
    """The read-write connection. Everything on it goes through ``run``."""

    _under_way = 0
    _answered_at_s = 0.0

    async def run(self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function(connection, …)`` on the connection's thread and return what it returns: one hop.

        Cancelling the caller does not stop the function: what runs, runs to its end.
        """
        if not self._under_way:
            self._answered_at_s = time.monotonic()
        self._under_way += 1
        try:
            result: T = await self._execute(function, self._conn, *args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            self._under_way -= 1
            self._answered_at_s = time.monotonic()
        return result

    @property
    def connection(self) -> Writing | None:
        """For the loop, where nothing runs on the thread; else None. What was cancelled may still run there, which only reads."""
        return None if self._under_way else cast(Writing, self._connection)

    @property
    def waits_s(self) -> float:
        """How long what runs on its thread has run."""
        return time.monotonic() - self._answered_at_s if self._under_way else 0.0

    def abandon(self) -> None:
        """End the thread and leave the connection open until the process ends.

        After a failed write or sync, closing would checkpoint, and so build upon pages of which nobody knows whether the
        disk holds them. The extra reference keeps the interpreter's own shutdown from closing it.
        """
        connection = self._connection
        if connection is None:
            return
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._connection = None
        self._running = False
        self._tx.put_nowait((None, partial(_stop_sentinel)))


def _stop_sentinel() -> object:
    return aiosqlite.core._STOP_RUNNING_SENTINEL


async def open_store(path: Path, cache_bytes: int = 32 << 20) -> Store:
    """Open or create the database file (mode 0600) and set what must be set before the first table."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    store = Store(partial(_connect, path, cache_bytes), iter_chunk_size=64)
    # A process whose loop has ended must still be able to end.
    store._thread.daemon = True
    try:
        await store
    except BaseException:
        # Its last act is a callback into this loop, which must still be there for it.
        await asyncio.to_thread(store._thread.join)
        raise
    return store


class Writing(sqlite3.Connection):
    """The journal's one writing connection, which knows the number of its last commit: to ask for it at each commit costs 15 us."""

    #: None: not asked for yet (commits.py).
    commits: int | None = None


def _connect(path: Path, cache_bytes: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, cached_statements=CACHED_STATEMENTS, check_same_thread=False, factory=Writing
    )
    try:
        _configure(connection, path, cache_bytes)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path, cache_bytes: int) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, MAX_VARIABLES)
    connection.execute("PRAGMA trusted_schema = OFF")
    if path.stat().st_size == 0:
        # The order matters: none of these can change once the first table, or WAL mode, is there. The application id is written
        # here, in rollback mode, so that the file's own header always says whose it is (see disk.check_header).
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    sync_commits(connection)
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("PRAGMA secure_delete = OFF").fetchall()
    connection.execute(f"PRAGMA cache_size = -{cache_bytes >> 10}")
    connection.execute("PRAGMA temp_store = MEMORY")
    read_back = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "wal_autocheckpoint")}
    if read_back != {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}:
        raise JournalError(
            "journal-io",
            f"SQLite did not take the settings that make a commit safe on {path.name}: {read_back}.",
            "Put the data directory on a local file system.",
        )


def sync_commits(connection: sqlite3.Connection, by_sqlite: bool = True) -> None:
    """Whether SQLite syncs the write-ahead log at each commit; else only before each checkpoint, and ``WalMeter.sync`` at each commit."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if by_sqlite else 'NORMAL'}")


class WalMeter:
    """How many bytes of the WAL are in use, read from the file itself: its size says only how far it once grew.

    Frames carry the salt of the header they were written under (sqlite.org/fileformat2.html, section 4), so the first frame
    with another salt ends what is in use. The WAL file carries no POSIX locks, so a second descriptor on it does no harm.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}-wal")
        self._descriptor = -1
        self._salt = b""
        self._frames = 0
        #: By how many, when it last did.
        self._grown = 0
        self._checkpointed_frames = 0

    def note_checkpoint(self, frames: int) -> None:
        """Frames that the last checkpoint copied into the database; they count no longer."""
        self.pending_bytes()
        self._checkpointed_frames = min(frames, self._frames)

    def pending_bytes(self) -> int:
        """Bytes of WAL that no checkpoint has copied yet."""
        return self._bytes(self._look() - self._checkpointed_frames)

    def used_bytes(self) -> int:
        """Bytes of WAL in use; all copied ones stay in use until no reader needs them and the next write begins anew."""
        return self._bytes(self._frames)

    def pending_pages(self) -> list[int]:
        """Which pages of the database the frames hold that no checkpoint has copied yet."""
        frame_bytes = PAGE_BYTES + _FRAME_HEADER_BYTES
        places = range(self._checkpointed_frames, self._look())
        return [int.from_bytes(os.pread(self._descriptor, 4, _WAL_HEADER_BYTES + frame * frame_bytes), "big") for frame in places]

    def length_bytes(self) -> int:
        """Of the file as far as it is in use, its header with it."""
        frames = self._look()
        return _WAL_HEADER_BYTES + self._bytes(frames) if frames else 0

    @staticmethod
    def _bytes(frames: int) -> int:
        return frames * (PAGE_BYTES + _FRAME_HEADER_BYTES)

    def sync(self) -> None:
        """What was committed is on disk from here on. Raises OSError."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        os.fdatasync(self._descriptor)

    def _look(self) -> int:
        """Frames in use now."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return 0
        header = os.pread(self._descriptor, _WAL_HEADER_BYTES, 0)
        if len(header) < _WAL_HEADER_BYTES:
            return 0
        salt = header[16:24]
        if salt != self._salt:
            self._salt, self._frames, self._checkpointed_frames = salt, 0, 0
        self._frames = self._gallop(struct.unpack(">I", header[8:12])[0] + _FRAME_HEADER_BYTES)
        return self._frames

    def _gallop(self, frame_bytes: int) -> int:
        """From as many more as last time on: each look takes the interpreter's lock away from the thread."""
        before = low = self._frames
        step, further = max(1, self._grown), 1
        while self._is_current(low + step - 1, frame_bytes):
            low, step, further = low + step, further, further * 2
        high = low + step - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._is_current(middle - 1, frame_bytes):
                low = middle
            else:
                high = middle - 1
        self._grown = low - before or self._grown
        return low

    def _is_current(self, frame: int, frame_bytes: int) -> bool:
        return os.pread(self._descriptor, 8, _WAL_HEADER_BYTES + frame * frame_bytes + 8) == self._salt

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
