"""Write one batch, with what stands packed before it: BEGIN IMMEDIATE, statements in one table order, COMMIT. The sync is not its own.

All or nothing: either the commit returned and a sync brings the whole batch to disk, or WriteFailed is raised. What the writer carries from
batch to batch (the number of the next duplicate, the size of history, the ids reserved) changes only after a commit.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

from ..contract import QueueRecord, ReferenceRecord
from ..store import returned
from ..store.bulk_statements import LONG_RUN, delete_integers, run_keys, run_values
from ..store.commits import commit, next_number
from ..store.packing import checksum_of_counts, counts_checksum, pack, pack_hops, pack_message, packer, placed
from ..store.sqlite import Writing
from ..upkeep import spilled, tombstones
from ..upkeep.lost import count_lost
from .batch import WriteBatch
from .changes import change_references
from .counts import write_counts
from .events import write_events
from .fault_groups import write_faults
from .history_writer import write_history
from .packed_commits import PackedCommits, remove_rows
from .stories import write_stories
from .writer_state import WriterState

log = logging.getLogger("homing.journal")

_REFERENCE_WIDTH = 17
#: Most references are written as they arrived: no counts, no times, a body of their own. For those only what differs is a parameter. A
#: parameter of None or bytes costs 250 ns more than any other, since sqlite3 looks for an adapter of its type; hence bytearray.
_FRESH_ROW = "(?,?,?,?,0,0,0,0,NULL,NULL,?,NULL,?,?,NULL,NULL,NULL,NULL)"
_FRESH_WIDTH = 7
#: Likewise of those that share a body in table message: a third of what all columns as parameters cost.
_SHARING_ROW = "(?,?,?,?,0,0,0,0,NULL,NULL,?,NULL,NULL,0,NULL,NULL,NULL,NULL)"
_ROW = f"({'?,' * _REFERENCE_WIDTH}NULL)"
_SHARING_WIDTH = 5
#: So much is packed before it is handed to SQLite: copies of bodies are made for no more at a time.
_PACKED_BYTES = 2 << 20

INSERT_REFERENCE = "INSERT INTO reference VALUES {values}"
IS_THERE = "SELECT 1 FROM reference WHERE sequence = ?"
# A message that goes on to another queue takes its body along from the row that it leaves.
MOVE_REFERENCE = (
    "INSERT INTO reference SELECT v.column2, v.column3, v.column4, old.message_id, v.column10, 0, 0, 0, NULL, NULL, v.column5, v.column6,"
    " old.message_blob, old.checksum, nullif(v.column11, -1), v.column8, v.column9, NULL FROM (VALUES {values}) AS v JOIN reference AS old"
    " ON old.sequence = v.column1 AND old.message_id = v.column7"
)
# Likewise of runs of consecutive rows: first, last, how far behind the new ones lie, and what is the same for all of a run.
MOVE_RUNS = (
    "INSERT INTO reference SELECT v.column4, v.column5, old.sequence + v.column3, old.message_id, v.column8, 0, 0, 0, NULL, NULL,"
    " v.column6, v.column7, old.message_blob, old.checksum,"
    f" iif(v.column8, {placed('v.column9', 'v.column4', 'v.column5', '(old.sequence + v.column3)')}, NULL), v.column10, v.column11, NULL"
    " FROM (VALUES {values}) AS v CROSS JOIN reference AS old WHERE old.sequence BETWEEN v.column1 AND v.column2"
)
_NO_RUN = (1, 0, *[None] * 9)
INSERT_MESSAGE = "INSERT OR REPLACE INTO message VALUES {values}"
BODIES_IN_USE = (
    "SELECT message_id FROM reference r INDEXED BY reference_message"
    f" WHERE message_blob IS NULL AND message_id IN ({{values}}) AND {tombstones.THERE}"
)


def _sums(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} = {name} + excluded.{name}" for name in columns)


SET_QUEUE = (
    "INSERT INTO queue VALUES {values} ON CONFLICT (queue_id) DO UPDATE SET name = excluded.name, address = excluded.address,"
    " routing_type = excluded.routing_type, selector = excluded.selector, durable = excluded.durable, auto_created = excluded.auto_created,"
    " paused = excluded.paused, options_blob = excluded.options_blob, created_at_ms = excluded.created_at_ms,"
    " deleted_at_ms = excluded.deleted_at_ms, policy = excluded.policy"
)
SET_ADDRESS = "INSERT OR REPLACE INTO address VALUES {values}"
DELETE_ADDRESS = "DELETE FROM address WHERE name IN (VALUES {values})"
SET_DECLARATION = "INSERT OR REPLACE INTO declaration VALUES {values}"
DELETE_DECLARATION = "DELETE FROM declaration WHERE (kind, name) IN (VALUES {values})"
SET_PRODUCER = "INSERT OR REPLACE INTO producer VALUES {values}"
DELETE_PRODUCER = "DELETE FROM producer WHERE producer IN (VALUES {values})"
SET_DUPLICATE = "INSERT OR REPLACE INTO duplicate VALUES {values}"
FORGET_DUPLICATES = "DELETE FROM duplicate WHERE address IN (VALUES {values})"
TRIM_DUPLICATE = (
    "DELETE FROM duplicate WHERE address = :address AND number <="
    " (SELECT number FROM duplicate WHERE address = :address ORDER BY number DESC LIMIT 1 OFFSET :keep)"
)
SET_COMMITTED = "INSERT OR REPLACE INTO committed VALUES {values}"
SET_POLICY = "INSERT OR REPLACE INTO policy VALUES {values}"
SET_SETTING = "INSERT OR REPLACE INTO setting VALUES {values}"
INSERT_EDIT = "INSERT OR REPLACE INTO edit VALUES {values}"
SET_META = "INSERT OR REPLACE INTO meta VALUES {values}"


@dataclass(slots=True)
class Written:
    """What one batch did, in rows and bytes."""

    added: int = 0
    changed: int = 0
    deleted: int = 0
    #: Of those, the ones whose rows are still there.
    tombstones: int = 0
    bytes: int = 0
    #: References that came and went within it.
    elided: int = 0
    #: Changes and deletes of references that were not there: a fault of the caller's bookkeeping, harmless to the journal.
    not_found: int = 0
    #: The number of the commit, when it began, and what its end took.
    commits: int = 0
    began_s: float = 0.0
    sync_ms: float = 0.0
    #: All up to it is on disk.
    synced: bool = False

    def add(self, other: Written) -> None:
        """What another batch did in the same commit."""
        self.added += other.added
        self.changed += other.changed
        self.deleted += other.deleted
        self.tombstones += other.tombstones
        self.bytes += other.bytes
        self.elided += other.elided
        self.not_found += other.not_found


class _Inserts(NamedTuple):
    """References by what inserts them: _FRESH_ROW, _SHARING_ROW, a move from a row that goes (its sequence), or values of all columns.
    ``spilled``: queue_id and sequence of those of them that are."""

    fresh: list[Any]
    shares: list[Any]
    moved: list[tuple[int, ReferenceRecord]]
    other: list[Any]
    spilled: list[Any]


class BatchWriter:
    """Turns batches into transactions. ``duplicate_ids_per_address``: how many the trim leaves."""

    def __init__(self, state: WriterState, duplicate_ids_per_address: int, packed: PackedCommits) -> None:
        self.state = state
        self.packed = packed
        self._duplicate_limit = duplicate_ids_per_address

    def pack(self, connection: Writing, batch: WriteBatch, reserve_up_to: int | None, rows: int) -> Written:
        """Write and commit it as one row. ``rows``: of the tables. Raises as ``write`` does, with nothing written."""
        number, size = self.packed.write(connection, batch, reserve_up_to, rows)
        return Written(commits=number, bytes=size)

    def write(
        self,
        connection: sqlite3.Connection,
        batch: WriteBatch,
        reserve_up_to: int | None,
        history: bool = True,
        joining: Callable[[], WriteBatch | None] | None = None,
    ) -> Written:
        """Write and commit. ``reserve_up_to``: raise the block of reserved ids to this in the same transaction.

        ``history`` False: the retry on a full disk, acknowledgements first, attempts and outcomes left out.
        ``joining``: asked when the batch is written, and before the commit, for one that goes along; the batch holds all of that by then,
        so that to write it again is to write both.
        Raises whatever SQLite or packing raise, with the transaction still open if there is one: the caller decides.
        """
        connection.execute("BEGIN IMMEDIATE")
        state, written, packed = self.state, Written(), self.packed
        number = next_number(connection)  # before packed rows go, which know it too
        if packed.rows:
            state = self._write_part(connection, packed.batch, state, packed.reserved_up_to, history, written)
            remove_rows(connection)
        if batch.touched or not packed.rows:
            state = self._write_part(connection, batch, state, reserve_up_to, history, written)
        later = joining() if joining is not None else None
        if later is not None:
            state = self._write_part(connection, later, state, None, history, written)
        began = time.perf_counter()
        written.commits = commit(connection, number)
        written.sync_ms = (time.perf_counter() - began) * 1000
        self.state = state
        if packed.rows:
            packed.clear()
        return written

    def merge(self, connection: sqlite3.Connection) -> Written:
        """To the tables what stands packed. Raises as ``write`` does."""
        return self.write(connection, WriteBatch(), None)

    def _write_part(
        self,
        connection: sqlite3.Connection,
        batch: WriteBatch,
        state: WriterState,
        reserve_up_to: int | None,
        history: bool,
        written: Written,
    ) -> WriterState:
        """Adds up what it did; returns how the writer stands with it."""
        state = state.copy(bool(batch.duplicates), bool(batch.addresses))
        written.add(self._statements(connection, batch, state, reserve_up_to, history))
        return state

    def _statements(
        self, connection: sqlite3.Connection, batch: WriteBatch, state: WriterState, reserve_up_to: int | None, history: bool
    ) -> Written:
        written = Written(elided=batch.elided)
        meta: list[Any] = []
        if batch.begun_ms:
            state.tombstones += spilled.discard_all(connection)
            count_lost(connection, batch.begun_ms)
        if state.returned and (batch.deleted or batch.deleted_first):
            returned.forget(connection, batch.deleted | batch.deleted_first)
        if not history:
            _end_references(connection, batch, batch.deleted - batch.added.keys(), written, state.references)
        if batch.declares():
            _write_declarations(connection, batch, state, meta)
        deletes = batch.deleted if history else batch.deleted & batch.added.keys()
        _write_references(connection, batch, written, deletes, state)
        if history:
            write_history(connection, batch, state, meta)
        elif batch.attempts or batch.outcomes:
            meta += ["history_from_ms", max(batch.clock_ms, state.clock_ms) + 1]
        run_values(connection, INSERT_EDIT, 4, [value for record in batch.edits.values() for value in record])
        if batch.stories:
            write_stories(connection, batch.stories)
        if batch.events:
            write_events(connection, batch.events)
        write_counts(connection, batch)
        if batch.fault_changes:
            write_faults(connection, batch.fault_changes)
        self._write_watermarks(connection, batch, state)
        if batch.clock_ms > state.clock_ms:
            state.clock_ms = batch.clock_ms
            meta += ["clock_ms", batch.clock_ms]
        if reserve_up_to is not None:
            meta += ["reserved_up_to", reserve_up_to]
        if batch.applied is not None:
            meta += ["applied", bytearray(batch.applied)]
        run_values(connection, SET_META, 2, meta)
        state.references += written.added - (written.deleted - written.tombstones)
        state.tombstones += written.tombstones
        return written

    def _write_watermarks(self, connection: sqlite3.Connection, batch: WriteBatch, state: WriterState) -> None:
        if batch.producers:
            run_keys(connection, DELETE_PRODUCER, 1, [(name,) for name, watermark in batch.producers.items() if watermark is None])
            run_values(
                connection, SET_PRODUCER, 3, [v for name, watermark in batch.producers.items() if watermark for v in (name, *watermark)]
            )
        if batch.transactions:
            run_values(connection, SET_COMMITTED, 2, [value for row in batch.transactions.items() for value in row])
        if batch.addresses:
            _forget_duplicates(connection, batch, state)
        self._write_duplicates(connection, batch, state)

    def _write_duplicates(self, connection: sqlite3.Connection, batch: WriteBatch, state: WriterState) -> None:
        if not batch.duplicates:
            return
        flat: list[Any] = []
        for address, duplicate_id in batch.duplicates:
            flat += (address, duplicate_id, state.next_duplicate)
            state.next_duplicate += 1
            state.duplicates[address] = state.duplicates.get(address, 0) + 1
        run_values(connection, SET_DUPLICATE, 3, flat)
        for address in {address for address, _ in batch.duplicates}:
            # Some slack, so that the trim runs once in a while and not for every message.
            if state.duplicates[address] > self._duplicate_limit + self._duplicate_limit // 16:
                connection.execute(TRIM_DUPLICATE, {"address": address, "keep": self._duplicate_limit})
                state.duplicates[address] = self._duplicate_limit


def _forget_duplicates(connection: sqlite3.Connection, batch: WriteBatch, state: WriterState) -> None:
    """Those of removed addresses go later; where the address is back they go now, since after a crash nothing tells them from its own."""
    state.forgotten.update(dict.fromkeys(batch.forgotten & state.duplicates.keys()))
    back = {name for name in state.forgotten.keys() & batch.addresses.keys() if batch.addresses[name] is not None}
    if back:
        run_keys(connection, FORGET_DUPLICATES, 1, [(name,) for name in back])
        state.duplicates = {name: count for name, count in state.duplicates.items() if name not in back}
        for name in back:
            del state.forgotten[name]


def _write_declarations(connection: sqlite3.Connection, batch: WriteBatch, state: WriterState, meta: list[Any]) -> None:
    run_keys(connection, DELETE_ADDRESS, 1, [(name,) for name, record in batch.addresses.items() if record is None])
    run_values(connection, SET_ADDRESS, 4, [value for record in batch.addresses.values() if record for value in record])
    if batch.queues:
        # Deleted ones first: a name may have gone to a new queue in the same batch.
        ordered = sorted(batch.queues.values(), key=lambda record: record.deleted_at_ms is None)
        run_values(connection, SET_QUEUE, 12, [value for record in ordered for value in _queue_row(record)])
        newest = max(batch.queues)
        if newest >= state.next_queue_id:
            state.next_queue_id = newest + 1
            meta += ["next_queue_id", newest + 1]
    run_keys(connection, DELETE_DECLARATION, 2, [key for key, record in batch.declarations.items() if record is None])
    declared = [record for record in batch.declarations.values() if record is not None]
    run_values(connection, SET_DECLARATION, 3, [v for each in declared for v in (each.kind, each.name, pack(each.content))])
    run_values(
        connection, SET_POLICY, 3, [v for record in batch.policies.values() for v in (record.from_ms, record.policy, pack(record.settings))]
    )
    run_values(connection, SET_SETTING, 2, [v for from_ms, settings in batch.settings_rows.items() for v in (from_ms, pack(settings))])


def _queue_row(record: QueueRecord) -> tuple[Any, ...]:
    return (*record[:8], pack(record.options), record.created_at_ms, record.deleted_at_ms, record.policy)


def _write_references(connection: sqlite3.Connection, batch: WriteBatch, written: Written, deletes: set[int], state: WriterState) -> None:
    """Most batches hold little of all this: what is not there is not looked at."""
    if batch.unspilled:
        spilled.clear(connection, batch.unspilled)
    if batch.deleted_first:
        _remove_references(connection, sorted(batch.deleted_first), written)
    if batch.messages:
        _write_bodies(connection, batch, written)
    if batch.added:
        _add_references(connection, batch, written, deletes - batch.added.keys())
    if batch.changed:
        changed = change_references(connection, batch.changed, state)
        written.changed += changed
        written.not_found += len(batch.changed) - changed
    if deletes:
        _end_references(connection, batch, deletes, written, state.references)
    if batch.messages_deleted:
        _delete_bodies(connection, batch.messages_deleted)
    for queue_id, keep in batch.spill_ended.items():
        if keep:
            spilled.forget(connection, queue_id)
        else:
            gone = spilled.discard(connection, queue_id)
            written.deleted += gone
            written.tombstones += gone


def _write_bodies(connection: sqlite3.Connection, batch: WriteBatch, written: Written) -> None:
    bodies: list[Any] = []
    size = 0
    # Added and already unused: need not be written, unless a reference that is written points at it.
    unused = batch.messages_deleted & batch.messages.keys() if batch.elide else set[int]()
    if unused:
        unused -= batch.shared_bodies()
    for message in batch.messages.values():
        if message.message_id in unused:
            continue
        blob, checksum = pack_message(message)
        bodies += (message.message_id, blob, checksum)
        size += len(blob)
        if size >= _PACKED_BYTES:
            run_values(connection, INSERT_MESSAGE, 3, bodies)
            written.bytes, size, bodies = written.bytes + size, 0, []
    written.bytes += size
    run_values(connection, INSERT_MESSAGE, 3, bodies)


def _add_references(connection: sqlite3.Connection, batch: WriteBatch, written: Written, leaving: set[int]) -> None:
    """``leaving``: rows on disk that go in this batch, after these have come."""
    records, size = batch.records(), _PACKED_BYTES
    while size >= _PACKED_BYTES:
        size = _append_references(inserts := _Inserts([], [], [], [], []), records, leaving, batch.sources)
        written.bytes += size
        if inserts.fresh:
            written.added += run_values(connection, INSERT_REFERENCE, _FRESH_WIDTH, inserts.fresh, _FRESH_ROW)
        if inserts.shares:
            written.added += run_values(connection, INSERT_REFERENCE, _SHARING_WIDTH, inserts.shares, _SHARING_ROW)
        if inserts.moved:
            written.added += _move_references(connection, inserts.moved, batch.sources)
        if inserts.other:
            written.added += run_values(connection, INSERT_REFERENCE, _REFERENCE_WIDTH, inserts.other, _ROW)
        if inserts.spilled:
            spilled.note(connection, inserts.spilled)


def _delete_bodies(connection: sqlite3.Connection, message_ids: set[int]) -> None:
    """Bodies that nothing in memory needs any more go, unless a reference that is only on disk does."""
    ordered, needed = sorted(message_ids), set[int]()
    for start in range(0, len(ordered), 2048):
        part = ordered[start : start + 2048]
        found = connection.execute(BODIES_IN_USE.format(values=",".join("?" * len(part))), part)
        needed.update(message_id for (message_id,) in found)
    delete_integers(connection, "message", "message_id", message_ids - needed)


def _append_references(inserts: _Inserts, records: Iterator[ReferenceRecord], leaving: set[int], sources: Mapping[int, int]) -> int:
    """Add references to ``inserts`` until their bodies come to _PACKED_BYTES, and return the bytes of the bodies. The busiest loop of the
    journal.

    Records that take their body from a row that is ``leaving`` join ``moved``: from the one that ``sources`` or their latest hop names.
    """
    pack_one, size = packer(), 0
    fresh, shares, moved, other, spills = inserts
    for record in records:
        (
            queue_id,
            priority,
            sequence,
            delivery_count,
            failed,
            assigned,
            state,
            due,
            expires,
            cause,
            redrive,
            entered,
            hops,
            message,
            shared,
            is_spilled,
        ) = record
        untried = due is None and expires is None and not (failed or assigned or state)
        unchanged = untried and not delivery_count
        if shared and unchanged and not hops and not cause:
            shares += (queue_id, 9 - priority, sequence, message.message_id, entered)
        elif untried and hops and not shared and (source := sources.get(sequence) or hops[0][0]) in leaving:
            moved.append((source, record))
            size += len(message.body)
        else:
            blob = None if shared else pack_one(message)
            checksum = crc32(blob) if blob is not None else 0
            size += len(blob) if blob is not None else 0
            if unchanged and hops is None and not cause and blob is not None:
                fresh += (queue_id, 9 - priority, sequence, message.message_id, entered, bytearray(blob), checksum)
            else:
                overlay = None if hops is None else pack_hops(hops, sequence, pack_one)
                proof = None if unchanged else counts_checksum(queue_id, 9 - priority, sequence, *record[3:9])
                other += (queue_id, 9 - priority, sequence, message.message_id, delivery_count, failed, assigned, state)
                other += (due, expires, entered, overlay, blob, checksum, proof, cause, redrive)
        if is_spilled:
            spills += (queue_id, sequence)
        if size >= _PACKED_BYTES:
            break
    return size


def _move_references(connection: sqlite3.Connection, moved: list[tuple[int, ReferenceRecord]], sources: Mapping[int, int]) -> int:
    """Messages whose old rows go in this batch. Those of consecutive rows that move together, as those of messages dead-lettered together,
    are told once; so are those whose old rows ``sources`` names, however few.
    """
    flat: list[Any] = []
    moving: list[tuple[Any, ...]] = []
    pack_one = packer()
    for run in _moving_together(moved):
        old, first = run[0]
        rank, overlay = 9 - first.priority, bytearray(pack_hops(first.hops or (), first.sequence, pack_one))
        if len(run) >= LONG_RUN or first.sequence in sources:
            new = (first.queue_id, rank, first.entered_at_ms, overlay, first.delivery_count, checksum_of_counts(*first[3:9]))
            moving.append((old, old + len(run) - 1, first.sequence - old, *new, first.cause, first.redrive))
        else:
            for number, record in run:
                proof = counts_checksum(record.queue_id, rank, record.sequence, *record[3:9]) if record.delivery_count else -1
                flat += (number, record.queue_id, rank, record.sequence, record.entered_at_ms, overlay)
                flat += (record.message.message_id, record.cause, record.redrive, record.delivery_count, proof)
    written = run_values(connection, MOVE_REFERENCE, 11, flat)
    written += run_keys(connection, MOVE_RUNS, 11, moving, _NO_RUN)
    if written == len(moved):
        return written
    # A row that was found damaged meanwhile was set aside, or a damaged hop named another; the message itself is here.
    missing = [record for _, record in moved if not connection.execute(IS_THERE, (record.sequence,)).fetchone()]
    log.error("messages-missing: %d messages go on to another queue from rows that are not there any more", len(missing))
    inserts = _Inserts([], [], [], [], [])
    for record in missing:
        _append_references(inserts, iter([record]), set(), {})
    return written + run_values(connection, INSERT_REFERENCE, _REFERENCE_WIDTH, inserts.other, _ROW)


def _moving_together(moved: list[tuple[int, ReferenceRecord]]) -> Iterator[list[tuple[int, ReferenceRecord]]]:
    """Cuts where one does not follow the one before, in the queue that it leaves and in the one that it joins, for the same reasons."""
    start = last_old = last_sequence = last_ended = 0
    last: tuple[object, object] = ((), ())
    last_death: object = None
    for number, (old, record) in enumerate(moved):
        hops, sequence = record.hops or (), record.sequence
        ended, detail = hops[0]
        # Those dealt with together share what is said of their death, or all their hops: the same object.
        death: object = detail if len(hops) == 1 else hops
        # All that a row says but its sequence, its hops and the message.
        alike = (record[:2], record[3:12])
        follows = old == last_old + 1 and sequence == last_sequence + 1 and ended == last_ended + 1
        if number and not (follows and death is last_death and alike == last):
            yield moved[start:number]
            start = number
        last_old, last_sequence, last_ended, last_death, last = old, sequence, ended, death, alike
    if moved:
        yield moved[start:]


def _end_references(connection: sqlite3.Connection, batch: WriteBatch, sequences: set[int], written: Written, references: int) -> None:
    """Rows of what may come back go at once. ``references``: rows there are."""
    if batch.unspilled:
        may_return = sequences & batch.unspilled.keys()
        _remove_references(connection, sorted(may_return), written)
        sequences = sequences - may_return
    _delete_references(connection, sequences, written, references)


def _delete_references(connection: sqlite3.Connection, sequences: set[int], written: Written, references: int) -> None:
    """``references``: rows there are."""
    ordered = sorted(sequences)
    if not (tombstones.far_apart(ordered) and tombstones.far_apart(ordered, tombstones.gap(connection, references))):
        _remove_references(connection, ordered, written)
        return
    tombstones.leave(connection, ordered)
    written.deleted += len(ordered)
    written.tombstones += len(ordered)


def _remove_references(connection: sqlite3.Connection, ordered: list[int], written: Written) -> None:
    if ordered:
        deleted = delete_integers(connection, "reference", "sequence", ordered)
        written.deleted += deleted
        written.not_found += len(ordered) - deleted


def merge_packed(connection: sqlite3.Connection, go_on: bool = False) -> list[str]:
    """To the tables what a crash left packed, before anything is read from them. ``go_on``: past what is damaged, which is returned.

    Raises sqlite3.Error, and JournalError ``journal-damaged``.
    """
    packed = PackedCommits(elide=True)
    left_out = packed.read(connection, go_on)
    if packed.rows:
        BatchWriter(WriterState.read(connection), sys.maxsize, packed).merge(connection)
        if isinstance(connection, Writing):
            connection.commits = None  # a start may go on from a later number (recovery.py)
    return left_out
