"""Commit a batch, and the upkeep between batches. Decides what a failure means. All of it happens on the store's thread, but for a small
batch, which the loop writes itself (docs/decisions/0030-small-commits-on-the-loop.md).

A failed write or sync leaves the outcome unknown (a commit reported as failed may be there after a restart), so it ends
everything. A full disk does not: SQLite rolls back cleanly, and the same batch is tried again without its history, then with the reserve
spent.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ..backup.watch import BackupWatch
from ..errors import JournalError, io_failure
from ..options import JournalOptions
from ..store.commits import LastCommitFile
from ..store.directory import Disk, Files, damaged
from ..store.sqlite import PAGE_BYTES, WalMeter, Writing
from ..upkeep.deleted_queues import Sweep
from ..upkeep.retention import Retention
from ..upkeep.tombstones import STEP_ROWS, Vacuum, pressing
from .batch import WriteBatch
from .batch_writer import BatchWriter, Written

log = logging.getLogger("homing.journal")

#: Room kept for "one batch", however small the last ones were.
_LEAST_BATCH_BYTES = 4 << 20
_IDLE_CHECKPOINT_BYTES = 1 << 20
#: How long a checkpoint that a reader held up is not tried again.
_HELD_UP_S = 0.25
#: How often space is made while there is little of it.
_LOW_LOOK_S = 0.1
#: How long upkeep that found the disk full is put off.
_FULL_S = 1.0
#: A commit of fewer rows is little work: rows that are gone are removed between such commits too, a step a second.
_LITTLE_ROWS = 128
#: After so many rows and commits, or bytes, it is looked how things stand: much less than the room that is kept for one batch.
UNSEEN_ROWS = 32
UNSEEN_BYTES = 256 << 10
#: Rows of a step of work lie together, and so many of them touch about as many pages as one row that lies alone.
ROWS_TOGETHER = 16
_BETWEEN_S = 1.0
#: So fast no disk answers: there is none.
_NO_DISK_MS = 0.02
#: What takes the loop longer than this goes to the thread, for some time.
_LONG_S = 0.005
_NOT_HERE_S = 1.0
#: To pack more rows takes longer than it spares.
PACKED_ROWS = 8
#: How much one commit says about the next.
_WEIGHT = 0.1
#: Of a journal whose commits are in a log: how long, and how many bytes, are not synced at most.
_RELAXED_S = 1.0
_RELAXED_BYTES = 16 << 20


@dataclass(slots=True)
class Statistics:
    """Since the start. Times in milliseconds; read by anyone, written by the writer's thread."""

    #: Commits.
    groups: int = 0
    references_added: int = 0
    references_changed: int = 0
    references_deleted: int = 0
    references_elided: int = 0
    references_cleared: int = 0
    references_not_found: int = 0
    bytes_written: int = 0
    commit_ms: float = 0.0
    commit_ms_max: float = 0.0
    #: Of that, the end of each: what waits for the disk.
    sync_ms: float = 0.0
    checkpoints: int = 0
    checkpoint_ms: float = 0.0
    checkpoint_ms_max: float = 0.0
    history_rows_removed: int = 0
    pages_given_back: int = 0
    full_disk_retries: int = 0
    #: Attempts and outcomes that were not written while the disk was full.
    history_dropped: int = 0
    # As it stood last.
    wal_bytes: int = 0
    database_bytes: int = 0
    disk_free_bytes: int = 0
    #: Attempts and outcomes on record, bounded by history_max_bytes.
    history_bytes: int = 0


@dataclass(slots=True)
class Standing:
    """How things stand after a commit or upkeep, for the loop."""

    space_low: bool
    wal_bytes: int
    upkeep_due: bool


class NoRoom(Exception):
    """The disk is full, and nothing was written: what makes room for it is the thread's."""


#: Of upkeep; with whether the broker has been idle.
_Step = Callable[[sqlite3.Connection, bool], int]


@dataclass
class WriterThread:
    writer: BatchWriter
    disk: Disk
    files: Files
    meter: WalMeter
    last_commit: LastCommitFile
    options: JournalOptions
    #: A log has what is committed, so that it is synced now and then only.
    replicated: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    #: By which upkeep has its times; only ever forward.
    clock: Callable[[], float] = time.monotonic
    #: Called on the store's thread as soon as a batch is on disk, where something else is looked at before ``commit`` returns.
    on_disk: Callable[[WriteBatch], object] = lambda batch: None

    def __post_init__(self) -> None:
        self.backup = BackupWatch(self.meter)
        self.retention = Retention(self.options)
        self.sweep = Sweep()
        self.vacuum = Vacuum()
        #: What the end of a commit takes, by the last ones.
        self.sync_ms = 0.0
        #: Where the log stands with what is on disk, packed: see WriteBatch.applied.
        self.durable: bytes | None = None
        #: Since the last sync, and when that was.
        self._unsynced_bytes = 0
        self._last_sync_s = 0.0
        #: The longest of the last syncs.
        self._synced_ms = 1.0
        self._not_here_until_s = -math.inf
        #: The log may begin anew with the next commit, for which SQLite waits for the disk.
        self._log_ends = False
        self._batch_bytes = _LEAST_BATCH_BYTES
        self._low_look_s = 0.0
        self._checkpoint_next_s = 0.0
        self._put_off_s = 0.0
        #: The disk was found full, and history gives way until there is room.
        self._sparing = False
        #: Rows of the last commit, those of them that are gone, and when there may be a step of vacuuming between two commits.
        self._rows = self._left = 0
        #: Rows and commits, and bytes, since it was looked how things stand.
        self._unseen_rows = self._unseen_bytes = 0
        self._between_s = self.clock() + _BETWEEN_S
        #: The last step of upkeep that had something to do while there was other work.
        self._last_step: _Step | None = None
        self.statistics.database_bytes = self.disk.database_bytes()
        self.statistics.disk_free_bytes = self.disk.free_bytes()
        self.statistics.history_bytes = self.writer.state.history_bytes

    def commit(
        self,
        connection: sqlite3.Connection,
        batch: WriteBatch,
        reserve_up_to: int | None,
        joining: Callable[[], WriteBatch | None] | None = None,
    ) -> Standing | None:
        """All of it on the thread; says how things stand. None: nobody looked after so little, nor called ``on_disk``. ``joining``, of a
        step of work: see ``BatchWriter.write``.

        Raises JournalError when the broker must stop.
        """
        written = self.write(connection, batch, reserve_up_to, joining)
        self.sync(written, reserve_up_to)
        if not self.note(batch, written, joining is not None):
            return None
        self.on_disk(batch)
        return self.standing(connection)

    def rows_here(self, batch: WriteBatch) -> int:
        """Of a batch that the loop writes: a small one, where nothing waits for the disk, and the last ones took no time. Else 0."""
        if self._log_ends or self._sparing or self.disk.space_low or self.clock() < self._not_here_until_s or self.writer.packed.full:
            return 0
        return batch.small_rows()

    def write_here(self, connection: Writing, batch: WriteBatch, reserve_up_to: int | None, rows: int) -> Written:
        """On the loop: packed, where that is less work, and no log has it packed already. Raises NoRoom, too."""
        began_s = time.perf_counter()
        self.files.look(began_s)
        if self.replicated or rows > PACKED_ROWS:
            written = self._here(connection, lambda: self.writer.write(connection, batch, reserve_up_to))
        else:
            written = self._here(connection, lambda: self.writer.pack(connection, batch, reserve_up_to, rows))
        written.began_s = began_s
        return written

    def merge_here(self, connection: Writing) -> None:
        """On the loop. Where there is no room for it the next commit finds the same, and deals with it."""
        began_s = time.perf_counter()
        with suppress(NoRoom):
            self._merged(self._here(connection, lambda: self.writer.merge(connection)), began_s)

    def _here(self, connection: Writing, write: Callable[[], Written]) -> Written:
        began_s = time.perf_counter()
        try:
            return write()
        except sqlite3.DatabaseError as error:
            if not is_full(error):
                raise _failure(connection, error) from error
            roll_back(connection)
            raise NoRoom from error
        except Exception as unforeseen:
            roll_back(connection)
            raise bad_record(unforeseen) from unforeseen
        finally:
            if time.perf_counter() - began_s > _LONG_S:
                self._not_here_until_s = self.clock() + _NOT_HERE_S

    def merge(self, connection: sqlite3.Connection) -> None:
        """To the tables what stands packed. It need not be synced: until it is on disk the packed rows are. Raises JournalError."""
        if self.writer.packed.rows:
            began_s = time.perf_counter()
            self._merged(self.write(connection, WriteBatch(), None), began_s)

    def _merged(self, written: Written, began_s: float) -> None:
        self._count(written, (time.perf_counter() - began_s) * 1000)
        self._looks_after(written, False)

    def write(
        self,
        connection: sqlite3.Connection,
        batch: WriteBatch,
        reserve_up_to: int | None,
        joining: Callable[[], WriteBatch | None] | None = None,
    ) -> Written:
        """All but the sync. Raises JournalError."""
        began_s = time.perf_counter()
        self.files.look(began_s)
        written = self._attempt(connection, batch, reserve_up_to, joining)
        written.began_s, self._log_ends = began_s, False
        return written

    @property
    def syncs_at_once(self) -> bool:
        """Whether nothing was waited for at the last syncs, as where files are in memory."""
        return self._synced_ms < _NO_DISK_MS or not self._sync_due()

    def _sync_due(self) -> bool:
        if not self.replicated or self._unsynced_bytes >= _RELAXED_BYTES:
            return True
        return time.perf_counter() >= self._last_sync_s + _RELAXED_S

    def sync(self, written: Written, reserve_up_to: int | None) -> None:
        """What was written is on disk, or nobody knows: then JournalError. Where it is in a log it may be on disk later."""
        self._unsynced_bytes += written.bytes
        if not self._sync_due():
            return
        began_s = self._last_sync_s = time.perf_counter()
        self._unsynced_bytes = 0
        try:
            self.meter.sync()
        except OSError as error:
            raise io_failure(f"{error.strerror} at the sync of a commit") from error
        took_ms = (time.perf_counter() - began_s) * 1000
        self._synced_ms = max(took_ms, 0.9 * self._synced_ms)
        written.sync_ms += took_ms
        written.synced = True
        self.last_commit.advance(written.commits, reserve_up_to)

    def note(self, batch: WriteBatch, written: Written, step: bool = False) -> bool:
        """The batch is on disk. Returns whether it is to be looked how things stand (``standing``)."""
        if written.synced:
            self.durable = batch.applied
        if batch.queues:
            self.sweep.deleted([queue.queue_id for queue in batch.queues.values() if queue.deleted_at_ms is not None])
        self._count(written, (time.perf_counter() - written.began_s) * 1000)
        self.sync_ms += _WEIGHT * (written.sync_ms - self.sync_ms)
        self._batch_bytes = max(_LEAST_BATCH_BYTES, 2 * written.bytes, self._batch_bytes * 7 // 8)
        return self._looks_after(written, step) or bool(batch.queues)

    def _looks_after(self, written: Written, step: bool) -> bool:
        """To look takes as long as to write a message; and whoever came meanwhile waits for it."""
        self._rows, self._left = written.added + written.changed + written.deleted, written.tombstones
        self._unseen_rows += 1 + (self._rows // ROWS_TOGETHER if step else self._rows)
        self._unseen_bytes += written.bytes
        return self.disk.space_low or self._unseen_rows >= UNSEEN_ROWS or self._unseen_bytes >= UNSEEN_BYTES

    def close(self) -> None:
        self.meter.close()
        self.last_commit.close()

    def _attempt(
        self,
        connection: sqlite3.Connection,
        batch: WriteBatch,
        reserve_up_to: int | None,
        joining: Callable[[], WriteBatch | None] | None,
    ) -> Written:
        both = (self.writer.packed.batch, batch)
        try:
            written = self.writer.write(connection, batch, reserve_up_to, not self._sparing, joining)
        except sqlite3.DatabaseError as error:
            if not is_full(error):
                raise _failure(connection, error) from error
            written = self._retry(connection, batch, reserve_up_to, error)
        except Exception as unforeseen:
            roll_back(connection)
            raise bad_record(unforeseen) from unforeseen
        if self._sparing:
            self.statistics.history_dropped += sum([len(each.entries) for held in both for each in held.attempts])
            self.statistics.history_dropped += sum([len(each.entries) for held in both for each in held.outcomes])
        return written

    def _retry(self, connection: sqlite3.Connection, batch: WriteBatch, reserve_up_to: int | None, first: Exception) -> Written:
        """Once more with acknowledgements first and history left out; if that does not fit either, with the reserve spent."""
        self.statistics.full_disk_retries += 1
        self.disk.space_low = True
        self._spare()
        for make_room in (self._checkpoint, self._spend_reserve):
            try:
                roll_back(connection)
                make_room(connection)
                return self.writer.write(connection, batch, reserve_up_to, history=False)
            except sqlite3.DatabaseError as error:
                if not is_full(error):
                    raise _failure(connection, error) from error
        roll_back(connection)
        raise JournalError(
            "journal-full",
            "The disk is full and the reserve did not make room for what has to be written.",
            "Nothing confirmed is lost; free space on the data directory's file system, then start the broker again.",
        ) from first

    def _spare(self) -> None:
        """From here on until there is room again, what is written is what must be: the reserve is not for history."""
        if not self._sparing:
            self._sparing = True
            log.warning(
                "history-paused: the disk is full: no history is written (attempts, outcomes) until there is room; messages are safe"
            )

    def _spend_reserve(self, connection: sqlite3.Connection) -> None:
        self.disk.release_reserve()
        self._checkpoint(connection)

    def upkeep(self, connection: sqlite3.Connection, idle: bool) -> Standing:
        """Bounded steps: rows of what is gone, history, giving pages back, free space, checkpoint. ``idle``, for some time: one of each.
        Else whoever waits for a commit waits for one of them only, in turns."""
        self.files.look(time.perf_counter())
        self.merge(connection)
        try:
            self._low_look_s = self.clock() + _LOW_LOOK_S
            for step in self._in_turn():
                if step(connection, idle) and not idle:
                    self._last_step = step
                    break
        except sqlite3.DatabaseError as error:
            raise _failure(connection, error) from error
        return self.standing(connection, idle)

    def _in_turn(self) -> list[_Step]:
        """All steps, that which had something to do last at the end. Each returns how much there was."""
        steps: list[_Step] = [self._sweep, self._forget, self._give_back, self._clear, self._checkpoint_due]
        last = steps.index(self._last_step) + 1 if self._last_step is not None else 0
        return steps[last:] + steps[:last]

    def _resting(self) -> bool:
        """Upkeep found the disk full a moment ago."""
        return self.clock() < self._put_off_s

    def _sweep(self, connection: sqlite3.Connection, idle: bool) -> int:
        return 0 if self._resting() else self._tolerating_full(connection, lambda: self.sweep.step(connection, self.writer.state))

    def _forget(self, connection: sqlite3.Connection, idle: bool) -> int:
        if self._resting():
            return 0
        removed = self._tolerating_full(connection, lambda: self.retention.step(connection, self.writer.state, self.clock()))
        self.statistics.history_rows_removed += removed
        return removed

    def _give_back(self, connection: sqlite3.Connection, idle: bool) -> int:
        pages = self._tolerating_full(connection, lambda: self.retention.give_back(connection, self.disk.space_low, self.clock()))
        self.statistics.pages_given_back += pages
        return pages

    def _clear(self, connection: sqlite3.Connection, idle: bool) -> int:
        return self._tolerating_full(connection, lambda: self._vacuum(connection)) if self._vacuum_due(connection, idle) else 0

    def _vacuum(self, connection: sqlite3.Connection) -> int:
        state, statistics = self.writer.state, self.statistics
        # Faster than they become more.
        bits, rows = self.vacuum.step(connection, max(STEP_ROWS, 2 * self._left))
        self._between_s = self.clock() + _BETWEEN_S
        # What left twice was counted twice.
        state.tombstones = state.tombstones - bits if bits else 0
        state.references -= rows
        statistics.references_cleared += rows
        statistics.references_not_found += bits - rows
        return bits

    def _tolerating_full(self, connection: sqlite3.Connection, step: Callable[[], int]) -> int:
        """Upkeep that finds the disk full is put off; the next batch finds the same and deals with it."""
        try:
            return step()
        except sqlite3.DatabaseError as error:
            if not is_full(error):
                raise
            roll_back(connection)
            self.disk.space_low = True
            self._put_off_s = self.clock() + _FULL_S
            return 0

    def _checkpoint_due(self, connection: sqlite3.Connection, idle: bool) -> int:
        # Where space is low, the file gets shorter only by a checkpoint.
        limit = _IDLE_CHECKPOINT_BYTES if idle or self.disk.space_low else self.options.checkpoint_every_bytes
        if self.meter.pending_bytes() < limit or self.clock() < self._checkpoint_next_s:
            return 0
        self._checkpoint(connection)
        if self.meter.pending_bytes() >= limit:
            self._checkpoint_next_s = self.clock() + _HELD_UP_S
        return 1

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """What it copies may make the file longer. Where that does not fit, it would take the room that the next batch needs, for a part of
        what it came for; where it does, it gives all of the write-ahead log back.
        """
        self.files.look(math.inf)
        if not self.disk.fits(int(connection.execute("PRAGMA page_count").fetchone()[0]) * PAGE_BYTES):
            return
        if not self.backup.before_checkpoint(self.disk.space_low or self.meter.used_bytes() > self.options.wal_limit_bytes):
            return
        started = time.perf_counter()
        self._tolerating_full(connection, lambda: self._checkpoint_passive(connection))
        elapsed_ms = (time.perf_counter() - started) * 1000
        self.statistics.checkpoints += 1
        self.statistics.database_bytes = self.disk.database_bytes()  # only now it changes
        self.statistics.checkpoint_ms += elapsed_ms
        self.statistics.checkpoint_ms_max = max(self.statistics.checkpoint_ms_max, elapsed_ms)

    def _checkpoint_passive(self, connection: sqlite3.Connection) -> int:
        _, _, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self.meter.note_checkpoint(max(copied, 0))
        self._log_ends = True
        return int(copied)

    def _vacuum_due(self, connection: sqlite3.Connection, idle: bool) -> bool:
        state = self.writer.state
        if not state.tombstones or self._resting():
            return False
        if idle or self.disk.space_low or (self._rows < _LITTLE_ROWS and self.clock() >= self._between_s):
            return True
        return pressing(connection, state.references, state.tombstones)

    def standing(self, connection: sqlite3.Connection, idle: bool = False) -> Standing:
        self._unseen_rows = self._unseen_bytes = 0
        pending = self.meter.pending_bytes()
        space_low = self.disk.look(pending, self._batch_bytes, partial(_unused_bytes, connection))
        if self._sparing and not space_low:
            self._sparing = False
            log.info(
                "history-resumed: there is room: history is written again; of %d attempts and outcomes none was kept",
                self.statistics.history_dropped,
            )
        now_s = self.clock()
        due = pending >= self.options.checkpoint_every_bytes and now_s >= self._checkpoint_next_s
        due = due or (space_low and now_s >= self._low_look_s) or self._vacuum_due(connection, idle)
        due = due or (not self._resting() and (self.retention.due(now_s) or self.sweep.due()))
        statistics, used = self.statistics, self.meter.used_bytes()
        statistics.wal_bytes, statistics.disk_free_bytes = used, self.disk.left_bytes
        statistics.history_bytes = self.writer.state.history_bytes
        return Standing(space_low, used, due)

    def _count(self, written: Written, elapsed_ms: float) -> None:
        statistics = self.statistics
        statistics.groups += 1
        statistics.references_added += written.added
        statistics.references_changed += written.changed
        statistics.references_deleted += written.deleted
        statistics.references_elided += written.elided
        statistics.references_not_found += written.not_found
        statistics.bytes_written += written.bytes
        statistics.commit_ms += elapsed_ms
        statistics.sync_ms += written.sync_ms
        statistics.commit_ms_max = max(statistics.commit_ms_max, elapsed_ms)


def _unused_bytes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0]) * PAGE_BYTES


def is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def says_damaged(error: sqlite3.Error) -> bool:
    """SQLITE_ERROR, too: tables that our own statements do not fit are not those that we made."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
    )


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _failure(connection: sqlite3.Connection, error: sqlite3.DatabaseError) -> JournalError:
    """A refusal of the record itself (no error of the disk) is rolled back; anything else leaves the outcome unknown and stays as it is."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.DataError | sqlite3.InterfaceError):
        roll_back(connection)
        return bad_record(error)
    if says_damaged(error):
        return damaged(f"{error}, found while writing to it; nobody was answered for what was being written")
    return io_failure(f"{getattr(error, 'sqlite_errorname', type(error).__name__)}, {error}")


def bad_record(error: BaseException) -> JournalError:
    return JournalError(
        "journal-bad-record",
        f"A record that cannot be stored reached the journal ({type(error).__name__}: {error}); its batch was rolled back whole.",
        "This is a fault of the broker: please report it with this text; a start goes on from the last commit.",
    )
