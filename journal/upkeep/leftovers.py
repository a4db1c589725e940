"""Rows that outlive what they are about: of deleted queues, removed addresses, producers and transactions of long ago, and of policies
of consumers that are gone.

Each step is bounded, and says whether there is more to do, so that upkeep keeps up with however many queues come and go.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..commit.writer_state import WriterState
from ..store.bulk_statements import delete_integers

_STEP_ROWS: Final = 4_096
_STEP_QUEUES: Final = 256
#: Deleted queues that nothing but counts speaks of are kept up to this number, and those with a history up to ten times that; beyond it the
#: first to be deleted go.
DELETED_QUEUES: Final = 5_000
_WITH_HISTORY: Final = 10
#: Redelivery policies are kept up to this number; beyond it those go that were entered first, and attempts that name them name them still.
POLICIES: Final = 10_000

#: Whether counts say that there may be history: a failure, a death, or a message that came from another queue.
_TROUBLED: Final = (
    "EXISTS (SELECT 1 FROM minute m WHERE m.queue_id = q.queue_id AND"
    " (m.failed OR m.dead_lettered OR m.expired OR m.moved_in OR m.moved_out))"
)
# A queue without counts never held a message; one with history stays until all of that is younger than its end. Rows of messages that left
# may still be there, and name it.
_QUEUES: Final = f"""
SELECT queue_id, (SELECT count(*) FROM minute m WHERE m.queue_id = q.queue_id) FROM queue q WHERE deleted_at_ms IS NOT NULL AND (
    NOT EXISTS (SELECT 1 FROM minute m WHERE m.queue_id = q.queue_id)
    OR deleted_at_ms < max(min(:aged_ms, :history_ms), :most_ms)
    OR deleted_at_ms < max(min(:aged_ms, :outcomes_ms), :excess_ms) AND NOT {_TROUBLED}
) AND NOT EXISTS (SELECT 1 FROM reference r INDEXED BY reference_order WHERE r.queue_id = q.queue_id)
ORDER BY deleted_at_ms LIMIT {_STEP_QUEUES}
"""
_EXCESS: Final = "SELECT deleted_at_ms FROM queue WHERE deleted_at_ms IS NOT NULL ORDER BY deleted_at_ms DESC LIMIT 1 OFFSET ?"
_NEVER: Final = (1 << 63) - 1


def step(connection: sqlite3.Connection, state: WriterState, aged_ms: int, marks_aged_ms: int) -> tuple[int, bool]:
    """Within a transaction. ``aged_ms``: what ended before it is past its retention. Returns (rows that went, whether there is more)."""
    queues, minutes, more_queues = _deleted_queues(connection, aged_ms)
    duplicates = _duplicates(connection, state)
    marks = [_marks(connection, table, key, marks_aged_ms) for table, key in (("producer", "producer"), ("committed", "transaction_id"))]
    marks.append(_marks(connection, "edit", "message_id", aged_ms))
    policies = _policies(connection)
    more = more_queues or bool(state.forgotten) or _STEP_ROWS in (*marks, policies)
    return queues + minutes + duplicates + sum(marks) + policies, more


def _deleted_queues(connection: sqlite3.Connection, aged_ms: int) -> tuple[int, int, bool]:
    """Their rows, and their counts; not more than a step has rows, but for those of the first. Returns how many of each went."""
    oldest = [connection.execute(f"SELECT min(at_ms) FROM {table}").fetchone()[0] for table in ("failure", "outcome")]
    failures_ms, outcomes_ms = (_NEVER if at_ms is None else int(at_ms) for at_ms in oldest)
    times = {"aged_ms": aged_ms, "history_ms": min(failures_ms, outcomes_ms), "outcomes_ms": outcomes_ms, "most_ms": -1}
    times["excess_ms"] = _beyond(connection, DELETED_QUEUES)
    found = connection.execute(_QUEUES, times).fetchall()
    if not found:
        times["most_ms"] = _beyond(connection, _WITH_HISTORY * DELETED_QUEUES)
        found = connection.execute(_QUEUES, times).fetchall() if times["most_ms"] >= 0 else []
    going: list[int] = []
    minutes = 0
    for queue_id, counts in found:
        if going and minutes + counts > _STEP_ROWS:
            break
        going.append(queue_id)
        minutes += counts
    delete_integers(connection, "minute", "queue_id", going)
    delete_integers(connection, "queue", "queue_id", going)
    return len(going), minutes, len(going) < len(found) or len(found) == _STEP_QUEUES


def _beyond(connection: sqlite3.Connection, number: int) -> int:
    """All but the last so many queues were deleted before this time; -1 where there are no more."""
    found = connection.execute(_EXCESS, (number,)).fetchone()
    return -1 if found is None else int(found[0]) + 1


def _duplicates(connection: sqlite3.Connection, state: WriterState) -> int:
    """Duplicate ids of addresses that were removed and are not back."""
    removed = 0
    while state.forgotten and removed < _STEP_ROWS:
        address = next(iter(state.forgotten))
        chosen = "SELECT number FROM duplicate WHERE address = :address LIMIT :left"
        sql = f"DELETE FROM duplicate WHERE address = :address AND number IN ({chosen})"
        left = _STEP_ROWS - removed
        gone = connection.execute(sql, {"address": address, "left": left}).rowcount
        removed += gone
        if gone < left:
            del state.forgotten[address]
            state.duplicates.pop(address, None)
    return removed


def _marks(connection: sqlite3.Connection, table: str, key: str, before_ms: int) -> int:
    chosen = f"SELECT {key} FROM {table} WHERE at_ms < ? LIMIT {_STEP_ROWS}"
    return connection.execute(f"DELETE FROM {table} WHERE {key} IN ({chosen})", (before_ms,)).rowcount


def _policies(connection: sqlite3.Connection) -> int:
    """What is too much of them, the first that were entered first; consumers bring as many as they like."""
    excess = connection.execute("SELECT count(*) FROM policy").fetchone()[0] - POLICIES
    if excess <= 0:
        return 0
    chosen = "SELECT policy FROM policy ORDER BY from_ms, policy LIMIT ?"
    return connection.execute(f"DELETE FROM policy WHERE policy IN ({chosen})", (min(excess, _STEP_ROWS),)).rowcount


def delete_strays(connection: sqlite3.Connection, queue_id: int) -> bool:
    """Counts of a queue whose row went before they came. Returns whether it has no row."""
    if connection.execute("SELECT 1 FROM queue WHERE queue_id = ?", (queue_id,)).fetchone():
        return False
    connection.execute("DELETE FROM minute WHERE queue_id = ?", (queue_id,))
    return True
