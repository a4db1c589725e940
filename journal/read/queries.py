"""Short reads by key through a connection of their own, read-only: the journal's writer never waits for them.

What they see was written, up to one batch and what small ones wrote within 50 ms behind the broker; the last batch's sync may still be
under way.
For a thread (asyncio.to_thread) or the command line.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .. import fingerprint
from ..commit import packed_commits
from ..commit.batch_writer import merge_packed
from ..commit.writer_thread import is_full
from ..contract import (
    ON_HOLD_MS,
    DeadLetters,
    Failed,
    FaultDescription,
    FaultLife,
    MessageRecord,
    PolicyInForce,
    QueueStat,
)
from ..declarations import DeclarationRecord
from ..errors import JournalError
from ..migrations import VERSION, bring_up, version_of
from ..store import returned
from ..store.directory import DATABASE_NAME, damaged, foreign, no_broker_runs
from ..store.history_rows import ATTEMPTS, ATTEMPTS_OF_MESSAGE, OUTCOMES, OUTCOMES_OF_MESSAGE
from ..store.packing import Damaged, check_counts, unpack, unpack_hops, unpack_message
from ..store.sqlite import APPLICATION_ID
from ..upkeep.lost import transient_here
from ..upkeep.tombstones import THERE
from . import events, failures, faults, waiting
from .choosing import Choice, chosen, count
from .old_deaths import Cursor, OldDeath, old_deaths

_BUSY_S = 5.0
_NO_ROOM = (
    "This journal has to be read from a copy, and the directory for temporary files has no room for one.",
    "Start the broker on it once, or name a directory with room for all of it in SQLITE_TMPDIR.",
)
_COLUMNS = (
    f"SELECT sequence, queue_id, rank, message_id, {returned.COUNTS}, state, due_at_ms, expires_at_ms, entered_at_ms,"
    f" overlay_blob, message_blob, checksum, {returned.REDRIVE}, {returned.CHECKSUM} FROM reference r"
)
_REFERENCE = f"{_COLUMNS} {returned.JOIN}"
# By key: the entries that attempts name, and moved or shared references. Written out so that each uses its index.
_BY_ENTRY = (
    f"{_REFERENCE} WHERE sequence IN (SELECT sequence FROM {ATTEMPTS} WHERE {ATTEMPTS_OF_MESSAGE}) AND message_id = :message_id AND {THERE}"
)
_BY_MESSAGE = (
    f"{_COLUMNS} INDEXED BY reference_message {returned.JOIN}"
    f" WHERE message_id = :message_id AND (overlay_blob IS NOT NULL OR message_blob IS NULL) AND {THERE}"
)
_BY_NUMBER = f"{_REFERENCE} WHERE sequence = :message_id AND message_id = :message_id AND {THERE}"
#: Outcomes of an entry after which the message may be in a queue under a number that no index leads to.
_EDITS = (
    "SELECT message_id, original, queue_id, at_ms FROM edit WHERE message_id = :message_id"
    " UNION ALL SELECT message_id, original, queue_id, at_ms FROM edit WHERE original = :message_id ORDER BY message_id"
)
_GOES_ON = ("redriven", "moved")
# What never failed, moved or was shared has its only reference without an index: one scan, and only when nothing else is known of it.
_BY_SCAN = f"{_REFERENCE} WHERE message_id = :message_id AND {THERE}"
_ATTEMPTS = (
    f"SELECT message_id, sequence, attempt, queue_id, at_ms, failure_blob FROM {ATTEMPTS}"
    f" WHERE {ATTEMPTS_OF_MESSAGE} ORDER BY +at_ms, sequence, attempt"
)
_LAST_ATTEMPT = (
    f"SELECT message_id, sequence, attempt, queue_id, at_ms, failure_blob FROM {ATTEMPTS}"
    f" WHERE {ATTEMPTS_OF_MESSAGE} AND sequence = :sequence ORDER BY attempt DESC LIMIT 1"
)
_OUTCOMES = (
    f"SELECT sequence, queue_id, at_ms, outcome, outcome_blob, sent_at_ms, entered_at_ms FROM {OUTCOMES} WHERE {OUTCOMES_OF_MESSAGE}"
    " ORDER BY +at_ms, sequence"
)


def open_read_only(directory: Path) -> sqlite3.Connection:
    """The journal in today's version. Raises JournalError: ``journal-missing``, ``journal-newer``, ``journal-damaged``."""
    connection = open_as_it_is(directory)
    try:
        return brought_up(connection) if lacks_something(connection, directory) else connection
    except sqlite3.Error as error:
        connection.close()
        raise damaged(str(error)) from error


def lacks_something(connection: sqlite3.Connection, directory: Path) -> bool:
    """Whether its tables are of an earlier version, or a broker that was killed left something packed."""
    return version_of(connection) != VERSION or (packed_commits.there_are(connection) and no_broker_runs(directory))


def brought_up(older: sqlite3.Connection, go_on: bool = False) -> sqlite3.Connection:
    """A copy in today's version with nothing packed; ``older`` is closed, and nothing of its files changes. ``go_on``: see merge_packed.

    The copy has no name: SQLite removes it with its connection, and keeps it in the directory for temporary files.

    Raises sqlite3.Error, and JournalError ``journal-damaged`` and ``journal-full``.
    """
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        older.backup(copy)
        bring_up(copy)
        merge_packed(copy, go_on)
        copy.execute("PRAGMA query_only = ON")
    except BaseException as error:
        copy.close()
        if isinstance(error, sqlite3.Error) and is_full(error):
            raise JournalError("journal-full", *_NO_ROOM) from error
        raise
    older.close()
    return copy


def open_as_it_is(directory: Path) -> sqlite3.Connection:
    """Of whatever version up to today's; raises as ``open_read_only``."""
    path = directory / DATABASE_NAME
    if not path.is_file():
        raise JournalError("journal-missing", f"There is no journal in {directory}.", "Name the data directory of a broker with --data.")
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise damaged(str(error)) from error
    try:
        _check_identity(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_identity(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = version_of(connection)
    except sqlite3.DatabaseError as error:
        raise damaged(str(error)) from error
    if application_id != APPLICATION_ID:
        raise foreign()
    if version > VERSION:
        raise JournalError(
            "journal-newer", f"The journal has version {version} and this Homing knows versions up to {VERSION}.", "Use a later Homing."
        )


class JournalReader:
    """Read-only questions. Usable from any thread, one at a time. What is only shown to people (``history``, ``queues``) comes as the maps
    that calls and ``--json`` show.
    """

    def __init__(self, directory: Path) -> None:
        self._connection = open_read_only(directory)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def broker_id(self) -> str:
        with self._snapshot() as connection:
            return str(connection.execute("SELECT value FROM meta WHERE key = 'broker_id'").fetchone()[0])

    def declarations(self, kind: str) -> list[DeclarationRecord]:
        """By name. Raises JournalError."""
        with self._snapshot() as connection:
            found = connection.execute("SELECT kind, name, content_blob FROM declaration WHERE kind = ? ORDER BY name", (kind,)).fetchall()
        try:
            return [DeclarationRecord(kind, name, unpack(blob)) for kind, name, blob in found]
        except Damaged as error:
            raise damaged(f"a {kind} {error}") from error

    def committed(self, transaction_id: str) -> bool:
        """Whether this transaction is among the committed ones that are remembered (24 h)."""
        with self._snapshot() as connection:
            return connection.execute("SELECT 1 FROM committed WHERE transaction_id = ?", (transaction_id,)).fetchone() is not None

    def history(self, message_id: int) -> dict[str, Any] | None:
        """Everything known of one message, or None: ``{message_id, message, references, attempts, outcomes, edits}``.

        ``message``: address, body, properties, priority, sent_at_ms, expires_at_ms, producer; None once it has left every queue.
        ``references``: where it is now, with queue, priority, counts, state, due_at_ms, on_hold, expires_at_ms, entered_at_ms,
        ``redrive`` (the job that sent it back; None: none did) and ``hops``, newest first. ``attempts``: message_id, sequence, attempt,
        queue_id, queue, at_ms and the fields of AttemptDetail, oldest first. ``outcomes``: sequence, queue, at_ms, outcome and the detail
        of OutcomeDetail, oldest first. ``edits``: message_id, original, queue and at_ms of the edit that made
        it, and of those of it. Raises ``journal-damaged`` when what is stored is not what was written.
        """
        with self._snapshot() as connection:
            names = _QueueNames(connection)
            attempts = [_attempt(row, names) for row in connection.execute(_ATTEMPTS, {"message_id": message_id})]
            outcomes = [_outcome(row, names) for row in connection.execute(_OUTCOMES, {"message_id": message_id})]
            may_be_anywhere = all(each["outcome"] in _GOES_ON for each in outcomes)
            message, references = self._references(connection, message_id, names, scan=may_be_anywhere)
            for each in attempts:
                each["consumer_policy"] = failures.policy(connection, each.get("policy", "")).get("consumer_policy")
            edits = [_edit(row, names) for row in connection.execute(_EDITS, {"message_id": message_id})]
        if not (attempts or outcomes or references or edits):
            return None
        found = {"references": references, "attempts": attempts, "outcomes": outcomes, "edits": edits}
        return {"message_id": message_id, "message": message, **found}

    def last_attempts(self, entries: Iterable[tuple[int, int]]) -> list[dict[str, Any] | None]:
        """Of each (message_id, sequence) the last attempt on record, as ``history`` tells it."""
        with self._snapshot() as connection:
            names = _QueueNames(connection)
            rows = [
                connection.execute(_LAST_ATTEMPT, {"message_id": message_id, "sequence": sequence}).fetchone()
                for message_id, sequence in entries
            ]
            return [None if row is None else _attempt(row, names) for row in rows]

    def _references(
        self, connection: sqlite3.Connection, message_id: int, names: _QueueNames, scan: bool
    ) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        found = {row[0]: row for sql in (_BY_ENTRY, _BY_MESSAGE, _BY_NUMBER) for row in connection.execute(sql, {"message_id": message_id})}
        if not found and scan:
            found = {row[0]: row for row in connection.execute(_BY_SCAN, {"message_id": message_id})}
        message: dict[str, Any] | None = None
        references = []
        for row in (found[sequence] for sequence in sorted(found)):
            references.append(_reference(row, names))
            message = message or _message(connection, row)
        return message, references

    def fault_lives(self, now_ms: int, fault_ids: Collection[int]) -> dict[int, FaultLife]:
        """See faults.lives."""
        with self._snapshot() as connection:
            return faults.lives(connection, now_ms, fault_ids)

    def dead(self) -> list[DeadLetters]:
        """See faults.dead."""
        with self._snapshot() as connection:
            return faults.dead(connection)

    def dead_since(self, queue_ids: Iterable[int]) -> dict[int, tuple[int, int]]:
        """See faults.dead_since."""
        with self._snapshot() as connection:
            return faults.dead_since(connection, queue_ids)

    def events(self, kinds: Sequence[str], since_ms: int, after: int, limit: int) -> list[events.Event]:
        """See events.events."""
        with self._snapshot() as connection:
            return events.events(connection, kinds, since_ms, after, limit)

    def chosen(self, queue_id: int, choice: Choice, after: int, limit: int) -> list[int]:
        """See choosing.chosen."""
        with self._snapshot() as connection:
            return chosen(connection, queue_id, choice, after, limit)

    def message_ids(self, sequences: Iterable[int]) -> dict[int, int]:
        """Of those that are in a queue."""
        sql = f"SELECT sequence, message_id FROM reference r WHERE sequence = ? AND {THERE}"
        with self._snapshot() as connection:
            rows = (connection.execute(sql, (sequence,)).fetchone() for sequence in sequences)
            return dict(row for row in rows if row is not None)

    def count_chosen(self, queue_id: int, choice: Choice) -> dict[tuple[int, str | None], int]:
        """See choosing.count."""
        with self._snapshot() as connection:
            return count(connection, queue_id, choice)

    def failures(self, since_ms: int, most: int) -> Iterator[Failed]:
        """Rows of deliveries that failed since then, the latest first. Each page is of a moment of its own."""
        before: failures.Cursor | None = failures.FIRST
        policies: dict[str, PolicyInForce] = {}
        while before is not None and most > 0:
            with self._snapshot() as connection, _reading("the history"):
                found, before = failures.page(connection, since_ms, before, policies)
            yield from found[:most]
            most -= len(found)

    def old_deaths(self, after: Cursor, limit: int) -> tuple[list[OldDeath], Cursor | None]:
        """See old_deaths.py."""
        with self._snapshot() as connection:
            return old_deaths(connection, after, limit, _QueueNames(connection))

    def fault_hours(self, fault_ids: list[int], now_ms: int) -> dict[int, list[int]]:
        """See faults.hours."""
        with self._snapshot() as connection:
            return faults.hours(connection, fault_ids, now_ms)

    def describe_fault(self, fault_ids: list[int], now_ms: int) -> FaultDescription:
        """See faults.describe."""
        with self._snapshot() as connection:
            return faults.describe(connection, fault_ids, now_ms)

    def first_and_last(self, queue_ids: Iterable[int], now_ms: int) -> dict[int, tuple[int, int]]:
        """See waiting.first_and_last."""
        with self._snapshot() as connection:
            return waiting.first_and_last(connection, queue_ids, now_ms)

    def calendar(self, queue_ids: Iterable[int], now_ms: int, parts: Sequence[tuple[int, int]]) -> dict[int, int]:
        """See waiting.calendar."""
        with self._snapshot() as connection:
            return waiting.calendar(connection, queue_ids, now_ms, parts)

    def counts(self, queue_id: int, since_ms: int, width_minutes: int) -> list[dict[str, int]]:
        """The minute counts of a queue added up by so many minutes each, oldest first; ``at_ms``: when each begins. What is empty is left
        out."""
        names = [column.name.lower() for column in QueueStat]
        sums = ", ".join(f"sum({name})" for name in names)
        sql = f"SELECT minute / ? AS part, {sums} FROM minute WHERE queue_id = ? AND minute >= ? GROUP BY part ORDER BY part"
        with self._snapshot() as connection:
            rows = connection.execute(sql, (width_minutes, queue_id, since_ms // 60_000)).fetchall()
        return [{"at_ms": part * width_minutes * 60_000, **dict(zip(names, counts, strict=True))} for part, *counts in rows]

    def queues(self) -> list[dict[str, Any]]:
        """Live durable queues by name: the declaration, ``messages`` (durable ones, in any state), ``scheduled`` (those with a due
        time), ``totals``, the minute counts added up under their column names, and ``transient``: by these counts, how many are here that
        are not durable."""
        totals = ", ".join(f"coalesce(sum({column.name.lower()}), 0)" for column in QueueStat)
        with self._snapshot() as connection:
            found = []
            for row in connection.execute("SELECT * FROM queue WHERE deleted_at_ms IS NULL ORDER BY name").fetchall():
                queue_id, name, address, routing_type, selector, durable, auto_created, paused, options, created_at_ms, *_ = row
                sums = connection.execute(f"SELECT {totals} FROM minute WHERE queue_id = ?", (queue_id,)).fetchone()
                counted = {column.name.lower(): total for column, total in zip(QueueStat, sums, strict=True)}
                found.append(
                    {
                        "queue_id": queue_id,
                        "queue": name,
                        "address": address,
                        "routing_type": routing_type,
                        "selector": selector,
                        "durable": bool(durable),
                        "auto_created": bool(auto_created),
                        "paused": bool(paused),
                        "options": _unpack(options, f"the options of queue {name}"),
                        "created_at_ms": created_at_ms,
                        "messages": _count(connection, "queue_id = ?", queue_id),
                        "scheduled": _count(connection, "queue_id = ? AND due_at_ms IS NOT NULL", queue_id),
                        "totals": counted,
                        "transient": transient_here(counted),
                    }
                )
            return found

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """One short read transaction, so that all parts of an answer are of one moment."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("ROLLBACK")
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.ProgrammingError):
                    raise
                raise damaged(str(error)) from error


class _QueueNames:
    """Names of queues, deleted ones among them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, str | None] = {}

    def __getitem__(self, queue_id: int) -> str | None:
        if queue_id not in self._known:
            row = self._connection.execute("SELECT name FROM queue WHERE queue_id = ?", (queue_id,)).fetchone()
            self._known[queue_id] = row and row[0]
        return self._known[queue_id]


def _count(connection: sqlite3.Connection, where: str, queue_id: int) -> int:
    return int(connection.execute(f"SELECT count(*) FROM reference r WHERE {where} AND {THERE}", (queue_id,)).fetchone()[0])


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """What is damaged in here is reported as ``what``."""
    try:
        yield
    except Damaged as error:
        raise damaged(f"{what} {error}") from error


def _unpack(blob: bytes, what: str) -> Any:
    with _reading(what):
        return unpack(blob)


def _attempt(row: tuple[Any, ...], names: _QueueNames) -> dict[str, Any]:
    message_id, sequence, attempt, queue_id, at_ms, blob = row
    detail: dict[str, Any] = _unpack(blob, f"attempt {attempt} of message {message_id}")
    if detail.get("fault"):
        detail["fault"]["fingerprint"] = fingerprint.of_fault(detail["outcome"], names[queue_id] or "", detail["fault"])
    record = {
        "message_id": message_id,
        "sequence": sequence,
        "attempt": attempt,
        "queue_id": queue_id,
        "queue": names[queue_id],
        "at_ms": at_ms,
    }
    return record | detail


def _outcome(row: tuple[Any, ...], names: _QueueNames) -> dict[str, Any]:
    sequence, queue_id, at_ms, outcome, blob, sent_at_ms, entered_at_ms = row
    detail: dict[str, Any] = _unpack(blob, f"the outcome of entry {sequence}")
    times = {"sent_at_ms": sent_at_ms, "entered_at_ms": entered_at_ms}
    known = {name: ms for name, ms in times.items() if ms is not None}
    return {"sequence": sequence, "queue_id": queue_id, "queue": names[queue_id], "at_ms": at_ms, "outcome": outcome, **known} | detail


def _edit(row: tuple[Any, ...], names: _QueueNames) -> dict[str, Any]:
    message_id, original, queue_id, at_ms = row
    return {"message_id": message_id, "original": original, "queue": names[queue_id], "at_ms": at_ms}


def _reference(row: tuple[Any, ...], names: _QueueNames) -> dict[str, Any]:
    sequence, queue_id, rank, message_id, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms, entered_at_ms, *_ = row
    with _reading(f"entry {sequence} of message {message_id}"):
        check_counts(queue_id, rank, sequence, delivery_count, failed, assigned, state, due_at_ms, expires_at_ms, row[-1])
    return {
        "sequence": sequence,
        "queue_id": queue_id,
        "queue": names[queue_id],
        "priority": 9 - rank,
        "delivery_count": delivery_count,
        "failed": failed,
        "assigned": assigned,
        "state": state,
        "due_at_ms": None if due_at_ms == ON_HOLD_MS else due_at_ms,
        "on_hold": due_at_ms == ON_HOLD_MS,
        "expires_at_ms": expires_at_ms,
        "entered_at_ms": entered_at_ms,
        "redrive": abs(row[14]) or None,
        "hops": _hops(row),
        "transient": False,
    }


def _hops(row: tuple[Any, ...]) -> list[dict[str, Any]]:
    sequence, message_id, overlay = row[0], row[3], row[11]
    if overlay is None:
        return []
    with _reading(f"entry {sequence} of message {message_id}"):
        return [{**detail, "message_id": message_id, "sequence": ended} for ended, detail in unpack_hops(overlay, sequence)]


def _message(connection: sqlite3.Connection, row: tuple[Any, ...]) -> dict[str, Any]:
    message_id, blob, checksum = row[3], row[12], row[13]
    if blob is None:
        shared = connection.execute("SELECT message_blob, checksum FROM message WHERE message_id = ?", (message_id,)).fetchone()
        if shared is None:
            raise damaged(f"the body of message {message_id} is not there")
        blob, checksum = shared
    with _reading(f"the body of message {message_id}"):
        message: MessageRecord = unpack_message(blob, checksum, message_id)
    found = message._asdict()
    del found["message_id"]
    return found
