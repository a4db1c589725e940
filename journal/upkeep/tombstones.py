"""References that left while their rows stay for a while (docs/decisions/0009-what-leaves-scattered.md).

Messages that leave in the order in which they came give back whole pages. Those that leave in any other order, as
redeliveries at times of their own do, would change a page of the table and one of each index for every message. Of these only a bit is set,
in table ``gone``, which is a few pages long for a million; the rows are removed later, in the order in which they lie. Whoever reads table
reference asks for ``THERE``.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

from ..store.bulk_statements import delete_integers, run_values
from ..store.commits import commit
from ..store.sqlite import PAGE_BYTES

log = logging.getLogger("homing.journal")

#: Of a reference r: its message is still in the queue. A row of ``gone`` has a bit for each of 32 sequences.
THERE: Final = "NOT EXISTS (SELECT 1 FROM gone WHERE gone.block = r.sequence >> 5 AND gone.bits >> (r.sequence & 31) & 1)"
_CHECKSUM: Final = "({block} * 1009 + ({bits}) * 31 + 7) % 4294967291"
_FIRST: Final = {"block": "(column1 >> 5)", "bits": "1 << (column1 & 31)"}
_FURTHER: Final = {"block": "block", "bits": "bits | excluded.bits"}
_LEAVE: Final = (
    f"INSERT INTO gone SELECT {_FIRST['block']}, {_FIRST['bits']}, {_CHECKSUM.format(**_FIRST)} FROM (VALUES {{values}}) WHERE true"
    f" ON CONFLICT (block) DO UPDATE SET bits = {_FURTHER['bits']}, checksum = {_CHECKSUM.format(**_FURTHER)}"
)
#: ``rows``: a SELECT of blocks, each once, and bits.
MERGE: Final = (
    f"INSERT INTO gone SELECT block, bits, {_CHECKSUM.format(block='block', bits='bits')} FROM ({{rows}}) WHERE true"
    " ON CONFLICT (block) DO UPDATE SET bits = gone.bits | excluded.bits, checksum = "
    + _CHECKSUM.format(block="gone.block", bits="gone.bits | excluded.bits")
)
#: Rows of ``gone`` that are not what was written.
DAMAGED: Final = f"SELECT block FROM gone WHERE checksum IS NOT {_CHECKSUM.format(block='block', bits='bits')}"
#: Sequences that have a bit and no row, of which there are none.
NO_ROW: Final = (
    "SELECT sequence FROM (SELECT block << 5 | bit.value AS sequence FROM gone JOIN json_each("
    f"'{list(range(32))}') AS bit ON gone.bits >> bit.value & 1) WHERE sequence NOT IN (SELECT sequence FROM reference)"
)

#: Fewer than these are removed at once, whichever they are.
_LEAST: Final = 32
#: As many of 32 rows, on the average, lie close enough to be removed at once.
_TOGETHER: Final = 4
#: Rows removed in one step of vacuuming, about.
STEP_ROWS: Final = 2_048
#: Rows that are gone are removed also while there is other work, once they are as many as those that are not and take so much of the file.
_MOST_BYTES: Final = 2 << 30


def far_apart(ordered: list[int], gap: int = 1) -> bool:
    """Whether these sequences, in ascending order, are better left than removed at once. ``gap``: from one row to the next."""
    number = len(ordered)
    if number < _LEAST or ordered[-1] - ordered[0] < 32 // _TOGETHER * number * gap:
        return False
    return len({sequence // (32 * gap) for sequence in ordered}) * _TOGETHER > number


def gap(connection: sqlite3.Connection, references: int) -> int:
    """What lies between one of so many rows and the next, about: other things have numbers too."""
    first, last = connection.execute("SELECT (SELECT min(sequence) FROM reference), (SELECT max(sequence) FROM reference)").fetchone()
    return 1 if first is None else max(1, (last - first) // max(1, references))


def leave(connection: sqlite3.Connection, sequences: list[int]) -> None:
    """They are gone from here on; their rows stay."""
    run_values(connection, _LEAVE, 1, sequences)


def count(connection: sqlite3.Connection) -> int:
    return sum(bits.bit_count() for (bits,) in connection.execute("SELECT bits FROM gone"))


def pressing(connection: sqlite3.Connection, references: int, gone: int) -> bool:
    """Whether rows must go while there is other work. ``references``: rows of that table, those that are ``gone`` among them."""
    if 2 * gone < references:
        return False
    pages, unused = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count"))
    return (pages - unused) * PAGE_BYTES // max(1, references) * gone > _MOST_BYTES


class Vacuum:
    """Removes the rows of what is gone, a step at a time, from the lowest sequence to the highest and again."""

    def __init__(self) -> None:
        self._after = -1

    def step(self, connection: sqlite3.Connection, rows: int = STEP_ROWS) -> tuple[int, int]:
        """One transaction; returns how many bits and how many rows went, (0, 0) when there were none."""
        found = self._blocks(connection, self._after, rows) or self._blocks(connection, -1, rows)
        if not found:
            return 0, 0
        sequences: list[int] = []
        blocks: list[int] = []
        for block, bits in found:
            if len(sequences) >= rows:
                break
            blocks.append(block)
            sequences += [block << 5 | bit for bit in range(32) if bits >> bit & 1]
        connection.execute("BEGIN IMMEDIATE")
        removed = delete_integers(connection, "reference", "sequence", sequences)
        delete_integers(connection, "gone", "block", blocks)
        commit(connection)
        self._after = blocks[-1]
        if removed != len(sequences):
            log.error("messages-missing: %d rows of messages that had left were not there any more", len(sequences) - removed)
        return len(sequences), removed

    def _blocks(self, connection: sqlite3.Connection, after: int, most: int) -> list[tuple[int, int]]:
        return connection.execute("SELECT block, bits FROM gone WHERE block > ? ORDER BY block LIMIT ?", (after, most)).fetchall()
