"""Counts of references that came back at once, apart from their rows.

A row of table reference holds the body, so that to change a count in it writes a page for every fifteen messages of 1 KiB. References that
come back together and wait for nothing have their counts in rows of table ``returned`` instead, which take precedence: four hundred to a
page. Any other change of a reference goes to its own row and ends that one (docs/decisions/0014-what-comes-back-keeps-its-place.md).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from ..contract import ReferenceCounts
from .bulk_statements import delete_integers
from .packing import checksum_of_counts, placed

#: Behind ``reference r``, for whoever reads counts: in the place of columns delivery_count, failed, assigned and counts_checksum.
JOIN: Final[str] = "LEFT JOIN returned USING (sequence)"
DELIVERY_COUNT: Final[str] = "coalesce(deliveries, delivery_count)"
FAILED: Final[str] = "coalesce(failures, failed)"
ASSIGNED: Final[str] = "coalesce(assignments, assigned)"
COUNTS: Final[str] = f"{DELIVERY_COUNT}, {FAILED}, {ASSIGNED}"
CHECKSUM: Final[str] = "coalesce(proof, counts_checksum)"
CAUSE: Final[str] = "coalesce(last_cause, cause, 0)"
REDRIVE: Final[str] = "coalesce(last_redrive, redrive, 0)"
#: Rows without a reference, of which there are none.
NO_REFERENCE: Final[str] = "SELECT sequence FROM returned WHERE sequence NOT IN (SELECT sequence FROM reference)"

_SET: Final[str] = (
    f"INSERT OR REPLACE INTO returned SELECT sequence, ?, ?, ?, {placed('?')}, ?, ? FROM reference"
    " WHERE sequence BETWEEN ? AND ? AND state = 0 AND due_at_ms IS NULL AND expires_at_ms IS ?"
)


def there_are(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM returned)").fetchone()[0])


def set_run(connection: sqlite3.Connection, first: int, last: int, counts: ReferenceCounts) -> bool:
    """Counts of all references from first to last; False, and nothing done, where there is more to change of some."""
    if counts.state or counts.due_at_ms is not None:
        return False
    delivery_count, failed, assigned, _, _, expires_at_ms, cause, redrive = counts
    own = (delivery_count, failed, assigned, checksum_of_counts(*counts), cause, redrive)
    values = (*own, first, last, expires_at_ms)
    if connection.execute(_SET, values).rowcount == last - first + 1:
        return True
    forget(connection, range(first, last + 1))
    return False


def forget(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Their own rows say it from here on, or nothing does."""
    delete_integers(connection, "returned", "sequence", sequences)
