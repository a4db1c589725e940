"""The journal as the broker sees it: open and recover, an open batch to append to, and what is on disk.

Everything here runs on the loop; SQL runs on the store's thread (writer_thread.py), but for that of small batches. While one batch
commits, the next gathers; which of those that wait go to disk next is decided in scheduler.py.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .backup.backup import Backups
from .commit.batch import WriteBatch
from .commit.batch_writer import Written
from .commit.joining import Joining
from .commit.packed_batch import pack_batch
from .commit.unwritten import Unwritten
from .commit.wakeup import Wakeup
from .commit.writer_thread import NoRoom, Standing, Statistics, bad_record, is_full
from .contract import Recovered
from .errors import JournalError, io_failure
from .opening import Opened, open_directory
from .options import JournalOptions
from .read.ahead import ReadAhead
from .read.pages import Page, Wanted, read_alone
from .read.recovery import recover
from .read.turns import Read, Turns
from .rebuild import copy_damaged
from .replication.entry import Position
from .replication.leader import Leader
from .store.bulk_statements import release_memory
from .store.commits import commit_clean_stop
from .store.directory import DATABASE_NAME
from .store.sync_thread import SyncThread

__all__ = ["Journal", "JournalError", "JournalOptions"]

log = logging.getLogger("homing.journal")

_LATELY_S = 1.0
#: How long upkeep waits, beside steps of work, for a commit that answers somebody.
_UPKEEP_S = 0.030
#: So many packed rows go to the tables together while the disk is waited for; fewer after so long.
_MERGED_ROWS = 32
_PACKED_S = 0.050


class Journal(Unwritten):
    """One directory, one writer. Make it with ``open``; end it with ``close``, also after a failure."""

    def __init__(self, directory: Path, opened: Opened[Recovered], leader: Leader | None = None) -> None:
        self._wakeup = Wakeup()
        super().__init__(opened.writer_thread.options, opened.first_id, self._wakeup.set)
        self.directory = directory
        self._leader = leader
        #: Gets the JournalError of the first failure; after it nobody is answered and the process is to end with its exit code.
        #: The broker may set it too, when its own state is in doubt: nothing is written or answered from then on.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failed.add_done_callback(self._on_failed)
        #: Set from the start on where the disk is nearly full already.
        self.space_low = False
        #: Called on the loop with the new value each time space_low changes: producers stop, or go on.
        self.on_space: Callable[[bool], None] = lambda low: None
        #: Called on the loop when those that waited for a commit have been notified of it.
        self.on_answered: Callable[[], None] = lambda: None
        #: Called on the loop after each commit, and after upkeep, before the next is written.
        self.on_commit: Callable[[int], None] = lambda unwritten: None
        #: Upkeep is due after a commit, or may be: what is much to write had better wait for it, else those beside it wait for both.
        self.tidying = False
        #: Whoever waited went before upkeep, which is next; and since when it waits for somebody to be answered (0: it does not).
        self._put_off, self._waits_since_s = False, 0.0
        #: WAL in use. Above options.wal_limit_bytes ``on_wal_limit(True)`` is called: a long reader holds it up.
        self.wal_bytes = 0
        self.on_wal_limit: Callable[[bool], None] = lambda over: None
        self.wal_over = False
        #: By the last look upkeep has something to do, which it does by and by while nothing else is to be done.
        self.upkeep_due = False
        self._store = store = opened.store
        self._writer_thread = writer_thread = opened.writer_thread
        loop = asyncio.get_running_loop()
        writer_thread.on_disk = lambda batch: loop.call_soon_threadsafe(self._committed, batch)
        self._syncs = SyncThread(loop)
        #: When what stands packed goes to the tables.
        self._merge_at_s = 0.0
        self._lock = opened.lock
        beside, spare_bytes = directory / self._options.backup_directory, self._options.disk_reserve_bytes
        self.backups = Backups(directory, beside, store.run, writer_thread.backup, spare_bytes)
        self._reads = Turns()
        self._ahead = ReadAhead(directory / DATABASE_NAME)
        self._joining = Joining(loop, lambda: self.batch.awaited and not self._scheduler.pays, lambda: self._give(loop.time()))
        self._flushes: set[asyncio.Future[None]] = set()
        #: Of these: everything is on disk, and it was not looked yet how things stand since.
        self._flushed: list[asyncio.Future[None]] = []
        self._closing = False
        self._closed = False
        self._take(opened.standing)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="journal")

    @property
    def sync_ms(self) -> float | None:
        """What the disk takes for a commit, by the last ones; None where nobody has waited for one within the last second."""
        lately = asyncio.get_running_loop().time() < self._scheduler.awaited_s + _LATELY_S
        return self._writer_thread.sync_ms if lately else None

    @property
    def waits_s(self) -> float:
        """How long the disk has not answered what it was asked; a step's work is counted in."""
        return max(self._store.waits_s, self._syncs.waits_s)

    @classmethod
    async def open(cls, directory: Path, options: JournalOptions, now_ms: int, leader: Leader | None = None) -> tuple[Journal, Recovered]:
        """Lock the directory, create or migrate or recover what is in it (on a full disk with the reserve's room), and start the writer.

        ``leader``: each commit is an entry of its log first, and what is reserved is one already when this returns.
        Raises JournalError: ``journal-locked``, ``journal-newer``, ``journal-damaged``, ``journal-io``, ``journal-full``, without a
        leader ``journal-replicated``, with one as Leader.append.
        """
        opened = await open_directory(directory, options, now_ms, recover, replicated=leader is not None)
        journal = cls(directory, opened, leader)
        if leader is not None:
            await journal._lead(leader)
        return journal, opened.found

    @property
    def durable(self) -> int:
        """The number of the log's last entry that is on disk for sure."""
        return Position.number_of(self._writer_thread.durable)

    @property
    def statistics(self) -> Statistics:
        return self._writer_thread.statistics

    def read(self, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[Exception], None]) -> None:
        """Reads a page between two commits and hands it over on the loop, before anything else is committed.

        ``ready`` and ``due`` pages are for consumers and read at once. Any other is a step of work on many messages, and whoever waits for
        a commit goes before it: who waits already before the page is read, who came meanwhile before what becomes of it. Who comes while
        that is written goes to disk with it (joining.py).

        ``ready`` and ``due`` pages, and any with ``on_disk``, show what is on disk by then; others everything appended before this call.
        What is deleted in a batch that waits is left out; what else the caller knows better than the disk, it must pass over itself.

        ``failed`` gets the error of a page that could not be read, or what ``take`` raised; the journal goes on. What says that the disk or
        the file is damaged ends everything, as it does while writing, and so does an error that ``failed`` raises.
        """
        read = Read(wanted, take, failed)
        if not wanted.for_consumers and not wanted.on_disk and self.busy():
            self.batch.after.append(lambda: self._want(read))
        else:
            self._want(read)

    def _want(self, read: Read) -> None:
        self._reads.add(read)
        self._wakeup.set()

    async def _read_next(self) -> bool:
        """Whether what gathered is a step of work now."""
        step = not self._reads.next_wanted.for_consumers
        if step and self.batch.awaited:
            await self._commit()
            if self.failed.done():
                return False
        closed = await self._read_page(self._reads.pop())
        if closed and not self.failed.done():
            await self._commit(close=False)
        return step

    async def _read_page(self, read: Read) -> bool:
        """Whether what gathered until it was handed over is closed, and waits apart from what came of it."""
        (wanted, take, failed), closed = read, False
        quarantine_at_ms = self._writer_thread.writer.state.clock_ms if self._options.on_damage == "quarantine" else None
        try:
            ahead = self._ahead.take(wanted)
            page = await asyncio.wrap_future(ahead) if ahead is not None else None
            if page is None or not self._ahead.good(page):
                if self._packed_rows:
                    await self._store.run(self._writer_thread.merge)
                page = await self._store.run(read_alone, wanted, quarantine_at_ms)
            for leaving in (*self._scheduler.waiting, self.batch):
                if leaving.deleted:
                    page = page._replace(records=[record for record in page.records if record.sequence not in leaving.deleted])
            if self.batch.awaited and not wanted.for_consumers:
                self._close_batch(asyncio.get_running_loop().time())
                closed = True
            take(page)
        except JournalError:
            raise
        except Exception as error:
            log.exception("page-unread: a page of queue %d was not read or not taken", wanted.queue_id)
            try:
                failed(error)
            except Exception as in_doubt:
                if not self.failed.done():
                    self.failed.set_exception(in_doubt)
        return closed

    async def flush(self) -> None:
        """Wait until everything appended so far is in the tables, on disk, and its callbacks ran. Raises what ``failed`` holds after a
        failure."""
        if self.failed.done():
            self.failed.result()
        if not self.busy() and not self._packed_rows:
            return
        flushed = asyncio.get_running_loop().create_future()
        self._flushes.add(flushed)
        self.batch.readable.append(partial(self._flushed.append, flushed))
        try:
            await flushed
        finally:
            self._flushes.discard(flushed)

    def when_readable(self, callback: Callable[[], None]) -> None:
        """As ``when_safe``, for who reads the file himself: everything appended so far is in its tables."""
        if self.busy() or self._packed_rows:
            self.batch.readable.append(callback)
        else:
            callback()

    async def release_memory(self) -> None:
        """Gives back what is kept to be faster: pages of the file that were read, and statements."""
        if not self.failed.done():
            await self._store.run(release_memory)

    async def close(self, *, clean: bool = True) -> None:
        """Flush, mark a clean stop, empty the WAL, release the directory. After a failure: release what can be, touch nothing.

        ``clean`` False: nothing is marked, as it was not after the stop before.
        """
        if self._closed:
            return
        self._closed = True
        await self.backups.stop()
        try:
            await self._flush_if_possible()
            self._closing = True
            self._wakeup.set()
            await self._task
            if clean and not self.failed.done():
                await self._close_cleanly()
        finally:
            await self._release()

    async def _flush_if_possible(self) -> None:
        try:
            await self.flush()
        except Exception:
            if not self.failed.done():
                raise

    async def _close_cleanly(self) -> None:
        try:
            self._writer_thread.last_commit.advance(await self._store.run(commit_clean_stop, self.ids_taken), self.ids_taken)
        except sqlite3.Error as error:
            if is_full(error):
                log.warning("stop-unmarked: the disk is full: the stop is not marked as clean, and the next start will recover")
                return
            failure = io_failure(str(error))
            self._fail(failure)
            raise failure from error

    async def _release(self) -> None:
        if self._leader is not None:
            await self._leader.close()
        self._writer_thread.close()
        self._syncs.close()
        self._wakeup.close()
        if self.failed.done():
            # The lock stays until the process ends, like the connection: see Store.abandon.
            self._store.abandon()
            self.failed.exception()
            return
        self._ahead.close()
        await self._store.close()
        self._lock.release()

    async def _run(self) -> None:
        """The writer: commit what has gathered, answer, look after the file, repeat."""
        loop = asyncio.get_running_loop()
        try:
            while not self.failed.done():
                step = bool(self._reads) and await self._read_next()
                if self.failed.done():
                    return
                if self.batch.touched or self._scheduler.waiting:
                    await self._commit(step=step)
                elif self._reads:
                    continue
                elif self._packed_rows and (self._closing or loop.time() > self._merge_at_s):
                    await self._store.run(self._writer_thread.merge)
                elif self._closing:
                    return
                elif self.upkeep_due:
                    await self._keep_up()
                else:
                    await self._rest()
        except JournalError as error:
            self._fail(error)
        except Exception as error:
            log.exception("journal-failed: the journal's writer broke")
            self._fail(io_failure(f"{type(error).__name__}, {error}"))

    async def _commit(self, close: bool = True, step: bool = False) -> None:
        """One commit of what is due, or a wait until something is. Not ``close``: without what gathers still, and without a wait. ``step``:
        of work on many messages."""
        loop = asyncio.get_running_loop()
        self._wakeup.clear()
        self._wakeup.idle_seconds = 0
        if close and self.batch.touched:
            self._close_batch(loop.time())
        batch = self._in_flight = self._scheduler.take(loop.time(), self.batch)
        if batch is None:
            self._wakeup.at(self._scheduler.look_again_s())
            if self._put_off:
                await self._keep_up()
            elif close and not self._reads:
                # Where there is much to do, what is delivered meanwhile is no reason to wait.
                await (self._wakeup.wait() if self._scheduler.pays else self._wakeup.dispatched())
            return
        reserve = self._reserve_wanted()
        self._reserving = reserve or self._reserved_up_to
        if not (batch.writes() or reserve is not None or (batch.to_tables and self._packed_rows)):
            self._committed(batch)
            self._end_flushes()
            await self._keep_up()
            return
        standing = await self._write(batch, reserve, step)
        self._ahead.committed(batch)
        if self._in_flight is not None:
            self._committed(batch)
        if not self.failed.done():
            if standing is not None:
                self._take(standing)
            self._end_flushes()
            await self._keep_up(later=step and not batch.awaited and self._may_wait(loop.time()))

    async def _write(self, batch: WriteBatch, reserve: int | None, step: bool) -> Standing | None:
        """As ``WriterThread.commit``. A small batch is written here, where the interpreter's lock need not be won back at each statement;
        a disk is waited for on a thread."""
        store, writer = self._store, self._writer_thread
        if self._leader is not None:
            batch.applied = await self._append(self._leader, batch, reserve)
        connection = store.connection
        rows = 0 if step or connection is None else writer.rows_here(batch)
        if connection is None or not rows:
            return await store.run(writer.commit, batch, reserve, self._end_of_step if step else None)
        if not self._packed_rows:
            self._merge_at_s = asyncio.get_running_loop().time() + _PACKED_S
        try:
            written = writer.write_here(connection, batch, reserve, rows)
        except NoRoom:
            return await store.run(writer.commit, batch, reserve)
        looks = await (self._sync_here if writer.syncs_at_once else self._sync_apart)(batch, written, reserve)
        return await store.run(writer.standing) if looks else None

    async def _sync_here(self, batch: WriteBatch, written: Written, reserve: int | None) -> bool:
        """Returns what ``WriterThread.note`` does."""
        self._writer_thread.sync(written, reserve)
        looks = self._writer_thread.note(batch, written)
        self._committed(batch)
        # As while a disk is waited for: what came is dispatched, and leaves, before the next is written.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._merge_some()
        return looks

    async def _sync_apart(self, batch: WriteBatch, written: Written, reserve: int | None) -> bool:
        """Returns what ``WriterThread.note`` does. The disk's time is the tables' too."""
        writer = self._writer_thread
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def synced(error: Exception | None) -> None:
            try:
                if error is not None:
                    raise error
                looks = writer.note(batch, written)
                self._committed(batch)
            except Exception as failed:
                over.set_exception(failed)
            else:
                over.set_result(looks)

        self._syncs.begin(partial(writer.sync, written, reserve), synced)
        await asyncio.sleep(0)
        self._merge_some()
        return await over

    def _merge_some(self) -> None:
        """Those that are many, or stand packed for long."""
        connection, rows = self._store.connection, self._packed_rows
        if connection is not None and rows and (rows >= _MERGED_ROWS or asyncio.get_running_loop().time() > self._merge_at_s):
            self._writer_thread.merge_here(connection)

    async def _lead(self, leader: Leader) -> None:
        """Whoever leads next hands out none of the ids that are reserved here."""
        try:
            await leader.append(pack_batch(WriteBatch(), self._reserved_up_to))
        except JournalError as error:
            self._fail(error)
            await self.close()
            raise
        leader.on_end = self._fail
        leader.beat()

    async def _append(self, leader: Leader, batch: WriteBatch, reserve: int | None) -> bytes:
        """Where the log stands with it, packed. A small batch is packed here, for the reason that ``_write`` has."""
        version = leader.version
        try:
            if batch.is_small():
                packed = pack_batch(batch, reserve, version)
            else:
                packed = await self._store.run(lambda _: pack_batch(batch, reserve, version))
        except Exception as unforeseen:
            raise bad_record(unforeseen) from unforeseen
        return (await leader.append(packed, version)).pack()

    @property
    def _packed_rows(self) -> int:
        """What is on disk and not in the tables."""
        return self._writer_thread.writer.packed.rows

    def _may_wait(self, now_s: float) -> bool:
        """Whether upkeep waits for a commit that answers somebody: who sends one after another has sent nothing yet right after."""
        if not self.upkeep_due or self._put_off or self.space_low or self.sync_ms is None:
            return False
        self._waits_since_s = self._waits_since_s or now_s
        return now_s < self._waits_since_s + _UPKEEP_S

    def _end_of_step(self) -> WriteBatch | None:
        """On the store's thread, when a step is written and about to be committed: the next one's page is read meanwhile."""
        # Of what the replicated log has as an entry already nothing joins.
        joining = self._joining() if self._leader is None else None
        wanted = self._reads.next_wanted if self._reads else None
        if wanted is not None and wanted.on_disk and not self._packed_rows:
            self._ahead.begin(wanted)
        return joining

    async def _keep_up(self, later: bool = False) -> None:
        """Upkeep, where it is due and not for ``later``. Whoever waits for a commit already goes before it, once."""
        before = self.upkeep_due and self.batch.awaited and not self._put_off and not self.space_low
        if self.upkeep_due and not before and not later:
            if self._put_off:
                self.on_commit(self.unwritten_references)
            await self._ahead.over()
            self._take(await self._store.run(self._writer_thread.upkeep, self._wakeup.idle_seconds > 1))
            self._waits_since_s = 0.0
        self._put_off, self.tidying = before, before or later
        self.on_commit(self.unwritten_references)

    def _committed(self, batch: WriteBatch) -> None:
        """The batch is on disk: whoever waited for it is answered, while the writer's thread still looks how things stand."""
        if self.failed.done():
            return
        self._in_flight = None
        self._reserved_up_to = self._reserving
        self.tidying = True
        for callback in batch.answers:
            try:
                callback()
            except Exception:
                # One listener's fault must not keep the others from their answers.
                log.exception("commit-callback-failed: a callback after a commit failed")
        self.on_answered()

    def _end_flushes(self) -> None:
        for flushed in self._flushed:
            if not flushed.done():
                flushed.set_result(None)
        self._flushed.clear()

    async def _rest(self) -> None:
        if self._packed_rows:
            self._wakeup.at(self._merge_at_s)
        await self._wakeup.dispatched()
        if not self.batch.touched:
            self._wakeup.clear()
            if self._wakeup.idle_seconds > 1 and not self.failed.done():
                self._take(await self._store.run(self._writer_thread.upkeep, True))

    def _take(self, standing: Standing) -> None:
        self.wal_bytes = standing.wal_bytes
        self.upkeep_due = standing.upkeep_due
        over = standing.wal_bytes > self._options.wal_limit_bytes
        if over != self.wal_over:
            self.wal_over = over
            self.on_wal_limit(over)
        if standing.space_low != self.space_low:
            self.space_low = standing.space_low
            if self.space_low:
                log.warning("disk-full: the data directory's file system is nearly full: producers wait until there is room")
            else:
                log.info("disk-has-room: there is room on the data directory's file system again: producers go on")
            self.on_space(self.space_low)

    def _fail(self, error: JournalError) -> None:
        if self._leader is not None and error.code == "journal-damaged":
            error = copy_damaged(self.directory, error)
        log.critical("journal-failed: %s", error)
        if not self.failed.done():
            self.failed.set_exception(error)

    def _on_failed(self, failed: asyncio.Future[None]) -> None:
        self._wakeup.set()
        error = failed.exception() if not failed.cancelled() else None
        for flushed in self._flushes:
            if not flushed.done():
                flushed.set_exception(error or asyncio.CancelledError())
