"""The data directory: who may use it, how much room is left, and the reserve that is spent when there is none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import JournalError
from .sqlite import APPLICATION_ID

log = logging.getLogger("homing.journal")

DATABASE_NAME = "homing.db"
LOCK_NAME = "homing.lock"
RESERVE_NAME = "homing.reserve"
_HEADER_BYTES = 100


def prepare_directory(directory: Path) -> None:
    """Create the directory with mode 0700; one that is empty or holds a journal is closed to others, any other is left as it is."""
    try:
        make_directory(directory)
        if directory.stat().st_mode & 0o077:
            names = {entry.name for entry in directory.iterdir()}
            if not names or DATABASE_NAME in names:
                directory.chmod(0o700)
            else:
                log.warning(
                    "directory-shared: the data directory %s holds other files and can be read by others; give the journal one of its own",
                    directory,
                )
    except OSError as error:
        raise JournalError(
            "journal-io",
            f"The data directory {directory} cannot be used: {error.strerror}.",
            "Name a directory that this user may write to (data-directory, or --data).",
        ) from error


def make_directory(directory: Path) -> None:
    """Create it and what is missing above it. SQLite syncs the names within it, nobody else the name of the directory itself."""
    directory = directory.absolute()
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (directory / DATABASE_NAME).exists():
        return
    # Also where it was there already: an earlier start may have been killed right after it made it.
    for place in missing or [directory]:
        sync_names(place.parent)


def sync_names(directory: Path) -> None:
    """Make durable which names stand in it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        # Not ours: what stands in a directory that this user may not read was put there by somebody who may.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_header(database: Path) -> None:
    """Refuse a file that is no journal before SQLite touches it. To be called only while this process has it open nowhere else.

    Closing a second descriptor on a database drops the process's POSIX locks on it; at this moment there are none.
    """
    if Path(f"{database}-journal").exists():
        return
    try:
        with database.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    if not header:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise damaged(f"{DATABASE_NAME} is not an SQLite database")
    pages, application_id = struct.unpack(">I", header[28:32])[0], struct.unpack(">I", header[68:72])[0]
    # A single page holds no table yet: the file of a journal whose first start was cut short.
    if application_id != APPLICATION_ID and (application_id or pages > 1):
        raise foreign()


def foreign() -> JournalError:
    return JournalError(
        "journal-foreign",
        f"{DATABASE_NAME} in this directory is the database of another program.",
        "Nothing was changed; name another directory (data-directory, or --data), and leave this one to whom it belongs.",
    )


def damaged(what: str) -> JournalError:
    return JournalError(
        "journal-damaged",
        f"The journal is damaged: {what}.",
        "Nothing was changed; run `homing journal check` to see how much is affected, then restore a copy"
        " or start with `journal: {on-damage: quarantine}` to set the rows aside that fail their checksum.",
    )


def beyond_quarantine(error: JournalError) -> JournalError:
    """The same, for who has set on-damage to quarantine already."""
    fix = (
        "Nothing was changed; `on-damage: quarantine` sets single rows aside, and this is more than that: run `homing journal check` to see"
        " how much is affected, then make a new data directory from a backup (`homing journal restore`)."
    )
    return JournalError(error.code, error.message, fix)


class DirectoryLock:
    """An flock on homing.lock, so that two brokers never write one journal. It ends with the process, however that ends."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._descriptor, fcntl.LOCK_EX, directory)
        except JournalError:
            self.release()
            raise
        # Over what the last one wrote, all of it: on a full disk, too, there is room for that.
        try:
            os.pwrite(self._descriptor, f"{os.getpid():<20}\n".encode(), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def no_broker(directory: Path) -> Iterator[None]:
    """While this lasts no broker starts in a directory that is only read from. JournalError ``journal-locked`` where one runs."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY)
    except FileNotFoundError:
        # No broker ever ran here: a backup.
        yield
        return
    try:
        _lock(descriptor, fcntl.LOCK_SH, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise JournalError(
            "journal-locked",
            f"Another broker, process {holder}, uses the journal in {directory}.",
            "Stop that broker first, or give this one a data directory of its own.",
        ) from None


class Disk:
    """Free space and the reserve file of one directory. Called on the writer's thread only, once it runs."""

    def __init__(self, directory: Path, reserve_bytes: int) -> None:
        self._directory = directory
        self._reserve = directory / RESERVE_NAME
        self._reserve_bytes = reserve_bytes
        self.space_low = False
        self.has_reserve = False
        #: What was free at the last look.
        self.left_bytes = 0

    def free_bytes(self) -> int:
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize

    def fits(self, database_bytes: int) -> bool:
        """Whether there is room for the database to become as long as this."""
        return self.free_bytes() >= database_bytes - self.database_bytes()

    def database_bytes(self) -> int:
        return (self._directory / DATABASE_NAME).stat().st_size

    def take_reserve(self) -> None:
        """Allocate the reserve if there is room for it and as much again; otherwise go on without, space low."""
        if self.has_reserve or self._reserve_bytes <= 0:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._reserve.stat().st_blocks * 512 >= self._reserve_bytes:
                self.has_reserve = True
                return
        if self.free_bytes() < 2 * self._reserve_bytes:
            return
        descriptor = os.open(self._reserve, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._reserve_bytes)
            self.has_reserve = True
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._reserve.unlink()
        finally:
            os.close(descriptor)

    def release_reserve(self) -> None:
        """Give the reserve back to the file system: room for the acknowledgements that make room."""
        with contextlib.suppress(FileNotFoundError):
            self._reserve.unlink()
        self.has_reserve = False

    def look(self, pending_wal_bytes: int, batch_bytes: int, unused_bytes: Callable[[], int]) -> bool:
        """Update ``space_low``: below un-checkpointed WAL + one batch + reserve; back above it by half the reserve, at least 1 MiB.

        What a checkpoint will need may also come out of pages that lie unused in the database (``unused_bytes``, asked for only
        when it matters); a batch and the reserve may not.
        """
        free = self.left_bytes = self.free_bytes()
        least = batch_bytes + self._reserve_bytes
        if self.space_low:
            least += max(self._reserve_bytes // 2, 1 << 20)
        if free >= least + pending_wal_bytes or (free >= least and free + unused_bytes() >= least + pending_wal_bytes):
            if self.space_low:
                self.space_low = False
                self.take_reserve()
        else:
            self.space_low = True
        return self.space_low
