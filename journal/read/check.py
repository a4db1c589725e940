"""Is the journal whole? Reads everything, changes nothing; on a stopped journal or beside a running broker.

It runs in steps that each hold a snapshot no longer than they must, except the counts of the minute equation, which are of one
moment. A running broker is not disturbed beyond a WAL that grows while a step lasts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..commit.packed_commits import problems
from ..errors import JournalError
from ..migrations import VERSION, version_of
from ..store import returned
from ..store.commits import missing_commits, read_last_commit
from ..store.directory import DATABASE_NAME
from ..store.history_rows import OUTCOMES, VALID_ENTRIES
from ..store.packing import FIRST_RANK, Damaged, check_counts, unpack, unpack_hops, unpack_message
from ..upkeep.lost import CAME, WENT, durable
from ..upkeep.spilled import LASTING as THERE
from ..upkeep.tombstones import DAMAGED, NO_ROW
from .queries import brought_up, lacks_something, open_as_it_is

#: Called with (step, done, total); total 0: not known.
Progress = Callable[[str, int, int], None]

_PAGE_ROWS = 100
#: A page ends with the body that passes this.
_PAGE_BODY_BYTES = 4 << 20
#: Findings of one kind that are spelled out; the rest are counted.
_MOST_SHOWN = 20


@dataclass(slots=True)
class CheckReport:
    """What was looked at and what is wrong with it: one sentence for each finding, none when all is well."""

    directory: Path
    version: int = 0
    #: table -> rows looked at
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def _silent(step: str, done: int, total: int) -> None:
    """Nobody watches."""


def check(directory: Path, progress: Progress = _silent, *, quick: bool = False) -> CheckReport:
    """Check pages (``quick``: without comparing indexes to their tables), rows, checksums and the sums between them.

    It holds no snapshot while ``progress`` is called, so that may take its time.

    Raises JournalError ``journal-missing``, ``journal-newer`` or ``journal-full``; damage of any kind is a finding, not an exception.
    """
    report = CheckReport(directory)
    last_commit = read_last_commit(directory)
    try:
        connection = open_as_it_is(directory)
    except JournalError as error:
        if error.code != "journal-damaged":
            raise
        report.problems.append(error.message)
        return report
    try:
        missing = missing_commits(connection, last_commit)
        if missing is not None:
            report.problems.append(f"{missing}.")
        report.version = version_of(connection)
        _run(_pages_quick if quick else _pages, connection, report, progress)
        _run(_packed, connection, report, progress)
        if lacks_something(connection, directory):
            try:
                connection = brought_up(connection, go_on=True)
            except sqlite3.Error as error:
                report.problems.append(f"Its tables cannot be brought up to version {VERSION}: {error}.")
                return report
        for step in (_references, _shared_bodies, _history, _sums):
            _run(step, connection, report, progress)
    finally:
        connection.close()
    return report


Step = Callable[[sqlite3.Connection, CheckReport, Progress], None]


def _run(step: Step, connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    try:
        step(connection, report, progress)
    except sqlite3.DatabaseError as error:
        report.problems.append(f"{DATABASE_NAME} cannot be read through ({step.__name__.strip('_')}): {error}.")


def _packed(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    report.problems += [f"{problem}." for problem in problems(connection)]


def _pages(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    _pragma(connection, "integrity_check", report, progress)


def _pages_quick(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    _pragma(connection, "quick_check", report, progress)


def _pragma(connection: sqlite3.Connection, name: str, report: CheckReport, progress: Progress) -> None:
    progress("pages", 0, 0)
    for (finding,) in connection.execute(f"PRAGMA {name}({_MOST_SHOWN})").fetchall():
        if finding != "ok":
            report.problems.append(f"SQLite's {name}: {finding}.")


def _paged(
    connection: sqlite3.Connection, table: str, key: str, columns: str, where: str = "true", join: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Rows r in key order, a page at a time by key, so that no snapshot stands for the whole table and no page holds many bodies."""
    last = -(2**63)
    rows = f"FROM {table} r {join} WHERE {where} AND {key} > :last"
    sizes = f"SELECT {key} AS k, coalesce(length(message_blob), 0) AS n {rows} ORDER BY {key} LIMIT {_PAGE_ROWS}"
    passed = f"SELECT k, sum(n) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING) - n AS passed FROM ({sizes})"
    until = f"SELECT max(k) FROM ({passed}) WHERE passed < {_PAGE_BODY_BYTES}"
    sql = f"SELECT {key}, {columns} {rows} AND {key} <= ({until}) ORDER BY {key}"
    while page := connection.execute(sql, {"last": last}).fetchall():
        yield from page
        last = page[-1][0]


class _Findings:
    """Adds the first few findings of a step, and how many more there were."""

    def __init__(self, report: CheckReport) -> None:
        self._report = report
        self._count = 0

    def add(self, sentence: str) -> None:
        self._count += 1
        if self._count <= _MOST_SHOWN:
            self._report.problems.append(sentence)

    def close(self) -> None:
        if self._count > _MOST_SHOWN:
            self._report.problems.append(f"… and {self._count - _MOST_SHOWN} more of this kind.")


def _references(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    """Each reference: its queue is there, its counts are possible, its body is what was written. What is gone has its row still."""
    findings = _Findings(report)
    seen = 0
    total = connection.execute(f"SELECT count(*) FROM reference r WHERE {THERE}").fetchone()[0]
    columns = (
        f"queue_id, rank, message_id, {returned.COUNTS}, overlay_blob, message_blob, checksum,"
        f" state, due_at_ms, expires_at_ms, {returned.CHECKSUM}"
    )
    for row in _paged(connection, "reference", "sequence", columns, THERE, returned.JOIN):
        seen += 1
        if seen % _PAGE_ROWS == 0:
            progress("messages", seen, total)
        problem = _reference_problem(connection, row)
        if problem:
            findings.add(f"Message {row[3]} in queue {row[1]} (row {row[0]} of table reference) {problem}.")
    for (block,) in connection.execute(DAMAGED):
        findings.add(f"Which of rows {block << 5} to {(block << 5) + 31} of table reference are gone fails its checksum.")
    for (sequence,) in connection.execute(NO_ROW):
        findings.add(f"Row {sequence} of table reference is said to be gone and is not there.")
    for (sequence,) in connection.execute(returned.NO_REFERENCE):
        findings.add(f"Row {sequence} of table returned counts a message that is not there.")
    findings.close()
    report.rows["reference"] = seen
    progress("messages", seen, seen)


def _reference_problem(connection: sqlite3.Connection, row: tuple[Any, ...]) -> str | None:
    sequence, queue_id, rank, message_id, delivery_count, failed, assigned, overlay, blob, checksum, state, due, expires, counted = row
    if not FIRST_RANK <= rank <= 9:
        return f"has rank {rank}"
    if min(delivery_count, failed, assigned) < 0:
        return "has a count below zero"
    try:
        check_counts(queue_id, rank, sequence, delivery_count, failed, assigned, state, due, expires, counted)
        if overlay is not None:
            unpack_hops(overlay, sequence)
        if blob is not None:
            unpack_message(blob, checksum, message_id)
    except Damaged as error:
        return str(error)
    if blob is None and not _there(connection, "SELECT 1 FROM message WHERE message_id = ?", message_id, sequence):
        return "names a body that is not there"
    # What a deleted queue held is removed when there is time; the queue's row stays until then.
    if not _there(connection, "SELECT 1 FROM queue WHERE queue_id = ?", queue_id, sequence):
        return "stands in a queue that is not there"
    return None


def _there(connection: sqlite3.Connection, sql: str, key: int, sequence: int) -> bool:
    """Whether a row is there; or the reference that needs it has gone meanwhile, beside a running broker."""
    if connection.execute(sql, (key,)).fetchone():
        return True
    return connection.execute(f"SELECT 1 FROM reference r WHERE sequence = ? AND {THERE}", (sequence,)).fetchone() is None


def _shared_bodies(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    findings = _Findings(report)
    seen = 0
    for message_id, blob, checksum in _paged(connection, "message", "message_id", "message_blob, checksum"):
        seen += 1
        try:
            unpack_message(blob, checksum, message_id)
        except Damaged as error:
            findings.add(f"The shared body of message {message_id} {error}.")
    findings.close()
    report.rows["message"] = seen
    progress("shared bodies", seen, seen)


def _history(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    findings = _Findings(report)
    report.rows["attempt"] = _history_rows(connection, "failure", "attempt", findings, progress)
    report.rows["outcome"] = _history_rows(connection, "outcome", "outcome", findings, progress)
    findings.close()


def _history_rows(connection: sqlite3.Connection, table: str, name: str, findings: _Findings, progress: Progress) -> int:
    count = last = 0
    columns = f"{table}_id, first_message, last_message, {VALID_ENTRIES}, {table}_blob"
    page = f"SELECT {columns} FROM {table} WHERE {table}_id > ? ORDER BY {table}_id LIMIT {_PAGE_ROWS}"
    while rows := connection.execute(page, (last,)).fetchall():
        for number, first_message, last_message, entries, blob in rows:
            what = f"The {name} of message {first_message} (row {number} of table {table})"
            messages = _messages(entries)
            count += len(messages)
            # Single ones may have gone since it was written.
            if not messages or min(messages) < first_message or max(messages) > last_message:
                findings.add(f"{what} names other messages.")
            try:
                if not isinstance(unpack(blob), dict):
                    raise Damaged("holds no map")
            except Damaged as error:
                findings.add(f"{what} {error}.")
        last = rows[-1][0]
        progress(f"{name}s", count, 0)
    return count


def _messages(entries: str) -> list[int]:
    try:
        return [int(message_id) for message_id, _, *_ in json.loads(entries)]
    except (ValueError, TypeError):
        return []


_EQUATION = f"""
SELECT q.name, total.came, total.went,
       (SELECT count(*) FROM reference r WHERE r.queue_id = q.queue_id AND {THERE}),
       (SELECT count(*) FROM quarantine x WHERE x.queue_id = q.queue_id)
FROM queue q JOIN (
  SELECT queue_id, sum({durable(CAME)} + kept) AS came, sum({durable(WENT)}) AS went
  FROM minute GROUP BY queue_id) AS total USING (queue_id)
ORDER BY q.name
"""
# What is no list of entries is reported elsewhere.
_OUTCOMES = OUTCOMES.replace("outcome.stays", VALID_ENTRIES)
_BOTH = f"SELECT r.message_id, r.queue_id, o.outcome FROM {_OUTCOMES} o JOIN reference r ON r.sequence = o.sequence WHERE {THERE} LIMIT 20"
_BELOW_ZERO = "SELECT count(*) FROM minute WHERE min(sent, moved_in, succeeded, dead_lettered, expired, dropped, purged, moved_out) < 0"


def _sums(connection: sqlite3.Connection, report: CheckReport, progress: Progress) -> None:
    """What came into each queue = what left it + what is there; of one moment."""
    progress("sums", 0, 0)
    connection.execute("BEGIN")
    try:
        report.rows["quarantine"] = connection.execute("SELECT count(*) FROM quarantine").fetchone()[0]
        rows = connection.execute(_EQUATION).fetchall()
        below = connection.execute(_BELOW_ZERO).fetchone()[0]
        doubled = connection.execute(_BOTH).fetchall()
        uncounted = connection.execute(
            f"SELECT DISTINCT queue_id FROM reference r WHERE queue_id NOT IN (SELECT queue_id FROM minute) AND {THERE}"
        ).fetchall()
    finally:
        connection.execute("ROLLBACK")
    for name, came, went, here, set_aside in rows:
        if came != went + here + set_aside:
            report.problems.append(f"Queue {name}: {came} came, {went} left and {here + set_aside} are there, which does not add up.")
    if below:
        report.problems.append(f"{below} rows of table minute hold a count below zero.")
    for message_id, queue_id, outcome in doubled:
        report.problems.append(f"Message {message_id} is {outcome} and still stands in queue {queue_id}.")
    for (queue_id,) in uncounted:
        report.problems.append(f"Queue {queue_id} holds messages that were never counted in.")
