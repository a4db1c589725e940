"""Dead letters of before their causes were kept (journal version 11): why each is one, as its last attempt says."""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple, Protocol

from ..fingerprint import fingerprint, of_fault
from ..store.history_rows import ATTEMPTS, ATTEMPTS_OF_MESSAGE
from ..store.packing import unpack, unpack_hops
from ..upkeep.tombstones import THERE

_MOVED: Final = (
    "SELECT message_id, sequence, queue_id, overlay_blob FROM reference r INDEXED BY reference_message WHERE overlay_blob IS NOT NULL"
    f" AND coalesce(cause, 0) = 0 AND (message_id, sequence) > (?, ?) AND {THERE} ORDER BY message_id, sequence LIMIT ?"
)
_LAST_ATTEMPT: Final = (
    f"SELECT failure_blob FROM {ATTEMPTS} WHERE {ATTEMPTS_OF_MESSAGE} AND sequence = :sequence ORDER BY attempt DESC LIMIT 1"
)
#: Where a look goes on: (message_id, sequence).
Cursor = tuple[int, int]


class Names(Protocol):
    """Of queues, by id."""

    def __getitem__(self, queue_id: int) -> str | None: ...


class OldDeath(NamedTuple):
    queue_id: int
    sequence: int
    message_id: int
    #: From where it was dead-lettered last, why (contract.DEATHS), and when.
    died_in: str
    reason: str
    at_ms: int
    #: Of its fault: fingerprint, class, text and traceback.
    fault: tuple[str, str, str, str]


def old_deaths(connection: sqlite3.Connection, after: Cursor, limit: int, names: Names) -> tuple[list[OldDeath], Cursor | None]:
    """Those among the next so many messages that were moved, without a cause, and where to go on; None at the end. Raises Damaged.

    What was sent back to a queue that it came from is no dead letter any more.
    """
    rows = connection.execute(_MOVED, (*after, limit)).fetchall()
    found = []
    for message_id, sequence, queue_id, overlay in rows:
        hops = unpack_hops(overlay, sequence)
        if hops and not any(detail["queue"] == names[queue_id] for _, detail in hops):
            entry, detail = hops[0]
            row = connection.execute(_LAST_ATTEMPT, {"message_id": message_id, "sequence": entry}).fetchone()
            fault = _fault_of(unpack(row[0]) if row else {}, detail["queue"], detail["reason"])
            found.append(OldDeath(queue_id, sequence, message_id, detail["queue"], detail["reason"], detail["at_ms"], fault))
    return found, (rows[-1][0], rows[-1][1]) if len(rows) == limit else None


def _fault_of(attempt: dict[str, Any], queue: str, reason: str) -> tuple[str, str, str, str]:
    if not attempt:
        return fingerprint(reason, queue), reason, "", ""
    fault, outcome = attempt.get("fault") or {}, str(attempt["outcome"])
    text = str(fault.get("error_text") or fault.get("reason", ""))
    return of_fault(outcome, queue, fault), str(fault.get("error_type") or outcome), text, str(fault.get("traceback", ""))
