"""Pages: references that are only on disk, read back in delivery order or by time. Runs on the store's thread, between two batches.

A whole page is one row: beside a busy loop a cursor that yields row by row waits for the interpreter's lock at each of them. Numbers come
as one JSON array, hops and bodies joined end to end. How many rows fit is asked first, by their lengths, which touches no body.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final, NamedTuple

from ..contract import ReferenceRecord, make
from ..errors import JournalError, io_failure
from ..store import returned
from ..store.commits import commit
from ..store.directory import damaged
from ..store.packing import Damaged, check_counts, hops_unpacker, unpack_message
from ..upkeep.spilled import SPILLED
from ..upkeep.tombstones import THERE
from . import quarantine
from .choosing import Choice, chosen
from .waiting import Look, next_waiting

#: Rows of one page at most, and bytes of bodies beyond its first row.
PAGE_ROWS: Final = 1_000
PAGE_BYTES: Final = 2 << 20

_BODY: Final = "coalesce(r.message_blob, (SELECT m.message_blob FROM message m WHERE m.message_id = r.message_id))"
_CHECKSUM: Final = "iif(r.message_blob IS NULL, (SELECT m.checksum FROM message m WHERE m.message_id = r.message_id), r.checksum)"
#: ``length`` of a column is known from the row's head; of an expression it would read the body.
_LENGTH: Final = "coalesce(length(r.message_blob), (SELECT length(m.message_blob) FROM message m WHERE m.message_id = r.message_id), 0)"
_LENGTHS: Final = f"SELECT json_group_array(n) FROM (SELECT {_LENGTH} AS n FROM reference r {{rows}} LIMIT ?)"
_PAGE: Final = f"""
SELECT json_group_array(json_array(queue_id, rank, sequence, message_id, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms,
       why, job, entered_at_ms, shared, length(overlay_blob), length(body), checksum, counts_checksum, spilled)),
       cast(group_concat(overlay_blob, '') AS BLOB), cast(group_concat(body, '') AS BLOB)
FROM (SELECT r.queue_id, r.rank, r.sequence, r.message_id, {returned.DELIVERY_COUNT} AS delivery_count, {returned.FAILED} AS failed,
             {returned.ASSIGNED} AS assigned, r.state, r.due_at_ms, r.expires_at_ms, {returned.CAUSE} AS why,
             {returned.REDRIVE} AS job, r.entered_at_ms, r.message_blob IS NULL AS shared,
             r.overlay_blob, {_BODY} AS body, {_CHECKSUM} AS checksum,
             {returned.CHECKSUM} AS counts_checksum, {SPILLED} AS spilled
      FROM reference r {returned.JOIN} {{rows}} LIMIT ?)
"""
_READY: Final = f"WHERE r.queue_id = ? AND r.rank = ? AND r.sequence > ? AND r.due_at_ms IS NULL AND {THERE} ORDER BY r.sequence"
_ALL: Final = f"WHERE r.queue_id = ? AND r.rank = ? AND r.sequence > ? AND {THERE} ORDER BY r.sequence"
_DUE: Final = (
    f"WHERE r.queue_id = ? AND (r.due_at_ms, r.sequence) > (?, ?) AND r.due_at_ms <= ? AND r.due_at_ms IS NOT NULL AND {THERE}"
    " ORDER BY r.due_at_ms, r.sequence"
)
_CHOSEN: Final = "WHERE r.sequence IN (SELECT value FROM json_each(?)) ORDER BY r.sequence {direction}"
_WAITING: Final = "WHERE r.sequence IN (SELECT value FROM json_each(?)) ORDER BY r.due_at_ms, r.sequence"
_EXPIRED: Final = _DUE.replace("due_at_ms", "expires_at_ms")


class Wanted(NamedTuple):
    """Which rows. In delivery order: those of one priority beyond a sequence. By time: beyond (ms, sequence), up to a time."""

    queue_id: int
    #: "ready": of one priority, without a due time; "all": of one priority; "due" and "expired": by that time; "chosen": by ``choice``;
    #: "waiting": by both, in the order of their times.
    kind: str
    priority: int = 0
    after_ms: int = 0
    after: int = 0
    until_ms: int = 0
    rows: int = PAGE_ROWS
    size: int = PAGE_BYTES
    choice: Choice = Choice()
    #: Only what is on disk by then is wanted, as of "ready" and "due" ones.
    on_disk: bool = False

    @property
    def for_consumers(self) -> bool:
        return self.kind in ("ready", "due")


class Page(NamedTuple):
    records: list[ReferenceRecord]
    #: There are further rows behind these.
    more: bool
    #: By time only: the earliest time of what is behind, None where nothing is.
    next_ms: int | None = None
    #: (priority, due_at_ms, cause) of rows that were not what was written and now stand in table quarantine.
    set_aside: list[tuple[int, int | None, int]] = []  # noqa: RUF012 - replaced, never changed
    #: Of those chosen only: the last sequence that was looked at, 0 where there was none.
    last: int = 0
    #: Of those that wait only: where it ended, (due_at_ms, sequence), and how many were looked at.
    cursor: tuple[int, int] = (0, 0)
    looked_at: int = 0


def read_alone(connection: sqlite3.Connection, wanted: Wanted, quarantine_at_ms: int | None = None) -> Page:
    """``read_page``, whose errors are its own: whatever else goes wrong, nothing is left behind and the next page may be read.

    JournalError where SQLite says that the disk or the file is not what it should be: then the broker must stop.
    """
    try:
        return read_page(connection, wanted, quarantine_at_ms)
    except Exception as error:
        failure = _failure(error)
        if failure is not None:
            raise failure from error
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _failure(error: Exception) -> JournalError | None:
    if isinstance(error, JournalError):
        return error
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(f"{error}, found while reading from it")
    if code & 0xFF == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_NOMEM:
        return io_failure(f"{getattr(error, 'sqlite_errorname', '')}, {error}", "read")
    return None


def read_page(connection: sqlite3.Connection, wanted: Wanted, quarantine_at_ms: int | None = None) -> Page:
    """The rows that fit, at least one if there is any.

    A row that is not what was written: JournalError ``journal-damaged``, or, with ``quarantine_at_ms``, moved to that table.
    """
    if wanted.kind == "waiting":
        return _waiting(connection, wanted, quarantine_at_ms)
    numbers_chosen: list[int] = []
    if wanted.kind == "chosen":
        numbers_chosen = chosen(connection, wanted.queue_id, wanted.choice, wanted.after, wanted.rows)
        values: tuple[Any, ...] = (json.dumps(numbers_chosen),)
        rows = _CHOSEN.format(direction="DESC" if wanted.choice.newest_first else "ASC")
    else:
        rows, values = _rows(wanted)
    records, fitting, found, bad = _read(connection, rows, values, wanted)
    set_aside = _quarantined(connection, bad, quarantine_at_ms)
    more = fitting < found or found == wanted.rows
    next_ms = _next_ms(connection, wanted, records) if wanted.kind in ("due", "expired") else None
    return Page(records, more, next_ms, set_aside, numbers_chosen[fitting - 1] if fitting and numbers_chosen else 0)


def _read(
    connection: sqlite3.Connection, rows: str, values: tuple[Any, ...], wanted: Wanted
) -> tuple[list[ReferenceRecord], int, int, list[tuple[int, Damaged]]]:
    """The records that fit; how many rows that was, of how many found; and those that are damaged."""
    lengths: list[int] = json.loads(connection.execute(_LENGTHS.format(rows=rows), (*values, wanted.rows)).fetchone()[0])
    fitting = _fitting(lengths, wanted.size)
    bad: list[tuple[int, Damaged]] = []
    if not fitting:
        return [], 0, 0, bad
    numbers, overlays, bodies = connection.execute(_PAGE.format(rows=rows), (*values, fitting)).fetchone()
    return _records(json.loads(numbers), overlays or b"", bodies or b"", bad), fitting, len(lengths), bad


def _waiting(connection: sqlite3.Connection, wanted: Wanted, quarantine_at_ms: int | None) -> Page:
    after = (wanted.after_ms, wanted.after)
    look: Look = next_waiting(connection, wanted.queue_id, wanted.choice, after, wanted.until_ms, wanted.rows)
    records, fitting, found, bad = _read(connection, _WAITING, (json.dumps(look.sequences),), wanted)
    set_aside = _quarantined(connection, bad, quarantine_at_ms)
    cut = fitting < found
    last = (records[-1].due_at_ms or 0, records[-1].sequence) if records else after
    cursor = last if cut else look.last
    return Page(records, look.more or cut, set_aside=set_aside, cursor=cursor, looked_at=len(records) if cut else look.looked_at)


def _rows(wanted: Wanted) -> tuple[str, tuple[int, ...]]:
    match wanted.kind:
        case "ready":
            return _READY, (wanted.queue_id, 9 - wanted.priority, wanted.after)
        case "all":
            return _ALL, (wanted.queue_id, 9 - wanted.priority, wanted.after)
        case "due":
            return _DUE, (wanted.queue_id, wanted.after_ms, wanted.after, wanted.until_ms)
        case _:
            return _EXPIRED, (wanted.queue_id, wanted.after_ms, wanted.after, wanted.until_ms)


def _fitting(lengths: list[int], size: int) -> int:
    total = 0
    for number, length in enumerate(lengths):
        total += length
        if total > size and number:
            return number
    return len(lengths)


def _records(rows: list[list[Any]], overlays: bytes, bodies: bytes, bad: list[tuple[int, Damaged]]) -> list[ReferenceRecord]:
    records: list[ReferenceRecord] = []
    append, unpack_next = records.append, hops_unpacker()
    overlay_at = body_at = 0
    for (
        queue_id,
        rank,
        sequence,
        message_id,
        delivery_count,
        failed,
        assigned,
        state,
        due_at_ms,
        expires_at_ms,
        cause,
        redrive,
        entered_at_ms,
        shared,
        overlay_length,
        body_length,
        checksum,
        counts_checksum,
        spilled,
    ) in rows:
        body_from, body_at = body_at, body_at + (body_length or 0)
        overlay_from, overlay_at = overlay_at, overlay_at + (overlay_length or 0)
        try:
            if body_length is None:
                raise Damaged("names a body that is not there")
            # Most often both are one number, and one object is enough.
            number = sequence if message_id == sequence else message_id
            message = unpack_message(bodies[body_from:body_at], checksum, number)
            hops = unpack_next(overlays[overlay_from:overlay_at], sequence) if overlay_length else None
            check_counts(queue_id, rank, sequence, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms, counts_checksum)
        except Damaged as error:
            bad.append((sequence, error))
            continue
        counts = (delivery_count, failed, assigned, state)
        times = (due_at_ms, expires_at_ms, cause, redrive, entered_at_ms)
        append(make(ReferenceRecord, (queue_id, 9 - rank, sequence, *counts, *times, hops, message, shared == 1, spilled == 1)))
    return records


def _quarantined(connection: sqlite3.Connection, bad: list[tuple[int, Damaged]], at_ms: int | None) -> list[tuple[int, int | None, int]]:
    set_aside: list[tuple[int, int | None, int]] = []
    for sequence, why in bad:
        row = connection.execute(
            f"SELECT {quarantine.REFERENCE_COLUMNS} FROM reference r {returned.JOIN} WHERE sequence = ?", (sequence,)
        ).fetchone()
        if at_ms is None:
            raise damaged(quarantine.sentence(row, why)) from why
        connection.execute("BEGIN IMMEDIATE")
        quarantine.set_aside(connection, row, why, at_ms)
        commit(connection)
        set_aside.append((9 - row[1], row[8], row[15] or 0))
    return set_aside


def _next_ms(connection: sqlite3.Connection, wanted: Wanted, records: list[ReferenceRecord]) -> int | None:
    column = "due_at_ms" if wanted.kind == "due" else "expires_at_ms"
    if records:
        last = records[-1]
        at_ms, sequence = (last.due_at_ms if wanted.kind == "due" else last.expires_at_ms) or 0, last.sequence
    else:
        at_ms, sequence = wanted.after_ms, wanted.after
    found = connection.execute(
        f"SELECT {column} FROM reference r WHERE queue_id = ? AND ({column}, sequence) > (?, ?) AND {column} IS NOT NULL AND {THERE}"
        f" ORDER BY {column}, sequence LIMIT 1",
        (wanted.queue_id, at_ms, sequence),
    ).fetchone()
    return None if found is None else int(found[0])
