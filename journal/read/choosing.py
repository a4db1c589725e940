"""Which rows of a queue a filter chooses, by indexes alone: why dead letters are there, when they came, their key, their numbers.

Sequences are given as messages come, so that a time is a place among them; each stream of an index is in their order.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from ..contract import DEATH_BITS, OTHER_FAULT, fault_of
from ..upkeep.tombstones import THERE
from .faults import source_of

_MOST: Final = (1 << 63) - 1
_NEXT_CAUSE: Final = (
    "SELECT cause FROM reference INDEXED BY reference_dead WHERE queue_id = ? AND cause > ? AND cause & 7 ORDER BY cause LIMIT 1"
)
_NEXT_RANK: Final = "SELECT rank FROM reference INDEXED BY reference_order WHERE queue_id = ? AND rank > ? ORDER BY rank LIMIT 1"
_BY_CAUSE: Final = "reference r INDEXED BY reference_dead WHERE r.queue_id = ? AND r.cause = ? AND r.cause & 7"
_CAUSE: Final = "r.cause"
_DEAD: Final = "reference r INDEXED BY reference_dead WHERE r.queue_id = ? AND r.cause & 7"
_BY_RANK: Final = "reference r INDEXED BY reference_order WHERE r.queue_id = ? AND r.rank = ?"
_BY_KEY: Final = "reference r INDEXED BY reference_key WHERE r.queue_id = ? AND r.message_key = ? AND r.message_key IS NOT NULL"
#: Those that were moved or share their body; and those that have their message's own number. Found by these, and not by walking through
#: the queue's index for them.
BY_NUMBER: Final = (
    "reference r WHERE +r.queue_id = ? AND r.sequence IN (SELECT o.sequence FROM reference o INDEXED BY reference_message"
    " WHERE o.message_id IN (SELECT value FROM json_each(?)) AND (o.overlay_blob IS NOT NULL OR o.message_blob IS NULL)"
    " UNION SELECT value FROM json_each(?))"
)


#: Asked with a cause (contract.cause), and what tells from where those of it came whose fault group is not known any more.
Takes = Callable[[int, Callable[[], str | None]], bool]


class Choice(NamedTuple):
    """None: whatever it is. Without ``takes`` and the rest it is all of a queue, dead or not."""

    #: Of dead letters.
    takes: Takes | None = None
    #: They came at this time or later, and before that one.
    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    message_ids: tuple[int, ...] | None = None
    #: Below this sequence.
    up_to: int = _MOST
    newest_first: bool = False

    @property
    def is_of_causes(self) -> bool:
        """Whether nothing but the cause matters."""
        return self[1:-2] == Choice()[1:-2]


def chosen(connection: sqlite3.Connection, queue_id: int, choice: Choice, after: int, limit: int) -> list[int]:
    """The first so many sequences behind ``after`` (0: from the beginning), which, newest first, are below it."""
    low, high = _bounds(connection, choice)
    if choice.newest_first:
        high = min(high, after or high)
    else:
        low = max(low, after)
    direction = "DESC" if choice.newest_first else "ASC"
    found: list[int] = []
    for rows, values in _streams(connection, queue_id, choice):
        if len(found) >= limit:
            # What is beyond these is of no use.
            low, high = (found[limit - 1], high) if choice.newest_first else (low, found[limit - 1])
        sql = (
            f"SELECT json_group_array(sequence) FROM (SELECT r.sequence FROM {rows} AND r.sequence > ? AND r.sequence < ?"
            f" AND {THERE}{_exactly(choice)} ORDER BY r.sequence {direction} LIMIT ?)"
        )
        times = [at_ms for at_ms in (choice.since_ms, choice.until_ms) if at_ms is not None]
        found += json.loads(connection.execute(sql, (*values, low, high, *times, limit)).fetchone()[0])
        found = sorted(found, reverse=choice.newest_first)[:limit]
    return found


def _exactly(choice: Choice) -> str:
    since = " AND r.entered_at_ms >= ?" if choice.since_ms is not None else ""
    return since + (" AND r.entered_at_ms < ?" if choice.until_ms is not None else "")


def _streams(connection: sqlite3.Connection, queue_id: int, choice: Choice) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Rows of the indexes that the choice is in, each in the order of sequences."""
    causes = ""
    if choice.takes is not None:
        causes_here = _each(connection, _NEXT_CAUSE, queue_id, 0)
        wanted = [cause for cause in causes_here if choice.takes(cause, partial(source_of, connection, queue_id, cause))]
        if choice.key is None and choice.message_ids is None:
            yield from ((_BY_CAUSE, (queue_id, cause)) for cause in wanted)
            return
        causes = f" AND r.cause IN ({','.join(map(str, wanted)) or 'NULL'})"
    if choice.message_ids is not None:
        numbers = json.dumps(choice.message_ids)
        key = " AND r.message_key = ?" if choice.key is not None else ""
        yield BY_NUMBER + causes + key, (queue_id, numbers, numbers, *([choice.key] if key else ()))
    elif choice.key is not None:
        yield _BY_KEY + causes, (queue_id, choice.key)
    else:
        yield from ((_BY_RANK, (queue_id, rank)) for rank in _each(connection, _NEXT_RANK, queue_id, -_MOST))


def _each(connection: sqlite3.Connection, sql: str, queue_id: int, after: int) -> Iterator[int]:
    """The values that there are of an index's second column, each found by one look."""
    while (row := connection.execute(sql, (queue_id, after)).fetchone()) is not None:
        after = int(row[0])
        yield after


def _bounds(connection: sqlite3.Connection, choice: Choice) -> tuple[int, int]:
    """Beyond and below these sequences."""
    low = 0 if choice.since_ms is None else _place_of(connection, choice.since_ms) - 1
    high = choice.up_to if choice.until_ms is None else min(choice.up_to, _place_of(connection, choice.until_ms))
    return low, high


def _place_of(connection: sqlite3.Connection, at_ms: int) -> int:
    """The sequence from which on messages came at that time or later."""
    low, last = connection.execute("SELECT min(sequence), max(sequence) FROM reference").fetchone()
    if last is None:
        return 0
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        sql = "SELECT sequence, entered_at_ms FROM reference WHERE sequence >= ? ORDER BY sequence LIMIT 1"
        sequence, entered_at_ms = connection.execute(sql, (middle,)).fetchone()
        low, high = (low, middle) if entered_at_ms >= at_ms else (sequence + 1, high)
    return int(low)


def count(connection: sqlite3.Connection, queue_id: int, choice: Choice) -> dict[tuple[int, str | None], int]:
    """How many are chosen of each fault, by fault_id (0: of what is not dead, OTHER_FAULT: its group was folded) and where it was, None
    where that is not known. From indexes alone where they have it."""
    low, high = _bounds(connection, choice)
    there = THERE if connection.execute("SELECT EXISTS (SELECT 1 FROM gone)").fetchone()[0] else "true"
    found: Counter[int] = Counter()

    def add(rows: str, values: tuple[Any, ...], cause: str) -> int:
        # To group by what is the same for all would take five times as long.
        grouped = f" GROUP BY {cause}" if cause == _CAUSE else ""
        sql = f"SELECT {cause}, count(*) FROM {rows} AND r.sequence > ? AND r.sequence < ? AND {there}{grouped}"
        for number_of, number in connection.execute(sql, (*values, low, high)):
            found[number_of if (number_of or 0) & DEATH_BITS else 0] += number
        return found.total()

    if choice.takes is None and choice.key is None and choice.message_ids is None:
        total = 0
        for rows, values in _streams(connection, queue_id, choice):
            total = add(rows, values, "0")
        found.clear()
        found[0] += total - add(_DEAD, (queue_id,), _CAUSE)
    else:
        for rows, values in _streams(connection, queue_id, choice):
            add(rows, values, str(values[1]) if rows is _BY_CAUSE else _CAUSE)
    return _by_fault(connection, queue_id, found)


def _by_fault(connection: sqlite3.Connection, queue_id: int, causes: Counter[int]) -> dict[tuple[int, str | None], int]:
    queues = dict(connection.execute("SELECT fault_id, queue FROM fault"))
    found: Counter[tuple[int, str | None]] = Counter()
    for cause, number in causes.items():
        queue = queues.get(fault_of(cause)) if cause else None
        if cause and not queue:
            found[OTHER_FAULT, source_of(connection, queue_id, cause)] += number
        else:
            found[fault_of(cause), queue] += number
    return {fault: number for fault, number in found.items() if number}
