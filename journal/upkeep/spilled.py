"""Which references are only on disk for want of memory, and are to be gone after a crash (docs/decisions/0026).

Their rows stand in table reference as all others do. Table ``spilled`` has a bit for each, by queue: bit n of bits stands for sequence
32 * block + n. A start after a crash marks what it names as gone; an orderly stop takes the bits away, and what they named is durable.
A row that is not what was written is passed over, and never written again: what it named stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from ..store.bulk_statements import run_keys, run_values
from .tombstones import MERGE, THERE

_CHECKSUM: Final = "(({queue} * 7919 + {block}) * 1009 + ({bits}) * 31 + 7) % 4294967291"
_FIRST: Final = {"queue": "column1", "block": "(column2 >> 5)", "bits": "1 << (column2 & 31)"}
_FURTHER: Final = {"queue": "queue_id", "block": "block", "bits": "bits | excluded.bits"}
_FEWER: Final = {"queue": "queue_id", "block": "block", "bits": "bits & ~v.column3"}
_WHOLE: Final = f"spilled.checksum = {_CHECKSUM.format(queue='spilled.queue_id', block='spilled.block', bits='spilled.bits')}"
_NOTE: Final = (
    f"INSERT INTO spilled SELECT {_FIRST['queue']}, {_FIRST['block']}, {_FIRST['bits']}, {_CHECKSUM.format(**_FIRST)}"
    " FROM (VALUES {values}) WHERE true ON CONFLICT (queue_id, block)"
    f" DO UPDATE SET bits = {_FURTHER['bits']}, checksum = {_CHECKSUM.format(**_FURTHER)} WHERE {_WHOLE}"
)
_CLEAR: Final = (
    f"UPDATE spilled SET bits = {_FEWER['bits']}, checksum = {_CHECKSUM.format(**_FEWER)} FROM (VALUES {{values}}) AS v"
    f" WHERE spilled.queue_id = v.column1 AND spilled.block = v.column2 AND {_WHOLE}"
)
_DROP: Final = "DELETE FROM spilled WHERE (queue_id, block) IN (VALUES {values}) AND bits = 0"
#: Of a reference r.
SPILLED: Final = (
    "EXISTS (SELECT 1 FROM spilled WHERE spilled.queue_id = r.queue_id AND spilled.block = r.sequence >> 5"
    f" AND spilled.bits >> (r.sequence & 31) & 1 AND {_WHOLE})"
)
#: Of a reference r: its message is there, and a crash does not change that.
LASTING: Final = f"{THERE} AND NOT {SPILLED}"
_ROWS: Final = f"FROM reference r INDEXED BY reference_order WHERE r.queue_id = ? AND {THERE} AND {SPILLED}"
_BLOCKS: Final = f"SELECT r.sequence >> 5 AS block, sum(1 << (r.sequence & 31)) AS bits {_ROWS} GROUP BY 1"


def note(connection: sqlite3.Connection, flat: list[Any]) -> None:
    """``flat``: queue_id and sequence of each, one after the other."""
    run_values(connection, _NOTE, 2, flat)


def clear(connection: sqlite3.Connection, queues: Mapping[int, int]) -> None:
    """These are spilled no more. ``queues``: the queue of each, by sequence."""
    bits: dict[tuple[int, int], int] = {}
    for sequence, queue_id in queues.items():
        block = queue_id, sequence >> 5
        bits[block] = bits.get(block, 0) | 1 << (sequence & 31)
    run_values(connection, _CLEAR, 3, [value for block, mask in bits.items() for value in (*block, mask)])
    run_keys(connection, _DROP, 2, list(bits))


def forget(connection: sqlite3.Connection, queue_id: int) -> None:
    """What of the queue was only spilled is durable from here on."""
    connection.execute("DELETE FROM spilled WHERE queue_id = ?", (queue_id,))


def discard(connection: sqlite3.Connection, queue_id: int) -> int:
    """What of the queue was only spilled is gone from here on; returns how many messages. Only the order index is looked at, no row."""
    number = int(connection.execute(f"SELECT count(*) {_ROWS}", (queue_id,)).fetchone()[0])
    if number:
        connection.execute(MERGE.format(rows=_BLOCKS), (queue_id,))
    forget(connection, queue_id)
    return number


def discard_all(connection: sqlite3.Connection) -> int:
    """After a stop of any kind: what is left has not been kept. Returns how many messages that are."""
    queues = connection.execute("SELECT DISTINCT queue_id FROM spilled").fetchall()
    return sum([discard(connection, queue_id) for (queue_id,) in queues])
