"""Read back after a stop of any kind. Runs on the store's thread before anything else does.

Up to ``load_limit`` messages everything is read and verified: in the order of the rows, which is the order they lie on disk, sorted in
memory, and counted against the order index. Of more than that only what stands apart is read (parked and suspect messages); the rest is
counted from the indexes, and comes a page at a time (pages.py), verified as it is read. Nothing else runs yet, so rows come a few
thousand at a time and no bulk packing is needed here (beside a busy loop it would be: see bulk_statements.py).
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..commit.fault_changes import FAULT_SLOT_MS
from ..commit.writer_state import WriterState
from ..contract import (
    DEATH_BITS,
    ON_HOLD_MS,
    OTHER_FAULT,
    AddressRecord,
    FaultRecord,
    MessageRecord,
    OnDisk,
    QueueRecord,
    Recovered,
    RecoveredFault,
    ReferenceRecord,
    SettingsInForce,
)
from ..declarations import DeclarationRecord
from ..options import JournalOptions
from ..store import returned
from ..store.bulk_statements import delete_integers
from ..store.commits import LastCommit, commit
from ..store.directory import damaged
from ..store.packing import FIRST_RANK, Damaged, check_counts, unpack, unpack_hops, unpack_message
from ..store.sqlite import PAGE_BYTES
from ..upkeep import spilled, tombstones
from ..upkeep.lost import count_lost
from .quarantine import REFERENCE, REFERENCE_COLUMNS, sentence, set_aside

log = logging.getLogger("homing.journal")

_PAGE_ROWS = 2_000
#: More than this in bodies is not read at the start, however few messages it is.
_LOAD_BYTES = 64 << 20
_HOUR_MS = 3_600_000
#: Queue, rank and sequence have no checksum, but they stand in the index too: one flipped bit on either side changes this sum.
_PRIME = 1_000_000_007
_INDEXED = (
    f"SELECT count(*), coalesce(sum(abs(queue_id * 10 + rank + sequence * 7) % {_PRIME}), 0)"
    f" FROM reference r INDEXED BY reference_order WHERE {tombstones.THERE}"
)


def recover(
    connection: sqlite3.Connection,
    now_ms: int,
    options: JournalOptions,
    last_commit: LastCommit | None,
) -> tuple[Recovered, WriterState, int, LastCommit]:
    """Recovered, the writer's state, the first id that may be handed out, and what is to be noted beside the database from now on.

    Reserves two blocks of ids, sweeps bodies that no reference needs any more, and marks the journal as in use, in one transaction.
    A row that fails its checksum: JournalError ``journal-damaged``, or, as ``options.on_damage`` says, moved to table quarantine.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        recovered, state, first_id = _recover(connection, now_ms, options, last_commit)
        number = commit(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return recovered, state, first_id, LastCommit(number, first_id + 2 * options.id_block)


def _recover(
    connection: sqlite3.Connection, now_ms: int, options: JournalOptions, last_commit: LastCommit | None
) -> tuple[Recovered, WriterState, int]:
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    clean_stop = bool(_number(meta, "clean_stop", 1))  # a new journal was not stopped uncleanly
    reader = _References(connection, options.on_damage == "quarantine", now_ms)
    reader.check_tombstones()
    spilled.discard_all(connection)
    if not clean_stop:
        count_lost(connection, now_ms)
    left = tombstones.count(connection)
    counted = _counted(connection, _there(left))
    rows_there = left + sum(counted.values())
    whole = rows_there <= options.load_limit and _body_bytes(connection) <= _LOAD_BYTES
    references = reader.read() if whole else reader.read_apart()
    queues = _queues(connection)
    live = {queue.queue_id for queue in queues}
    _check_strays(connection, {queue_id for queue_id, _ in counted} - live)
    references = [reference for reference in references if reference.queue_id in live]
    duplicates, counts, next_duplicate = _duplicates(connection, options.duplicate_ids_per_address)
    addresses = [AddressRecord(name, types, bool(auto), at) for name, types, auto, at in connection.execute("SELECT * FROM address")]
    forgotten = dict.fromkeys(duplicates.keys() - {address.name for address in addresses})
    recovered = Recovered(
        broker_id=str(meta.get("broker_id") or uuid.uuid4()),
        clean_stop=clean_stop,
        clock_ms=_number(meta, "clock_ms", 0),
        addresses=addresses,
        queues=queues,
        next_queue_id=_number(meta, "next_queue_id", 1),
        references=references,
        producers={name: (watermark, at_ms) for name, watermark, at_ms in connection.execute("SELECT producer, mark, at_ms FROM producer")},
        duplicates={address: ids for address, ids in duplicates.items() if address not in forgotten},
        committed=dict(connection.execute("SELECT transaction_id, at_ms FROM committed ORDER BY at_ms")),
        quarantined=reader.quarantined,
        declarations=_declarations(connection),
        faults=_faults(connection, now_ms),
        settings=_settings(connection),
        stories=connection.execute("SELECT queue, story, message_id, failed FROM story ORDER BY story_id").fetchall(),
        dead=_dead(connection, _there(left)),
        on_disk=[] if whole else _on_disk(connection, {key: n for key, n in counted.items() if key[0] in live}, references, left),
    )
    first_id, commits = _number(meta, "reserved_up_to", 1), _number(meta, "commits", 0)
    if last_commit is not None:
        # Where commits are missing: what they reserved and counted stays so.
        first_id, commits = max(first_id, last_commit.reserved_up_to), max(commits, last_commit.commits)
    fresh = {"broker_id": recovered.broker_id, "clean_stop": 0, "reserved_up_to": first_id + 2 * options.id_block, "commits": commits}
    if "created_at_ms" not in meta:
        fresh |= {"created_at_ms": now_ms, "next_queue_id": 1, "clock_ms": 0, "history_bytes": 0}
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", fresh.items())
    clock_ms = max(now_ms, recovered.clock_ms)
    state = WriterState(
        clock_ms,
        recovered.next_queue_id,
        next_duplicate,
        _number(meta, "history_bytes", 0),
        counts,
        rows_there,
        left,
        returned.there_are(connection),
        forgotten,
    )
    return recovered, state, first_id


def _check_strays(connection: sqlite3.Connection, not_live: set[int]) -> None:
    """Queues in which messages stand and that are not live must have been deleted."""
    stray = not_live - {queue_id for (queue_id,) in connection.execute("SELECT queue_id FROM queue WHERE deleted_at_ms IS NOT NULL")}
    if stray:
        raise damaged(f"messages stand in queues that are not there (queue {min(stray)})")


def _settings(connection: sqlite3.Connection) -> SettingsInForce | None:
    """What only a note at the start is made of is no reason not to start."""
    found = connection.execute("SELECT settings_blob FROM setting ORDER BY from_ms DESC LIMIT 1").fetchone()
    try:
        settings = None if found is None else unpack(found[0])
    except Damaged:
        return None
    sound = isinstance(settings, dict) and all(type(pattern) is str and type(each) is dict for pattern, each in settings.items())
    return settings if sound else None


def _number(meta: dict[str, Any], key: str, default: int) -> int:
    found = meta.get(key, default)
    if type(found) is not int or not 0 <= found < 1 << 62:
        raise damaged(f"{key} in table meta is {found!r}")
    return found


def rows(connection: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    cursor = connection.execute(sql)
    while page := cursor.fetchmany(_PAGE_ROWS):
        yield from page


def _there(left: int) -> str:
    """What is not gone. Where nothing is, nothing is looked up."""
    return tombstones.THERE if left else "true"


def _counted(connection: sqlite3.Connection, where: str) -> dict[tuple[int, int], int]:
    """(queue, rank) -> messages, from the order index alone."""
    rows = f"FROM reference r INDEXED BY reference_order WHERE {where}"
    counts = connection.execute(f"SELECT queue_id, rank, count(*) {rows} GROUP BY queue_id, rank")
    return {(queue_id, rank): count for queue_id, rank, count in counts}


def _dead(connection: sqlite3.Connection, where: str) -> list[tuple[int, int, int]]:
    dead = (
        "SELECT queue_id, cause, count(*) AS messages FROM reference r INDEXED BY reference_dead"
        f" WHERE cause & {DEATH_BITS} AND {where} GROUP BY queue_id, cause"
    )
    known = f"iif(fault.fault_id IS NULL, {OTHER_FAULT << 4} | cause & 15, cause)"
    sql = f"SELECT queue_id, {known} AS known, sum(messages) FROM ({dead}) LEFT JOIN fault ON fault_id = cause >> 4 GROUP BY 1, 2"
    return connection.execute(sql).fetchall()


def _body_bytes(connection: sqlite3.Connection) -> int:
    """What reading everything would take; of long bodies only the first page is looked at."""
    sums = (connection.execute(f"SELECT coalesce(sum(length(message_blob)), 0) FROM {table}") for table in ("reference", "message"))
    return sum(int(found.fetchone()[0]) for found in sums)


def _on_disk(connection: sqlite3.Connection, counted: dict[tuple[int, int], int], read: list[ReferenceRecord], left: int) -> list[OnDisk]:
    """What was not read, queue by queue. A message's size is reckoned as the mean of the whole file: the bodies are not looked at."""
    there = _there(left)
    # Not grouped by rank, which the index does not have in front: that would sort all of it.
    ranks = sorted({rank for _, rank in counted})
    by_rank = ", ".join(["0", *(f"count(*) FILTER (WHERE rank = {rank})" for rank in ranks)])
    due = (
        f"SELECT queue_id, min(due_at_ms), count(*) FILTER (WHERE due_at_ms = {ON_HOLD_MS}), {by_rank} FROM reference r"
        " INDEXED BY reference_due"
        f" WHERE due_at_ms IS NOT NULL AND {there} GROUP BY 1"
    )
    expiring = (
        "SELECT queue_id, min(expires_at_ms) FROM reference r INDEXED BY reference_expires"
        f" WHERE expires_at_ms IS NOT NULL AND {there} GROUP BY 1"
    )
    ready = Counter(counted)
    waiting: Counter[int] = Counter()
    on_hold: Counter[int] = Counter()
    first_due: dict[int, int] = {}
    for queue_id, first_ms, held, _, *counts in connection.execute(due):
        ready.subtract({(queue_id, rank): count for rank, count in zip(ranks, counts, strict=True)})
        waiting[queue_id] = sum(counts)
        first_due[queue_id], on_hold[queue_id] = first_ms, held
    for reference in read:
        if reference.due_at_ms is None:
            ready[reference.queue_id, 9 - reference.priority] -= 1
        else:
            waiting[reference.queue_id] -= 1
            on_hold[reference.queue_id] -= reference.due_at_ms == ON_HOLD_MS
    expiries = dict(connection.execute(expiring))
    pages, unused = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
    mean = (pages - unused) * PAGE_BYTES // max(1, left + sum(counted.values()))
    found = []
    for queue_id in sorted({queue_id for queue_id, _ in counted}):
        by_priority = {9 - rank: count for (queue, rank), count in ready.items() if queue == queue_id and count}
        times = (first_due.get(queue_id), expiries.get(queue_id))
        found.append(OnDisk(queue_id, by_priority, waiting[queue_id], *times, mean, on_hold[queue_id]))
    return found


def _queues(connection: sqlite3.Connection) -> list[QueueRecord]:
    found = []
    for row in rows(connection, "SELECT * FROM queue WHERE deleted_at_ms IS NULL ORDER BY queue_id"):
        queue_id, name, address, routing_type, selector, durable, auto_created, paused, options, created_at_ms, deleted_at_ms, policy = row
        try:
            unpacked = unpack(options)
        except Damaged as error:
            raise damaged(f"the options of queue {name} {error}") from error
        found.append(
            QueueRecord(
                queue_id,
                name,
                address,
                routing_type,
                selector,
                bool(durable),
                bool(auto_created),
                bool(paused),
                unpacked,
                created_at_ms,
                deleted_at_ms,
                policy,
            )
        )
    return found


def _declarations(connection: sqlite3.Connection) -> tuple[DeclarationRecord, ...]:
    found = []
    for kind, name, blob in rows(connection, "SELECT kind, name, content_blob FROM declaration ORDER BY kind, name"):
        try:
            found.append(DeclarationRecord(kind, name, unpack(blob)))
        except Damaged as error:
            raise damaged(f"the {kind} {name} {error}") from error
    return tuple(found)


def _faults(connection: sqlite3.Connection, now_ms: int) -> list[RecoveredFault]:
    """What cannot be read of one is no reason not to start."""
    counted = "FROM fault_count counted WHERE counted.fault_id = fault.fault_id AND"
    dead = f"EXISTS (SELECT 1 {counted} died > 0)"
    in_hour = f"(SELECT coalesce(sum(failures), 0) {counted} slot >= {now_ms // _HOUR_MS * _HOUR_MS // FAULT_SLOT_MS})"
    waiting = "(SELECT coalesce(sum(waiting), 0) FROM fault_count counted WHERE counted.fault_id = fault.fault_id)"
    texts = f"coalesce(substr(text, 1, 256), ''), {dead}, {in_hour}, {waiting}"
    sql = f"SELECT fault.*, {texts} FROM fault LEFT JOIN fault_text USING (fault_id) ORDER BY last_ms"
    found = []
    for fault_id, fingerprint, queue, error_class, first_ms, last_ms, blob, *more in rows(connection, sql):
        record = FaultRecord(fault_id, fingerprint, queue, error_class, first_ms, last_ms, [], [])
        try:
            kept = record._replace(**unpack(blob))
            record = kept._replace(programs=[(client, host, version, first, last) for client, host, version, first, last in kept.programs])
        except (Damaged, TypeError, ValueError):
            log.error(
                "fault-group-damaged: fault group %s is not what was written: who met it and when it was fixed is left out", fingerprint
            )
        text, dead, in_hour, waiting = more
        found.append(RecoveredFault(record, text, bool(dead), in_hour, waiting))
    return found


def _duplicates(connection: sqlite3.Connection, limit: int) -> tuple[dict[str, list[str]], dict[str, int], int]:
    found: dict[str, list[str]] = {}
    highest = 0
    for address, duplicate_id, number in rows(connection, "SELECT address, duplicate_id, number FROM duplicate ORDER BY address, number"):
        found.setdefault(sys.intern(address), []).append(duplicate_id)
        highest = max(highest, number)
    counts = {address: len(ids) for address, ids in found.items()}
    return {address: ids[-limit:] if limit else [] for address, ids in found.items()}, counts, highest + 1


class _References:
    """Reads table reference and the bodies it shares, and decides about rows that are not what was written."""

    def __init__(self, connection: sqlite3.Connection, quarantine: bool, now_ms: int) -> None:
        self._connection = connection
        self._quarantine = quarantine
        self._now_ms = now_ms
        self._bodies: dict[int, MessageRecord | Damaged] = {}
        self._used: set[int] = set()
        self.quarantined: list[str] = []

    def check_tombstones(self) -> None:
        """Where it cannot be known which of 32 rows are gone, none of them can be served."""
        for (block,) in self._connection.execute(tombstones.DAMAGED).fetchall():
            first = block << 5
            if not self._quarantine:
                raise damaged(f"which messages are gone of rows {first} to {first + 31} of table reference fails its checksum")
            sql = f"SELECT {REFERENCE} WHERE sequence >> 5 = ? AND sequence BETWEEN ? - 31 AND ? + 31"
            for row in self._connection.execute(sql, (block, first, first)).fetchall():
                self._set_aside(row, Damaged("may be gone: what tells fails its checksum"))
            self._connection.execute("DELETE FROM gone WHERE block = ?", (block,))

    def read(self) -> list[ReferenceRecord]:
        self._read_bodies()
        found: list[ReferenceRecord] = []
        bad: list[tuple[tuple[Any, ...], Damaged]] = []
        keys = 0
        for row in rows(self._connection, f"SELECT {REFERENCE} WHERE {tombstones.THERE} ORDER BY sequence"):
            try:
                keys += abs(row[0] * 10 + row[1] + row[2] * 7) % _PRIME
                found.append(self._reference(row))
            except TypeError:
                bad.append((row, Damaged("holds something else where a number belongs")))
            except Damaged as error:
                bad.append((row, error))
        counted, indexed = self._connection.execute(_INDEXED).fetchone()
        if counted != len(found) + len(bad):
            raise damaged(f"{len(found) + len(bad)} messages are readable and the order index names {counted}")
        if keys != indexed:
            raise damaged("the order index and the messages disagree about queues, priorities or places")
        for row, why in bad:
            self._set_aside(row, why)
        self._sweep()
        found.sort(key=lambda reference: (reference.queue_id, -reference.priority, reference.sequence))
        return found

    def read_apart(self) -> list[ReferenceRecord]:
        """Only what is parked or suspect. Bodies without a reference are left to the check of a stopped journal."""
        found: list[ReferenceRecord] = []
        apart = f"reference r INDEXED BY reference_apart {returned.JOIN}"
        sql = f"SELECT {REFERENCE_COLUMNS} FROM {apart} WHERE state <> 0 AND {tombstones.THERE}"
        for row in self._connection.execute(sql).fetchall():
            try:
                if row[12] is None:
                    self._read_body(row[3])
                found.append(self._reference(row))
            except Damaged as error:
                self._set_aside(row, error)
        found.sort(key=lambda reference: (reference.queue_id, -reference.priority, reference.sequence))
        return found

    def _read_body(self, message_id: int) -> None:
        found = self._connection.execute("SELECT message_blob, checksum FROM message WHERE message_id = ?", (message_id,)).fetchone()
        if found is not None:
            self._bodies[message_id] = unpack_message(found[0], found[1], message_id)

    def _read_bodies(self) -> None:
        for message_id, blob, checksum in rows(self._connection, "SELECT message_id, message_blob, checksum FROM message"):
            try:
                self._bodies[message_id] = unpack_message(blob, checksum, message_id)
            except Damaged as error:
                self._bodies[message_id] = error

    def _reference(self, row: tuple[Any, ...]) -> ReferenceRecord:
        queue_id, rank, sequence, message_id, delivery_count, failed, assigned, state, due, expires, entered, overlay, blob, *checksums = (
            row
        )
        checksum, counts_checksum, cause, redrive = checksums
        shared = blob is None
        if shared:
            self._used.add(message_id)
            body = self._bodies.get(message_id)
            if body is None:
                raise Damaged("names a body that is not there")
            if isinstance(body, Damaged):
                raise body
            message = body
        else:
            message = unpack_message(blob, checksum, message_id)
        hops = None if overlay is None else unpack_hops(overlay, sequence)
        if not FIRST_RANK <= rank <= 9:
            raise Damaged(f"has rank {rank}")
        check_counts(queue_id, rank, sequence, delivery_count, failed, assigned, state, due, expires, counts_checksum)
        return ReferenceRecord(
            queue_id,
            9 - rank,
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
        )

    def _set_aside(self, row: tuple[Any, ...], why: Damaged) -> None:
        if not self._quarantine:
            raise damaged(sentence(row, why))
        self.quarantined.append(set_aside(self._connection, row, why, self._now_ms))

    def _sweep(self) -> None:
        """Bodies whose last reference went while their own row was to go later, or that were set aside."""
        broken = {message_id for message_id, body in self._bodies.items() if isinstance(body, Damaged)}
        orphans = (self._bodies.keys() - self._used) | (broken if self._quarantine else set())
        if orphans:
            delete_integers(self._connection, "message", "message_id", orphans)
