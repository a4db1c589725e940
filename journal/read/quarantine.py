"""Setting a row aside that is not what was written: into table ``quarantine``, with everything of it that is readable."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any, Final

from ..store import returned
from ..store.packing import Damaged, pack

log = logging.getLogger("homing.journal")

_NAMES: Final[str] = (
    "queue_id, rank, sequence, message_id, delivery_count, failed, assigned, state,"
    " due_at_ms, expires_at_ms, entered_at_ms, overlay_blob, message_blob, checksum, counts_checksum, cause, redrive"
)
#: The columns; and where they come from.
REFERENCE_COLUMNS: Final[str] = _NAMES.replace("delivery_count, failed, assigned", returned.COUNTS).replace(
    "counts_checksum, cause, redrive", f"{returned.CHECKSUM}, {returned.CAUSE}, {returned.REDRIVE}"
)
REFERENCE: Final[str] = f"{REFERENCE_COLUMNS} FROM reference r {returned.JOIN}"


def sentence(row: tuple[Any, ...], why: Damaged) -> str:
    """What is wrong with a row of table reference."""
    return f"message {row[3]} in queue {row[0]} (row {row[2]} of table reference) {why}"


def set_aside(connection: sqlite3.Connection, row: tuple[Any, ...], why: Damaged, now_ms: int) -> str:
    """Moves the row of table reference (REFERENCE_COLUMNS) and says so in the log; returns the sentence."""
    queue_id, _, sequence, message_id, *_ = row
    kept = dict(zip(_NAMES.replace(" ", "").split(","), row, strict=True))
    if kept["message_blob"] is None:
        shared = connection.execute("SELECT message_blob FROM message WHERE message_id = ?", (message_id,)).fetchone()
        kept["shared_blob"] = shared and shared[0]
    values = (sequence, queue_id, message_id, now_ms, str(why), pack(kept))
    connection.execute("INSERT OR REPLACE INTO quarantine VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute("DELETE FROM reference WHERE sequence = ?", (sequence,))
    returned.forget(connection, (sequence,))
    said = sentence(row, why)
    log.error("message-quarantined: %s", said)
    return said
