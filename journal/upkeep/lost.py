"""What came into queues and left them, by table ``minute``; and what a crash took of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

CAME: Final = ("sent", "moved_in")
WENT: Final = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")


def durable(columns: Iterable[str]) -> str:
    """SQL: the sum of these columns, of durable messages alone."""
    return " + ".join(f"{name} - transient_{name}" for name in columns)


def _transient(columns: Iterable[str]) -> str:
    return " + ".join(f"transient_{name}" for name in columns)


def transient_here(counts: Mapping[str, int]) -> int:
    """Of a queue's counts, all together: messages that are not durable and were still there."""
    gone = sum([counts[f"transient_{name}"] for name in WENT]) + counts["kept"] + counts["lost"]
    return sum([counts[f"transient_{name}"] for name in CAME]) - gone


_HERE: Final = (
    f"SELECT queue_id, sum({_transient(CAME)}) - sum({_transient(WENT)} + kept + lost) AS here"
    " FROM minute GROUP BY queue_id HAVING here != 0"
)
_ADD: Final = (
    "INSERT INTO minute (queue_id, minute, sent, transient_sent, lost) VALUES (?, ?, ?, ?, ?) ON CONFLICT (queue_id, minute) DO UPDATE SET"
    " sent = sent + excluded.sent, transient_sent = transient_sent + excluded.transient_sent, lost = lost + excluded.lost"
)


def count_lost(connection: sqlite3.Connection, now_ms: int) -> None:
    """After a crash: of what was transient nothing is there. More may have been kept than was counted in: that came in the last minute."""
    for queue_id, here in connection.execute(_HERE).fetchall():
        came, lost = max(0, -here), max(0, here)
        connection.execute(_ADD, (queue_id, now_ms // 60_000, came, came, lost))
