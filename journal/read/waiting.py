"""What waits for its time: a part of it, in the order in which it goes, and how much goes when. From the index over due times."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from ..contract import ON_HOLD_MS
from ..upkeep.tombstones import THERE
from .choosing import BY_NUMBER, Choice

#: Entries of the index that are looked at for one page.
LOOK_ROWS: Final = 2_000
_NEXT: Final = (
    "SELECT json_group_array(json_array(due_at_ms, sequence, why)) FROM (SELECT r.due_at_ms, r.sequence, coalesce(r.cause, 0) AS why"
    f" FROM {{rows}} AND (r.due_at_ms, r.sequence) > (?, ?) AND r.due_at_ms <= ? AND r.due_at_ms IS NOT NULL AND {THERE}"
    " ORDER BY r.due_at_ms, r.sequence LIMIT ?)"
)
_BY_TIME: Final = "reference r INDEXED BY reference_due WHERE r.queue_id = ?"
_LATER: Final = (
    f"reference r INDEXED BY reference_due WHERE r.due_at_ms IS NOT NULL AND due_at_ms > ? AND due_at_ms < {ON_HOLD_MS} AND {{there}}"
)


class Look(NamedTuple):
    sequences: list[int]
    #: (due_at_ms, sequence) of the last entry that was looked at.
    last: tuple[int, int]
    looked_at: int
    #: There are further entries behind it.
    more: bool


def next_waiting(connection: sqlite3.Connection, queue_id: int, choice: Choice, after: tuple[int, int], until_ms: int, limit: int) -> Look:
    """Up to ``limit`` of those chosen that are due behind ``after``, (due_at_ms, sequence), and not after ``until_ms``. ``choice``: what
    they failed of, and their numbers."""
    rows, values = _BY_TIME, tuple[Any, ...]((queue_id,))
    if choice.message_ids is not None:
        numbers = json.dumps(choice.message_ids)
        rows, values = BY_NUMBER, (queue_id, numbers, numbers)
    look = LOOK_ROWS if choice.takes is not None else limit
    entries = json.loads(connection.execute(_NEXT.format(rows=rows), (*values, *after, until_ms, look)).fetchone()[0])
    sequences: list[int] = []
    for looked_at, (due_at_ms, sequence, cause) in enumerate(entries, 1):
        if choice.takes is None or choice.takes(cause):
            sequences.append(sequence)
        after = (due_at_ms, sequence)
        if len(sequences) == limit:
            return Look(sequences, after, looked_at, looked_at < len(entries) or len(entries) == look)
    return Look(sequences, after, len(entries), len(entries) == look)


def first_and_last(connection: sqlite3.Connection, now_ms: int) -> dict[int, tuple[int, int]]:
    """queue_id -> when the first goes and the last, of what has its time still to come."""
    sql = f"SELECT queue_id, min(due_at_ms), max(due_at_ms) FROM {_LATER.format(there=_there(connection))} GROUP BY queue_id"
    return {queue_id: (first_ms, last_ms) for queue_id, first_ms, last_ms in connection.execute(sql, (now_ms,))}


def calendar(connection: sqlite3.Connection, now_ms: int, parts: Sequence[tuple[int, int]]) -> dict[int, dict[int, int]]:
    """queue_id -> {beginning -> how many go from then on}, of the same. ``parts``: (up to this time, so many ms together), ascending."""
    beginning = "CASE" + " WHEN due_at_ms < ? THEN due_at_ms - due_at_ms % ?" * len(parts) + " END"
    there = _LATER.format(there=_there(connection))
    sql = f"SELECT queue_id, {beginning} AS beginning, count(*) FROM {there} GROUP BY 1, 2"
    found: dict[int, dict[int, int]] = {}
    for queue_id, beginning_ms, number in connection.execute(sql, (*chain.from_iterable(parts), now_ms)):
        found.setdefault(queue_id, {})[beginning_ms] = number
    return found


def _there(connection: sqlite3.Connection) -> str:
    """What is not gone. Where nothing is, nothing is looked up."""
    return THERE if connection.execute("SELECT EXISTS (SELECT 1 FROM gone)").fetchone()[0] else "true"
