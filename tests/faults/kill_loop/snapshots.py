"""The journal's contents between two brokers, through a read-only connection: what a broker that starts now would find."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from homing.journal.read.check import check
from homing.journal.read.queries import open_read_only
from homing.journal.store import returned
from homing.journal.store.packing import unpack_message
from homing.journal.upkeep.spilled import LASTING, SPILLED
from tests.faults.kill_loop.events import Entry, Snapshot, now_ms

_REFERENCES: Final = f"""
SELECT q.name, r.message_id, {returned.DELIVERY_COUNT}, {returned.FAILED},
       coalesce(r.message_blob, m.message_blob), iif(r.message_blob IS NULL, m.checksum, r.checksum)
FROM reference r {returned.JOIN} JOIN queue q USING (queue_id) LEFT JOIN message m USING (message_id)
WHERE {LASTING} ORDER BY r.sequence
"""
_SPILLED: Final = f"SELECT count(*) FROM reference r WHERE {SPILLED}"


def key_of(body: bytes) -> str:
    """Bodies begin with their key; the rest of them is padding."""
    return body.split(b"\n", 1)[0].decode()


def take_snapshot(directory: Path, name: str, whole: bool = False, ours: tuple[str, ...] = ("",), orderly: bool = False) -> Snapshot:
    """``whole``: compares indexes with their tables as well; ``ours``: how queues begin that are looked into. Nobody may be writing."""
    at = now_ms()
    connection = open_read_only(directory)
    try:
        rows = connection.execute(_REFERENCES).fetchall()
        (spilled,) = connection.execute(_SPILLED).fetchone()
    finally:
        connection.close()
    entries = [
        Entry(queue, number, key_of(unpack_message(blob, checksum, number).body), delivery_count, failed)
        for queue, number, delivery_count, failed, blob, checksum in rows
        if queue.startswith(ours)
    ]
    return Snapshot(name, at, entries, check(directory, quick=not whole).problems, orderly, spilled)
