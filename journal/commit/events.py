"""Events, of which the last of each kind are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, Final

from ..store.bulk_statements import run_values
from ..store.packing import pack

#: Of each kind.
KEPT: Final = 200
_INSERT: Final = "INSERT INTO event (kind, at_ms, queue, address, event_blob) VALUES {values}"
_TRIM: Final = (
    "DELETE FROM event WHERE kind = :kind AND event_id <="
    " (SELECT event_id FROM event WHERE kind = :kind ORDER BY event_id DESC LIMIT 1 OFFSET :kept)"
)


def write_events(connection: sqlite3.Connection, events: Collection[tuple[str, int, str, str, dict[str, Any]]]) -> None:
    """See LastStates.events."""
    flat: list[Any] = [value for *plain, content in events for value in (*plain, pack(content))]
    run_values(connection, _INSERT, 5, flat)
    for kind in dict.fromkeys(kind for kind, *_ in events):
        connection.execute(_TRIM, {"kind": kind, "kept": KEPT})
