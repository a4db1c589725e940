"""What is counted of fault groups, and of dead letters by why they are there. From indexes and counts: no message is read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import Final

from ..commit.fault_changes import FAULT_SLOT_MS
from ..commit.fault_groups import COLUMNS
from ..contract import DEATHS, OTHER_FAULT, SENT_BACK, DeadLetters, FaultDescription, FaultLife, fault_of
from ..store.packing import Damaged, unpack_hops
from ..upkeep.tombstones import THERE

_HOUR, _DAY = 3_600_000 // FAULT_SLOT_MS, 86_400_000 // FAULT_SLOT_MS
_SUMS: Final = ", ".join(f"sum({name})" for name in COLUMNS)
_COUNTS: Final = (
    f"SELECT fault_id, {_SUMS}, coalesce(sum(failures) FILTER (WHERE slot > :hour), 0),"
    " coalesce(sum(failures) FILTER (WHERE slot > :day), 0) FROM fault_count{of} GROUP BY fault_id"
)
_OF_THESE: Final = " WHERE fault_id IN (SELECT value FROM json_each(:fault_ids))"
_DEAD: Final = (
    "WITH dead AS (SELECT queue_id, cause, count(*) AS messages, min(sequence) AS first, max(sequence) AS last"
    " FROM reference r INDEXED BY reference_dead WHERE cause & 7 AND {there} GROUP BY queue_id, cause)"
    " SELECT queue_id, cause, messages, {first}, {last}, fault.queue FROM dead LEFT JOIN fault ON fault_id = cause >> 4"
)
_ONE: Final = (
    "SELECT sequence, overlay_blob FROM reference INDEXED BY reference_dead WHERE queue_id = ? AND cause = ? AND cause & 7 LIMIT 1"
)
_ENTERED: Final = "(SELECT entered_at_ms FROM reference WHERE sequence = {})"
_OF_QUEUE: Final = "reference r INDEXED BY reference_dead WHERE queue_id = :queue_id AND cause & 7"
_ONE_OF: Final = f"(SELECT sequence FROM {_OF_QUEUE} AND cause = causes.cause AND {THERE} ORDER BY sequence {{}} LIMIT 1)"
_SINCE: Final = (
    f"WITH RECURSIVE causes(cause) AS (SELECT (SELECT cause FROM {_OF_QUEUE} ORDER BY cause LIMIT 1) UNION ALL"
    f" SELECT (SELECT cause FROM {_OF_QUEUE} AND cause > causes.cause ORDER BY cause LIMIT 1) FROM causes WHERE cause IS NOT NULL)"
    f" SELECT {_ENTERED.format('first')}, {_ENTERED.format('last')}"
    f" FROM (SELECT min({_ONE_OF.format('ASC')}) AS first, max({_ONE_OF.format('DESC')}) AS last FROM causes)"
)


def lives(connection: sqlite3.Connection, now_ms: int, fault_ids: Collection[int] | None = None) -> dict[int, FaultLife]:
    """By fault_id; of these, or of all."""
    slot = now_ms // FAULT_SLOT_MS
    sql = _COUNTS.format(of="" if fault_ids is None else _OF_THESE)
    rows = connection.execute(sql, {"hour": slot - _HOUR, "day": slot - _DAY, "fault_ids": json.dumps([*(fault_ids or ())])})
    return {fault_id: FaultLife(*numbers) for fault_id, *numbers in rows}


def dead_since(connection: sqlite3.Connection, queue_ids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """When the oldest and the newest dead letter of each queue came; without those that have none. Found by one look for each cause."""
    found = {}
    for queue_id in queue_ids:
        oldest_ms, newest_ms = connection.execute(_SINCE, {"queue_id": queue_id}).fetchone()
        if oldest_ms is not None:
            found[queue_id] = (oldest_ms, newest_ms)
    return found


def dead(connection: sqlite3.Connection) -> list[DeadLetters]:
    """One for each queue that has dead letters and each cause."""
    some_are_gone = connection.execute("SELECT EXISTS (SELECT 1 FROM gone)").fetchone()[0]
    there = THERE if some_are_gone else "true"
    sql = _DEAD.format(there=there, first=_ENTERED.format("dead.first"), last=_ENTERED.format("dead.last"))
    found = []
    for queue_id, cause, messages, oldest_ms, newest_ms, source in connection.execute(sql).fetchall():
        found.append(
            DeadLetters(
                queue_id,
                OTHER_FAULT if source is None else fault_of(cause),
                source or source_of(connection, queue_id, cause),
                DEATHS[cause & 7] if cause & 7 < len(DEATHS) else "",
                bool(cause & SENT_BACK),
                messages,
                oldest_ms,
                newest_ms,
            )
        )
    return found


def source_of(connection: sqlite3.Connection, queue_id: int, cause: int) -> str | None:
    """From where those in a queue came that share a cause whose group is not known any more, as one of them tells; None: it does not."""
    found = connection.execute(_ONE, (queue_id, cause)).fetchone()
    if found is None or found[1] is None:
        return None
    try:
        hops = unpack_hops(found[1], found[0])
    except Damaged:
        return None
    return hops[-1][1]["queue"] if hops else None


def describe(connection: sqlite3.Connection, fault_ids: list[int], now_ms: int) -> FaultDescription:
    """Of these groups, which are of one fault."""
    marks = ",".join("?" * len(fault_ids))
    text, traceback = connection.execute(
        f"SELECT text, traceback FROM fault_text WHERE fault_id IN ({marks}) ORDER BY traceback = '', fault_id DESC LIMIT 1", fault_ids
    ).fetchone() or ("", "")
    return FaultDescription(text, traceback, [sum(each) for each in zip(*hours(connection, fault_ids, now_ms).values(), strict=True)])


def hours(connection: sqlite3.Connection, fault_ids: list[int], now_ms: int) -> dict[int, list[int]]:
    """Failures of each of the last 24 hours, by fault_id."""
    found = {fault_id: [0] * 24 for fault_id in fault_ids}
    slot = now_ms // FAULT_SLOT_MS
    sql = f"SELECT fault_id, slot, failures FROM fault_count WHERE fault_id IN ({','.join('?' * len(fault_ids))}) AND slot > ?"
    for fault_id, at, failures in connection.execute(sql, (*fault_ids, slot - _DAY)):
        found[fault_id][23 - (slot - at) // _HOUR] += failures
    return found
