"""What a deleted queue still holds on disk goes in small steps: a queue of millions is deleted at once, its rows when there is time.

Until then nobody sees them: a page asks for a queue that lives, and so does the export. Each step counts what it removes as purged, and
leaves the outcome that a message with a history has.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from ..commit.batch_writer import BODIES_IN_USE
from ..commit.counts import MINUTE_NAMES
from ..commit.history_writer import write_outcomes
from ..commit.writer_state import WriterState
from ..contract import OutcomeDetail, Outcomes
from ..store import returned
from ..store.bulk_statements import delete_integers
from ..store.commits import commit
from ..store.packing import Damaged, unpack_message
from .tombstones import THERE

log = logging.getLogger("homing.journal")

_STEP_ROWS: Final = 300
_DELETED: Final = (
    "SELECT queue_id FROM queue q WHERE deleted_at_ms IS NOT NULL AND EXISTS"
    f" (SELECT 1 FROM reference r INDEXED BY reference_order WHERE r.queue_id = q.queue_id AND {THERE})"
)
#: In one row: the interpreter's lock is asked for anew for each, and beside a busy loop it comes only after a while.
#: Each is [sequence, rank, message_id, whether it has a history, whether others may have its message, too].
_ROWS: Final = (
    "SELECT json_group_array(json_array(sequence, rank, message_id, told, shared)) FROM ("
    f"SELECT sequence, rank, message_id, {returned.FAILED} > 0 OR overlay_blob IS NOT NULL AS told, message_blob IS NULL AS shared"
    f" FROM reference r INDEXED BY reference_order {returned.JOIN} WHERE queue_id = ? AND (rank, sequence) > (?, ?) AND {THERE}"
    " ORDER BY rank, sequence LIMIT ?)"
)
_TOLD: Final = (
    f"SELECT r.message_id, sequence, {returned.FAILED}, {returned.DELIVERY_COUNT}, entered_at_ms, coalesce(r.message_blob, m.message_blob),"
    f" iif(r.message_blob IS NULL, m.checksum, r.checksum) FROM reference r {returned.JOIN}"
    " LEFT JOIN message m ON m.message_id = r.message_id WHERE sequence IN (SELECT value FROM json_each(?))"
)
_PURGED: Final = (
    f"INSERT INTO minute (queue_id, minute, {', '.join(MINUTE_NAMES)}) VALUES (?, ?, {', '.join('?' * len(MINUTE_NAMES))})"
    " ON CONFLICT (queue_id, minute) DO UPDATE SET purged = purged + excluded.purged"
)


class Sweep:
    """Knows which deleted queues have rows left. ``due`` is cheap; ``step`` runs on the store's thread, outside a transaction."""

    def __init__(self) -> None:
        #: None: to be looked up.
        self._queues: list[int] | None = None
        #: How far the last of them was swept: (rank, sequence). Nothing joins it any more.
        self._after = (-1, 0)

    def deleted(self, queue_ids: Iterable[int]) -> None:
        if self._queues is not None:
            self._queues[:0] = queue_ids

    def due(self) -> bool:
        return self._queues is None or bool(self._queues)

    def step(self, connection: sqlite3.Connection, state: WriterState) -> int:
        """Removes some hundred rows, in one transaction; returns how many."""
        if self._queues is None:
            self._queues = [queue_id for (queue_id,) in connection.execute(_DELETED)]
        found: list[list[int]] = []
        queue_id = -1
        while self._queues and not found:
            queue_id = self._queues[-1]
            found = json.loads(connection.execute(_ROWS, (queue_id, *self._after, _STEP_ROWS)).fetchone()[0])
            if not found:
                self._queues.pop()
                self._after = (-1, 0)
        if not found:
            return 0
        now_ms = state.clock_ms
        told = [row[0] for row in found if row[3]]
        outcomes = [_outcome(queue_id, row, now_ms) for row in connection.execute(_TOLD, (json.dumps(told),))] if told else []
        before = state.history_bytes, state.references
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._remove(connection, state, queue_id, found, outcomes)
            commit(connection)
        except BaseException:
            state.history_bytes, state.references = before
            raise
        self._after = max((rank, sequence) for sequence, rank, *_ in found)
        return len(found)

    def _remove(
        self, connection: sqlite3.Connection, state: WriterState, queue_id: int, found: list[list[int]], outcomes: list[Outcomes]
    ) -> None:
        state.references -= delete_integers(connection, "reference", "sequence", [row[0] for row in found])
        if state.returned:
            returned.forget(connection, [row[0] for row in found])
        write_outcomes(connection, outcomes, state)
        counts = [len(found) if name == "purged" else 0 for name in MINUTE_NAMES]
        connection.execute(_PURGED, (queue_id, state.clock_ms // 60_000, *counts))
        _delete_bodies(connection, [row[2] for row in found if row[4]])
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('history_bytes', ?)", (state.history_bytes,))


def _outcome(queue_id: int, row: tuple[Any, ...], now_ms: int) -> Outcomes:
    """The outcome of a message with a history."""
    message_id, sequence, failed, delivery_count, entered_at_ms, blob, checksum = row
    detail, sent_at_ms = OutcomeDetail(None, failed, delivery_count), None
    try:
        message = unpack_message(blob or b"", checksum or 0, message_id)
        detail, sent_at_ms = detail._replace(address=message.address), message.sent_at_ms
    except Damaged as error:
        # It goes either way; what is readable of it stays in its history.
        log.warning("message-unreadable: message %d, which went with its queue, %s", message_id, error)
    return Outcomes(queue_id, now_ms, "purged", detail, [(message_id, sequence, sent_at_ms, entered_at_ms)])


def _delete_bodies(connection: sqlite3.Connection, message_ids: list[int]) -> None:
    if message_ids:
        found = connection.execute(BODIES_IN_USE.format(values=",".join("?" * len(message_ids))), message_ids)
        delete_integers(connection, "message", "message_id", set(message_ids) - {message_id for (message_id,) in found})
