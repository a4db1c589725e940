"""The last events of each kind."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, Final

from ..store.packing import unpack

_EVENTS: Final = "SELECT event_id, queue, address, event_blob FROM event WHERE event_id > ? AND at_ms >= ?"


#: Its number, the queue it happened to and the address of that, and what is said of it.
Event = tuple[int, str, str, dict[str, Any]]


def events(connection: sqlite3.Connection, kinds: Collection[str], since_ms: int, after: int, limit: int) -> list[Event]:
    """In the order in which they happened, from behind number ``after``. ``kinds`` empty: all; so many, ``limit`` -1: all."""
    of_kinds = f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(f"{_EVENTS}{of_kinds} ORDER BY event_id LIMIT ?", (after, since_ms, *kinds, limit))
    return [(event_id, queue, address, unpack(blob)) for event_id, queue, address, blob in rows]
