"""References that left while their rows stay for a while (docs/decisions/0009-what-leaves-scattered.md).

Messages that leave in the order in which they came give back whole pages. Those that leave in any other order, as
redeliveries at times of their own do, would change a page of the table and one of each index for every message. Of these only a bit is set,
in table ``gone``, which is a few pages long for a million; the rows are removed later, in the order in which they lie. Whoever reads table
reference asks for ``THERE``.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from typing import Final

from journal.sqlite_store import PAGE_BYTES
from journal.statements import delete_integers, run_values

log = logging.getLogger("homing.journal")

#: Of a reference r: its message is still in the queue. A row of ``gone`` has a bit for each of 32 sequences.
THERE: Final = "NOT EXISTS (SELECT 1 FROM gone WHERE gone.block = r.sequence >> 5 AND gone.bits >> (r.sequence & 31) & 1)"
_LEAVE: Final = (
    "INSERT INTO gone SELECT column1 >> 5, 1 << (column1 & 31) FROM (VALUES {values}) WHERE true"
    " ON CONFLICT (block) DO UPDATE SET bits = bits | excluded.bits"
)
#: Sequences that have a bit and no row, of which there are none.
NO_ROW: Final = (
    "SELECT sequence FROM (SELECT block << 5 | bit.value AS sequence FROM gone JOIN json_each("
    f"'{list(range(32))}') AS bit ON gone.bits >> bit.value & 1) WHERE sequence NOT IN (SELECT sequence FROM reference)"
)
_BLOCKS: Final = "SELECT block, bits FROM gone WHERE block > ? ORDER BY block LIMIT ?"

#: Fewer than these are removed at once, whichever they are.
_LEAST: Final = 32
#: As many of a block of 32, on the average, lie close enough to be removed at once.
_TOGETHER: Final = 4
#: Blocks in one step of clearing: 2,048 rows at most.
_STEP_BLOCKS: Final = 64
#: Rows that are gone are removed also while there is other work, once they are as many as those that are not and take so much of the file.
_MOST_BYTES: Final = 1 << 30
_MOST_LEAST: Final = 65_536


def scattered(ordered: list[int]) -> bool:
    """Whether these sequences, in ascending order, are better left than removed at once."""
    number = len(ordered)
    if number < _LEAST or ordered[-1] - ordered[0] < 32 // _TOGETHER * number:
        return False
    return len({sequence >> 5 for sequence in ordered}) * _TOGETHER > number


def leave(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """They are gone from here on; their rows stay."""
    run_values(connection, _LEAVE, 1, list(sequences))


def count(connection: sqlite3.Connection) -> int:
    return sum(bits.bit_count() for (bits,) in connection.execute("SELECT bits FROM gone"))


class Clearing:
    """Removes the rows of what is gone, a step at a time, from the lowest sequence to the highest and again."""

    def __init__(self) -> None:
        self._after = -1

    def pressing(self, connection: sqlite3.Connection, references: int, gone: int) -> bool:
        """Whether it must go on while there is other work. ``references``: rows of that table, those that are ``gone`` among them."""
        if gone < _MOST_LEAST or 2 * gone < references:
            return False
        pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
        return pages * PAGE_BYTES // references * gone > _MOST_BYTES

    def step(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """One transaction; returns how many bits and how many rows went. None: there are no more."""
        found = connection.execute(_BLOCKS, (self._after, _STEP_BLOCKS)).fetchall()
        if not found:
            self._after = -1
            found = connection.execute(_BLOCKS, (self._after, _STEP_BLOCKS)).fetchall()
        if not found:
            return 0, 0
        sequences = [block << 5 | bit for block, bits in found for bit in range(32) if bits >> bit & 1]
        connection.execute("BEGIN IMMEDIATE")
        removed = delete_integers(connection, "reference", "sequence", sequences)
        delete_integers(connection, "gone", "block", [block for block, _ in found])
        connection.execute("COMMIT")
        self._after = found[-1][0] if len(found) == _STEP_BLOCKS else -1
        if removed != len(sequences):
            log.error("%d rows of messages that had left were not there any more", len(sequences) - removed)
        return len(sequences), removed
