"""What the writer carries from batch to batch."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from ..store import returned
from ..upkeep import tombstones


@dataclass(slots=True)
class WriterState:
    """As it stands on disk."""

    clock_ms: int
    next_queue_id: int
    next_duplicate: int
    history_bytes: int
    #: address -> rows in table duplicate (never fewer than there are).
    duplicates: dict[str, int]
    #: Rows of table reference, about, and those among them that are gone.
    references: int
    tombstones: int
    #: Whether table ``returned`` may have rows (returned.py).
    returned: bool
    #: Addresses that were removed and have duplicate ids yet: these go in steps (leftovers.py), or at once where the address comes back.
    forgotten: dict[str, None] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> WriterState:
        """As the tables have it."""
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        duplicates = dict(connection.execute("SELECT address, count(*) FROM duplicate GROUP BY address"))
        addresses = {name for (name,) in connection.execute("SELECT name FROM address")}
        return cls(
            meta["clock_ms"],
            meta["next_queue_id"],
            connection.execute("SELECT coalesce(max(number), 0) + 1 FROM duplicate").fetchone()[0],
            meta["history_bytes"],
            duplicates,
            connection.execute("SELECT count(*) FROM reference").fetchone()[0],
            tombstones.count(connection),
            returned.there_are(connection),
            dict.fromkeys(duplicates.keys() - addresses),
        )

    def copy(self, duplicates: bool, forgotten: bool) -> WriterState:
        """For a batch that may fail; ``duplicates``: it adds some; ``forgotten``: it removes addresses, or adds some."""
        # Not dataclasses.replace, which takes ten times as long.
        return WriterState(
            self.clock_ms,
            self.next_queue_id,
            self.next_duplicate,
            self.history_bytes,
            dict(self.duplicates) if duplicates else self.duplicates,
            self.references,
            self.tombstones,
            self.returned,
            dict(self.forgotten) if forgotten else self.forgotten,
        )
