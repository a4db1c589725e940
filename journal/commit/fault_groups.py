"""Writes what a batch holds of fault groups."""

from __future__ import annotations

import sqlite3
from typing import Final

from ..contract import FaultRecord, FaultStat
from ..store.bulk_statements import run_values
from ..store.packing import pack
from .fault_changes import FaultChanges

COLUMNS: Final = [column.name.lower() for column in FaultStat]
_INTO: Final = f"fault_count (fault_id, slot, {', '.join(COLUMNS)})"
_ADD: Final = "ON CONFLICT (fault_id, slot) DO UPDATE SET " + ", ".join(f"{name} = {name} + excluded.{name}" for name in COLUMNS)
_SUMS: Final = ", ".join(f"sum({name})" for name in COLUMNS)
SET_FAULT: Final = (
    "INSERT INTO fault VALUES {values} ON CONFLICT (fault_id) DO UPDATE SET last_ms = excluded.last_ms, fault_blob = excluded.fault_blob"
)
SET_KEY: Final = "UPDATE reference SET message_key = v.column2 FROM (VALUES {values}) AS v WHERE reference.sequence = v.column1"
SET_CAUSE: Final = (
    "UPDATE reference SET cause = v.column2 FROM (VALUES {values}) AS v WHERE reference.sequence = v.column1 AND coalesce(cause, 0) = 0"
)
SET_TEXT: Final = "INSERT OR REPLACE INTO fault_text VALUES {values}"
COUNT_FAULTS: Final = f"INSERT INTO {_INTO} VALUES {{values}} {_ADD}"
FOLD_GROUP: Final = f"INSERT INTO {_INTO} SELECT :into, slot, {', '.join(COLUMNS)} FROM fault_count WHERE fault_id = :fault_id {_ADD}"
FOLD_SLOTS: Final = (
    f"INSERT INTO {_INTO} SELECT fault_id, 0, {_SUMS} FROM fault_count WHERE slot BETWEEN 1 AND :last GROUP BY fault_id {_ADD}"
)


def write_faults(connection: sqlite3.Connection, changes: FaultChanges) -> None:
    """After the references that ``keys`` and ``causes`` are of."""
    run_values(connection, SET_KEY, 2, [value for key in changes.keys.items() for value in key])
    run_values(connection, COUNT_FAULTS, 2 + len(COLUMNS), [value for key, row in changes.stats.items() for value in (*key, *row)])
    for fault_id, into in changes.folded.items():
        connection.execute(FOLD_GROUP, {"fault_id": fault_id, "into": into})
        for table in ("fault_count", "fault_text", "fault"):
            connection.execute(f"DELETE FROM {table} WHERE fault_id = ?", (fault_id,))
    # One that went may have come again since, under another number and the same name.
    records = [record for fault_id, record in changes.records.items() if fault_id not in changes.folded]
    texts = [(fault_id, *texts) for fault_id, texts in changes.texts.items() if fault_id not in changes.folded]
    run_values(connection, SET_CAUSE, 2, [value for cause in changes.causes.items() for value in cause])
    run_values(connection, SET_FAULT, 7, [value for record in records for value in _row(record)])
    run_values(connection, SET_TEXT, 3, [value for row in texts for value in row])


def _row(record: FaultRecord) -> list[object]:
    rest = record._asdict()
    own = [rest.pop(name) for name in ("fault_id", "fingerprint", "queue", "error_class", "first_ms", "last_ms")]
    return [*own, pack(rest)]


def fold_slots(connection: sqlite3.Connection, last: int) -> None:
    """Counts of ten minutes up to this one are counted together from here on."""
    connection.execute(FOLD_SLOTS, {"last": last})
    connection.execute("DELETE FROM fault_count WHERE slot BETWEEN 1 AND ?", (last,))
