"""The data directory: who may use it, how much room is left, and the reserve that is spent when there is none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import JournalError
from .sqlite import APPLICATION_ID

log = logging.getLogger("homing.journal")

DATABASE_NAME = "homing.db"
LOCK_NAME = "homing.lock"
RESERVE_NAME = "homing.reserve"
LAST_COMMIT_NAME = "homing.db-commits"
_HEADER_BYTES = 100
#: How often it is looked whether the files are still there.
_LOOK_S = 10.0


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
    """An flock on homing.lock and one on its directory, so that two brokers never write one journal, even where somebody removes the file.
    They end with the process, however that ends."""

    def __init__(self, directory: Path) -> None:
        self._held = contextlib.ExitStack()
        with contextlib.ExitStack() as held:
            _lock(_opened(held, directory, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX, directory)
            file = _opened(held, directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            _lock(file, fcntl.LOCK_EX, directory)
            # Over what the last one wrote, all of it: on a full disk, too, there is room for that.
            os.pwrite(file, f"{os.getpid():<20}\n".encode(), 0)
            self._held = held.pop_all()

    def release(self) -> None:
        self._held.close()


@contextlib.contextmanager
def no_broker(directory: Path) -> Iterator[None]:
    """While this lasts no broker starts in a directory that is only read from. JournalError ``journal-locked`` where one runs."""
    with contextlib.ExitStack() as held:
        _lock(_opened(held, directory, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH, directory)
        # Without the file no broker ever ran here: a backup.
        with contextlib.suppress(FileNotFoundError):
            _lock(_opened(held, directory / LOCK_NAME, os.O_RDONLY), fcntl.LOCK_SH, directory)
        yield


def no_broker_runs(directory: Path) -> bool:
    try:
        with no_broker(directory):
            return True
    except JournalError:
        return False


def _opened(held: contextlib.ExitStack, path: Path, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    held.callback(os.close, descriptor)
    return descriptor


def _lock(descriptor: int, kind: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EBADF:
            # NFS locks only what is open for writing, which no directory is: there the file's lock must do.
            return
        if error.errno != errno.EWOULDBLOCK:
            raise
        holder = ""
        with contextlib.suppress(FileNotFoundError):
            holder = (directory / LOCK_NAME).read_text("ascii", "replace").strip()
        raise JournalError(
            "journal-locked",
            f"Another broker, process {holder or 'unknown'}, uses the journal in {directory}.",
            "Stop that broker first, or give this one a data directory of its own.",
        ) from None


class Files:
    """Whether the names in a broker's directory are still the files that it writes. A name that comes later is looked at from then on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = dict[str, tuple[int, int]]()
        self._next_s = 0.0

    def look(self, now_s: float) -> None:
        """Raises JournalError, ``journal-gone``. ``now_s``: of ``perf_counter``, for a look each 10 s; infinite: looks now."""
        if now_s < self._next_s:
            return
        self._next_s = time.perf_counter() + _LOOK_S
        for name in (LOCK_NAME, DATABASE_NAME, f"{DATABASE_NAME}-wal", LAST_COMMIT_NAME):
            try:
                found = os.stat(self._directory / name, follow_symlinks=False)
            except FileNotFoundError:
                if name not in self._known:
                    continue
                raise _gone(self._directory / name, "is gone") from None
            if self._known.setdefault(name, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                raise _gone(self._directory / name, "is another file")


def _gone(path: Path, how: str) -> JournalError:
    return JournalError(
        "journal-gone",
        f"{path} {how}: somebody removed or replaced it under the broker, and what is written would be lost.",
        "Nobody was answered since that was seen; put the journal back (a backup: homing journal restore), then start again.",
    )


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
        """Raises JournalError, ``journal-gone``: a look may be seconds away."""
        path = self._directory / DATABASE_NAME
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise _gone(path, "is gone") from None

    def take_reserve(self) -> None:
        """Allocate the reserve if there is room for it and as much again; otherwise go on without, space low."""
        if self.has_reserve or self._reserve_bytes <= 0:
            return
        with contextlib.suppress(FileNotFoundError):
            found = self._reserve.lstat()
            if not stat.S_ISREG(found.st_mode):
                # Whoever put a link here: it is not followed.
                self._reserve.unlink()
            elif found.st_blocks * 512 >= self._reserve_bytes:
                self.has_reserve = True
                return
        if self.free_bytes() < 2 * self._reserve_bytes:
            return
        descriptor = os.open(self._reserve, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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
