"""How long things outlive their message, and giving pages back. Each step is bounded and a transaction of its own.

By age: attempts and outcomes older than the retention go, but an attempt stays as long as its message is still in a queue.
Counts by consumer go by age, and the oldest where there are very many: connections that come and go have a name each.
By size: above ``history_max_bytes`` the oldest go, whosever they are. Sizes are summed and rows deleted by one statement
each: a row at a time would wait for the interpreter's lock at each row.
"""

from __future__ import annotations

import sqlite3
from math import inf

from ..commit.fault_changes import FAULT_SLOT_MS
from ..commit.fault_groups import fold_slots
from ..commit.history_writer import FAILURE_BYTES
from ..commit.writer_state import WriterState
from ..contract import QueueStat
from ..options import JournalOptions
from ..store.commits import commit
from ..store.history_rows import VALID_ENTRIES
from ..store.sqlite import PAGE_BYTES
from . import leftovers
from .tombstones import THERE

_STEP_ROWS = 4_096
#: Rows a step of tables failure and outcome, each with up to a thousand entries.
_HISTORY_ROWS = 256
_PERIOD_S = 60.0
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
#: Pages moved in one step, and the free pages worth the work: a quarter of the file and 16 MiB.
_VACUUM_PAGES = 64
#: How often free pages are counted while there are few.
_LOOK_S = 2.0
_VACUUM_LEAST_PAGES = (16 << 20) // PAGE_BYTES

#: (older than so many retentions, one row for so many minutes): an hour, a day, thirty days; counted from 1970.
_FOLDS = ((1, 60), (8, 1_440), (104, 43_200))
#: Rows of counts by consumer that are kept; about 50 bytes each.
_SERVED_ROWS = 500_000
#: Queues whose counts are folded in one step.
_FOLD_QUEUES = 64
_COLUMNS = [column.name.lower() for column in QueueStat]
_FOLD = (
    "INSERT INTO minute SELECT queue_id, minute - minute % :width, " + ", ".join(f"sum({name})" for name in _COLUMNS) + " FROM minute"
    " WHERE queue_id = :queue_id AND minute <= :last AND minute % :width != 0 GROUP BY 2"
    " ON CONFLICT (queue_id, minute) DO UPDATE SET " + ", ".join(f"{name} = {name} + excluded.{name}" for name in _COLUMNS)
)

#: From when on the history is whole: it only ever grows.
_HISTORY_FROM = "INSERT INTO meta VALUES ('history_from_ms', ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"

#: An entry of table failure whose message is in a queue.
_ALIVE = (
    f"(EXISTS (SELECT 1 FROM reference r WHERE r.sequence = json_extract(entry.value, '$[1]') AND {THERE})"
    " OR EXISTS (SELECT 1 FROM reference r INDEXED BY reference_message"
    f" WHERE r.message_id = json_extract(entry.value, '$[0]') AND (r.overlay_blob IS NOT NULL OR r.message_blob IS NULL) AND {THERE}))"
)


class Retention:
    """Where the sweep stands. ``due`` is cheap and may be asked after every batch. ``now_s``: of a clock that only goes forward."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options
        self._next_s = self._vacuum_next_s = -inf
        self._giving_back = False
        #: Attempts up to here were looked at in this sweep: (at_ms, failure_id).
        self._cursor: tuple[int, int] | None = None
        #: The latest time of what this step takes out of the history; 0: nothing.
        self._forgot_to_ms = 0
        #: Counts are folded up to here (minutes since 1970), in a pass over the queues that has come as far as this one.
        self._folded_to = -1
        self._folded_queue = -1

    def due(self, now_s: float) -> bool:
        return self._giving_back or now_s >= self._next_s

    def step(self, connection: sqlite3.Connection, state: WriterState, now_s: float) -> int:
        """Remove up to a few thousand rows in one transaction. Returns how many went; when all is done, rests for a minute."""
        if now_s < self._next_s:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        before, forgotten, duplicates = state.history_bytes, dict(state.forgotten), dict(state.duplicates)
        self._forgot_to_ms = 0
        try:
            removed, more = self._history(connection, state)
            aged_ms, marks_aged_ms = self._options.history_retention_ms, self._options.marks_retention_ms
            left_over, more_left_over = leftovers.step(connection, state, state.clock_ms - aged_ms, state.clock_ms - marks_aged_ms)
            removed += left_over
            served, served_to_ms = _served(connection, state.clock_ms - aged_ms)
            removed += served
            if served:
                self._forgot_to_ms = max(self._forgot_to_ms, served_to_ms)
            folding = self._fold(connection, state)
            fold_slots(connection, (state.clock_ms - _DAY_MS) // FAULT_SLOT_MS - 1)
            if state.history_bytes != before:
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('history_bytes', ?)", (state.history_bytes,))
            if self._forgot_to_ms:
                connection.execute(_HISTORY_FROM, (self._forgot_to_ms + 1,))
            commit(connection)
        except BaseException:
            state.history_bytes, state.forgotten, state.duplicates = before, forgotten, duplicates
            self._folded_queue = -1
            raise
        if not more and not more_left_over and not folding and served < _STEP_ROWS:
            self._cursor = None
            self._next_s = now_s + _PERIOD_S
        return removed

    def _history(self, connection: sqlite3.Connection, state: WriterState) -> tuple[int, bool]:
        cutoff_ms = state.clock_ms - self._options.history_retention_ms
        if state.history_bytes > self._options.history_max_bytes:
            removed = self._oldest(connection, state)
            return removed, removed > 0 and state.history_bytes > self._options.history_max_bytes
        aged, more = self._aged_attempts(connection, state, cutoff_ms)
        outcomes, more_outcomes = _remove(connection, state, "outcome", "at_ms < ?", cutoff_ms)
        if aged or outcomes:
            self._forgot_to_ms = cutoff_ms - 1
        return aged + outcomes, more or more_outcomes

    def _oldest(self, connection: sqlite3.Connection, state: WriterState) -> int:
        """The oldest of both tables, up to the time at which the first of them has a full step."""
        find = f"SELECT max(at_ms) FROM (SELECT at_ms FROM {{}} ORDER BY at_ms LIMIT {_HISTORY_ROWS})"
        latest = [connection.execute(find.format(table)).fetchone()[0] for table in ("failure", "outcome")]
        until_ms = min((at_ms for at_ms in latest if at_ms is not None), default=0)
        removed = 0
        for table in ("failure", "outcome"):
            excess = state.history_bytes - self._options.history_max_bytes
            if excess > 0:
                removed += _remove(connection, state, table, "at_ms <= ?", until_ms, excess)[0]
        if removed:
            self._forgot_to_ms = until_ms
        return removed

    def _aged_attempts(self, connection: sqlite3.Connection, state: WriterState, cutoff_ms: int) -> tuple[int, bool]:
        """Attempts past the cursor that are older than the cutoff go; returns how many of the next ones did, and whether there are more."""
        past = self._cursor or (-1, 0)
        chunk = (
            f"SELECT at_ms, failure_id, json_array_length({VALID_ENTRIES}) AS number FROM failure"
            f" WHERE (at_ms, failure_id) > (?, ?) AND at_ms < ? ORDER BY at_ms, failure_id LIMIT {_HISTORY_ROWS}"
        )
        # Not more attempts than a step has rows, but for those of its first failure.
        passed = f"SELECT *, sum(number) OVER (ROWS UNBOUNDED PRECEDING) - number AS passed FROM ({chunk})"
        step = f"FROM ({passed}) WHERE passed < {_STEP_ROWS}"
        failures, looked_at = connection.execute(f"SELECT count(*), sum(number) {step}", (*past, cutoff_ms)).fetchone()
        if not failures:
            return 0, False
        last = connection.execute(f"SELECT at_ms, failure_id {step} LIMIT 1 OFFSET ?", (*past, cutoff_ms, failures - 1)).fetchone()
        span = "(at_ms, failure_id) > (?, ?) AND (at_ms, failure_id) <= (?, ?)"
        alive = f"(SELECT json_group_array(json(entry.value)) FROM json_each({VALID_ENTRIES}) AS entry WHERE {_ALIVE})"
        size = f"SELECT {FAILURE_BYTES}, coalesce(sum(json_array_length({VALID_ENTRIES})), 0) FROM failure WHERE {span}"
        bytes_before, before = connection.execute(size, (*past, *last)).fetchone()
        connection.execute(f"UPDATE failure SET stays = {alive} WHERE {span} AND stays != {alive}", (*past, *last))
        connection.execute(f"DELETE FROM failure WHERE {span} AND stays = '[]'", (*past, *last))
        bytes_left, left = connection.execute(size, (*past, *last)).fetchone()
        state.history_bytes -= bytes_before - bytes_left
        self._cursor = last
        return before - left, failures == _HISTORY_ROWS or looked_at >= _STEP_ROWS

    def _fold(self, connection: sqlite3.Connection, state: WriterState) -> bool:
        """Make old counts coarser, some queues at a time and once an hour. Returns whether there is more to do."""
        minute = (state.clock_ms - self._options.history_retention_ms) // _MINUTE_MS
        folded_to = minute - minute % _FOLDS[0][1]
        if folded_to <= self._folded_to:
            return False
        for _ in range(_FOLD_QUEUES):
            found = connection.execute("SELECT min(queue_id) FROM minute WHERE queue_id > ?", (self._folded_queue,)).fetchone()[0]
            if found is None:
                self._folded_to, self._folded_queue = folded_to, -1
                return False
            if not leftovers.delete_strays(connection, found) and self._fold_queue(connection, found, state.clock_ms):
                return True
            self._folded_queue = found
        return True

    def _fold_queue(self, connection: sqlite3.Connection, queue_id: int, now_ms: int) -> bool:
        """One step for one queue. Only whole hours and days that are old enough. Returns whether there is more to do for it."""
        for retentions, width in _FOLDS:
            before = (now_ms - retentions * self._options.history_retention_ms) // _MINUTE_MS
            before -= before % width
            fine = (
                f"SELECT minute FROM minute WHERE queue_id = ? AND minute < ? AND minute % {width} != 0 ORDER BY minute LIMIT {_STEP_ROWS}"
            )
            count, last = connection.execute(f"SELECT count(*), max(minute) FROM ({fine})", (queue_id, before)).fetchone()
            if count:
                connection.execute(_FOLD, {"width": width, "queue_id": queue_id, "last": last})
                connection.execute(f"DELETE FROM minute WHERE queue_id = ? AND minute <= ? AND minute % {width} != 0", (queue_id, last))
            if count == _STEP_ROWS:
                return True
        return False

    def give_back(self, connection: sqlite3.Connection, space_low: bool, now_s: float) -> int:
        """Return a few free pages to the file system when a quarter of the file, and 16 MiB at least, lies free.

        Where space is low, all that lies free: otherwise a drained journal would go on filling the disk, and producers wait for ever.
        """
        if now_s < self._vacuum_next_s and not space_low:
            return 0
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        total = connection.execute("PRAGMA page_count").fetchone()[0]
        enough = free > 0 if space_low else free >= _VACUUM_LEAST_PAGES and free * 4 >= total
        self._giving_back = enough and free > _VACUUM_PAGES
        if not enough:
            self._vacuum_next_s = now_s + _LOOK_S
            return 0
        # As a script: ``execute`` would step it once, and so move a single page.
        connection.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        commit(connection)
        return min(int(free), _VACUUM_PAGES)


def _remove(
    connection: sqlite3.Connection, state: WriterState, table: str, where: str, at_ms: int, most_bytes: int | None = None
) -> tuple[int, bool]:
    """Delete the oldest rows of a history table that match, one step at most; with ``most_bytes`` no more than make up that size.

    Returns how many attempts or outcomes that were, and whether there may be more.
    """
    bytes_and_number = f"length(stays) + length({table}_blob) AS bytes, json_array_length({VALID_ENTRIES}) AS number"
    chosen = f"SELECT {table}_id AS id, {bytes_and_number} FROM {table} WHERE {where} ORDER BY at_ms LIMIT {_HISTORY_ROWS}"
    if most_bytes is not None:
        running = "sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS passed"
        chosen = f"SELECT * FROM (SELECT *, {running} FROM ({chosen})) WHERE passed < {most_bytes}"
    sums = "count(*), coalesce(sum(number), 0), coalesce(sum(bytes), 0)"
    rows, removed, size = connection.execute(f"SELECT {sums} FROM ({chosen})", (at_ms,)).fetchone()
    if rows:
        connection.execute(f"DELETE FROM {table} WHERE {table}_id IN (SELECT id FROM ({chosen}))", (at_ms,))
        state.history_bytes -= size
    return removed, rows == _HISTORY_ROWS


def _served(connection: sqlite3.Connection, before_ms: int) -> tuple[int, int]:
    """Hours that began before ``before_ms``, and what is too much, the oldest first; one step at most. Returns how many rows went, and the
    latest time that lies in such an hour and is not after ``before_ms`` unless it was too much.
    """
    hour = before_ms // (60 * _MINUTE_MS)
    excess = connection.execute("SELECT hour FROM served ORDER BY hour DESC LIMIT 1 OFFSET ?", (_SERVED_ROWS,)).fetchone()
    last = hour if excess is None else max(hour, excess[0])
    chosen = "SELECT hour, queue_id, consumer FROM served WHERE hour <= ? ORDER BY hour LIMIT ?"
    removed = connection.execute(f"DELETE FROM served WHERE (hour, queue_id, consumer) IN ({chosen})", (last, _STEP_ROWS)).rowcount
    return removed, max(before_ms - 1, last * 60 * _MINUTE_MS)
