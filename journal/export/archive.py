"""Dead letters that are about to be removed, as an export of their own that has their bodies, too: docs/export-schema.md, archives.

Read by their keys from one snapshot, and there whole or not at all, as an export is. What is archived and not removed, because the process
ended in between, is archived again: its rows have the same keys.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..store import returned
from ..store.building import building
from ..store.history_rows import ATTEMPTS, ATTEMPTS_OF_MESSAGE, OUTCOMES, OUTCOMES_OF_MESSAGE
from ..store.packing import Damaged, unpack, unpack_message
from ..upkeep.tombstones import THERE
from . import parquet, rows
from .export import ExportError, snapshot_of, write_manifest
from .parquet import TABLES, Table, TableWriter
from .rows import Row, Snapshot, us

#: Turned into columns at once: so many rows, of bodies together so many bytes.
_BATCH_ROWS = 1_000
_BATCH_BYTES = 16 << 20

_LETTER = f"""
SELECT r.queue_id, r.rank, r.sequence, r.message_id, {returned.DELIVERY_COUNT}, {returned.FAILED}, r.entered_at_ms, r.overlay_blob,
       coalesce(r.message_blob, m.message_blob), iif(r.message_blob IS NULL, m.checksum, r.checksum)
FROM reference r {returned.JOIN} LEFT JOIN message m ON m.message_id = r.message_id AND r.message_blob IS NULL
WHERE r.sequence = ? AND {THERE}
"""
_OF_MESSAGE = f"SELECT message_id, sequence, attempt, queue_id, at_ms, failure_blob FROM {ATTEMPTS} WHERE {ATTEMPTS_OF_MESSAGE}"
_DEATHS = (
    f"SELECT message_id, sequence, outcome_id, sent_at_ms FROM {OUTCOMES} WHERE {OUTCOMES_OF_MESSAGE} AND outcome = 'dead-lettered'"
    " ORDER BY sequence"
)
_BODIES = "message_id:int64 sequence:int64 queue_id:int64 queue:string address:string properties_json:string body:binary"


#: One that stands in no row of the journal: the name of its queue, and what ``_LETTER`` would select.
Letter = tuple[str, Sequence[Any]]


def archive(
    directory: Path, place: Path, name: str, sequences: Sequence[int], why: str, at_ms: int, letters: Sequence[Letter] = ()
) -> tuple[Path, dict[int, int]]:
    """Writes those of ``sequences`` that are there to the new directory ``place/name``; returns it, and sequence -> message id of each.

    ``why`` they are removed, and ``at_ms`` when, by the broker's clock; ``letters``: of them those that are in memory alone.
    Raises ExportError (``no-analytics``, ``export-io``) and JournalError; then there is nothing under that name.
    """
    parquet.require_pyarrow(ExportError)
    out = place / name
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with building(out, "*") as partial, snapshot_of(directory, with_tracebacks=True, at_ms=at_ms) as snapshot:
            archived = _Archive(snapshot, sequences, why, letters)
            written = {table.name: _write(table, partial, snapshot, read) for table, read in archived.tables()}
            # Whatever an export says of them, or of all the others, goes before.
            write_manifest(partial, snapshot, written, archived.oldest_ms * 1000 + secrets.randbelow(1000))
            parquet.make_durable(partial)
            os.rename(partial, out)
            parquet.fsync_directory(place)
    except (sqlite3.DatabaseError, Damaged) as error:
        raise JournalError("journal-damaged", f"The journal cannot be read: {error}.", "Run homing journal check.") from error
    except OSError as error:
        raise ExportError("export-io", f"Writing the archive failed: {error}.", f"Make room in {place}, or name another place.") from error
    return out, archived.found


class _Archive:
    """What each table has of the chosen ones; the others have no row."""

    def __init__(self, snapshot: Snapshot, sequences: Sequence[int], why: str, letters: Sequence[Letter]) -> None:
        self._snapshot = snapshot
        self._why = why
        self._sequences = sequences
        self._in_memory = {row[2]: row for _, row in letters}
        for queue, row in letters:
            snapshot.queue_names.setdefault(row[0], queue)
        #: sequence -> message id of those that are there; filled by the first table.
        self.found: dict[int, int] = {}
        #: When the first of them came to where they lie.
        self.oldest_ms = snapshot.now_ms
        self._queues: set[int] = set()

    def tables(self) -> Iterator[tuple[Table, Callable[[], Iterator[Row]]]]:
        own: dict[str, Callable[[], Iterator[Row]]] = {
            "messages": self._messages,
            "attempts": self._attempts,
            "dead_letters": self._dead_letters,
            "queues": self._queues_named,
        }
        yield from ((table, own.get(table.name, lambda: iter(()))) for table in TABLES)
        yield Table("bodies", _BODIES, lambda _: iter(())), self._bodies

    def _letters(self) -> Iterator[tuple[Any, ...]]:
        for sequence in self._sequences:
            here = self._in_memory.get(sequence)
            yield from self._snapshot.select(_LETTER, sequence) if here is None else [tuple(here)]

    def _messages(self) -> Iterator[Row]:
        """As they are once they are removed."""
        for queue_id, rank, sequence, message_id, delivery_count, failed, entered_ms, overlay, blob, checksum in self._letters():
            if blob is None:
                raise Damaged(f"the body of message {message_id} is missing")
            message, hops = unpack_message(blob, checksum, message_id), [] if overlay is None else unpack(overlay)
            self.found[sequence] = message_id
            self._queues.add(queue_id)
            self.oldest_ms = min(self.oldest_ms, entered_ms)
            queue = self._snapshot.queue_name(queue_id)
            yield (
                message_id, sequence, queue_id, queue, message.address, "settled", "dropped",
                failed, failed, delivery_count, self._why, None, 9 - rank, len(message.body), len(hops),
                us(message.sent_at_ms), us(entered_ms), None, None, us(self._snapshot.now_ms), [], None,
                *self._snapshot.ids(message.properties),
                hops[-1].get("queue") if hops else queue, message.producer or None, None, None, None,
            )  # fmt: skip

    def _bodies(self) -> Iterator[Row]:
        for queue_id, _, sequence, message_id, _, _, _, _, blob, checksum in self._letters():
            message = unpack_message(blob, checksum, message_id)
            properties = rows.as_json(message.properties) if message.properties else None
            yield message_id, sequence, queue_id, self._snapshot.queue_name(queue_id), message.address, properties, message.body

    def _attempts(self) -> Iterator[Row]:
        messages = [{"message_id": message_id} for message_id in set(self.found.values())]
        found = [row for each in messages for row in self._snapshot.connection.execute(_OF_MESSAGE, each)]
        self._queues.update(row[3] for row in found)
        for message_id, sequence, *what in sorted(found, key=lambda row: int(row[4])):
            yield message_id, sequence, *rows.failure_row(self._snapshot, *what)

    def _dead_letters(self) -> Iterator[Row]:
        last = rows.LastAttempts(self._snapshot)
        copies: dict[int, list[Row]] = {}
        for queue_id, _, sequence, message_id, _, _, _, overlay, *_ in self._letters():
            if overlay is not None:
                copies.setdefault(message_id, []).append((message_id, queue_id, sequence, overlay, 0))
        for message_id, remaining in sorted(copies.items()):
            dead = self._snapshot.connection.execute(_DEATHS, {"message_id": message_id}).fetchall()
            yield from rows.deaths_of_one(self._snapshot, last, dead, remaining)

    def _queues_named(self) -> Iterator[Row]:
        return (row for row in rows.queues(self._snapshot) if row[0] in self._queues)


def _write(table: Table, partial: Path, snapshot: Snapshot, read: Callable[[], Iterator[Row]]) -> int:
    number = 0
    with closing(TableWriter(table, partial, snapshot.broker_id)) as writer:
        batch: list[Row] = []
        size = 0
        for row in read():
            batch.append(row)
            size += len(row[-1]) if table.name == "bodies" else 0
            if len(batch) == _BATCH_ROWS or size >= _BATCH_BYTES:
                writer.write(batch)
                number, batch, size = number + len(batch), [], 0
        if batch:
            writer.write(batch)
    return number + len(batch)
