"""What waits for its time: a part of it, in the order in which it goes, and how much goes when. From the index over due times."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
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
#: Behind one time and before another. One bound at each end: the index is walked up to one only.
_BETWEEN: Final = "reference r INDEXED BY reference_due WHERE r.queue_id = ? AND r.due_at_ms > ? AND r.due_at_ms < ? AND {there}"


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
        if choice.takes is None or choice.takes(cause, _nowhere):
            sequences.append(sequence)
        after = (due_at_ms, sequence)
        if len(sequences) == limit:
            return Look(sequences, after, looked_at, looked_at < len(entries) or len(entries) == look)
    return Look(sequences, after, len(entries), len(entries) == look)


def _nowhere() -> None:
    """They were not dead-lettered."""


def first_and_last(connection: sqlite3.Connection, queue_ids: Iterable[int], now_ms: int) -> dict[int, tuple[int, int]]:
    """queue_id -> when the first goes and the last, of what has its time still to come."""
    rows = _BETWEEN.format(there=_there(connection))
    first, last = (f"SELECT due_at_ms FROM {rows} ORDER BY due_at_ms {way} LIMIT 1" for way in ("ASC", "DESC"))
    found: dict[int, tuple[int, int]] = {}
    for queue_id in queue_ids:
        between = (queue_id, now_ms, ON_HOLD_MS)
        if (row := connection.execute(first, between).fetchone()) is not None:
            found[queue_id] = (int(row[0]), int(connection.execute(last, between).fetchone()[0]))
    return found


def calendar(connection: sqlite3.Connection, queue_ids: Iterable[int], now_ms: int, parts: Sequence[tuple[int, int]]) -> Counter[int]:
    """Beginning -> how many go from then on, of the same. ``parts``: (up to this time, so many ms together), ascending.

    Each is counted by a range of the index: to group all by what is worked out of their times would sort them.
    """
    rows = _BETWEEN.format(there=_there(connection))
    first, count = f"SELECT due_at_ms FROM {rows} ORDER BY due_at_ms LIMIT 1", f"SELECT count(*) FROM {rows}"
    found: Counter[int] = Counter()
    for queue_id in queue_ids:
        after_ms = now_ms
        while (row := connection.execute(first, (queue_id, after_ms, ON_HOLD_MS)).fetchone()) is not None:
            width_ms = next(width_ms for until_ms, width_ms in parts if row[0] < until_ms)
            beginning_ms = row[0] - row[0] % width_ms
            end_ms = min(beginning_ms + width_ms, ON_HOLD_MS)
            found[beginning_ms] += connection.execute(count, (queue_id, after_ms, end_ms)).fetchone()[0]
            after_ms = end_ms - 1
    return found


def _there(connection: sqlite3.Connection) -> str:
    """What is not gone. Where nothing is, nothing is looked up."""
    return THERE if connection.execute("SELECT EXISTS (SELECT 1 FROM gone)").fetchone()[0] else "true"
