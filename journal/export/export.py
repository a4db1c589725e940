"""Export of a journal, live or stopped, to Parquet: docs/export-schema.md, one snapshot, appearing whole or not at all.

The journal is read through one ``mode=ro`` connection and one read transaction. While that lasts no checkpoint can pass it,
so the write-ahead log grows under a busy broker; past a budget the export gives up with an error, never the producers.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..read.queries import open_read_only
from ..store.building import building
from ..store.directory import DATABASE_NAME, damaged
from ..store.packing import Damaged
from . import parquet as export_parquet
from .parquet import SCHEMA_VERSION, TABLES, Table
from .rows import IdsOf, Mark, Row, Snapshot, us

MANIFEST_NAME = "_homing_export.json"
#: The tables of the journal that only grow at their ends.
HISTORY = ("failure", "outcome")
#: Rows turned into columns at once; also how often the write-ahead log is looked at.
BATCH_ROWS = 5_000

#: What a broker at a few hundred commits a second writes while two million messages are exported, with room to spare.
WAL_BUDGET_BYTES = 768 << 20

#: Called with (table, rows written so far), once a batch and once more when the table is done.
Progress = Callable[[str, int], None]


class ExportError(JournalError):
    """An export that could not be made. Nothing is left under the final name. Codes:

    - ``no-analytics``: pyarrow is not installed.
    - ``out-exists``: the place for the export is taken.
    - ``not-an-export``: what was named as the last export is none.
    - ``other-broker``: that is another broker's.
    - ``wal-budget``: the broker wrote more meanwhile than may wait for a checkpoint.
    - ``export-io``: the export could not be written.
    """


@dataclass(frozen=True, slots=True)
class ExportSummary:
    out: Path
    broker_id: str
    exported_at_us: int
    #: table -> rows
    rows: dict[str, int]
    bytes_written: int


def export(
    directory: Path,
    out: Path,
    *,
    with_tracebacks: bool = False,
    progress: Progress | None = None,
    wal_budget_bytes: int = WAL_BUDGET_BYTES,
    ids: IdsOf | None = None,
    since: Path | None = None,
) -> ExportSummary:
    """Write the journal in ``directory`` to the new directory ``out``.

    ``since``: an earlier export; of what is over only what ended after it is written, to be read together with that one.
    ``wal_budget_bytes``: how much the journal's write-ahead log may grow meanwhile; never more than half of what its disk has free.
    ``ids``: see Snapshot; None: they are left out.
    Raises ExportError, and JournalError where the journal is missing, damaged, or of another version.
    """
    export_parquet.require_pyarrow(ExportError)
    out = Path(os.path.abspath(out))
    _check_out(out)
    try:
        with ExitStack() as half_made:
            with snapshot_of(Path(directory), with_tracebacks) as snapshot:
                snapshot.ids = ids or snapshot.ids
                snapshot.since = None if since is None else _mark_of(since, snapshot.broker_id)
                last = {name: snapshot.connection.execute(f"SELECT max({name}_id) FROM {name}").fetchone()[0] or 0 for name in HISTORY}
                watch = _WalWatch(Path(directory) / DATABASE_NAME, wal_budget_bytes)
                out.parent.mkdir(parents=True, exist_ok=True)
                partial = half_made.enter_context(building(out, "*"))
                rows = {table.name: _write_table(snapshot, table, partial, watch, progress) for table in TABLES}
            write_manifest(partial, snapshot, rows, snapshot.now_ms * 1000, last)
            bytes_written = export_parquet.make_durable(partial)
            _check_out(out)
            os.rename(partial, out)
            export_parquet.fsync_directory(out.parent)
    except (sqlite3.DatabaseError, Damaged) as error:
        raise damaged(f"it cannot be read: {error}") from error
    except OSError as error:
        raise ExportError("export-io", f"Writing the export failed: {error}.", f"Free or name another place than {out.parent}.") from error
    return ExportSummary(out, snapshot.broker_id, snapshot.now_ms * 1000, rows, bytes_written)


def _check_out(out: Path) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise ExportError("out-exists", f"{out} is there already and not an empty directory.", "Name a new directory, or remove that one.")


def _mark_of(since: Path, broker_id: str) -> Mark:
    try:
        manifest = json.loads((since / MANIFEST_NAME).read_text(encoding="utf-8"))
        of_broker = manifest["broker_id"]
        mark = Mark(int(manifest["exported_at_us"]), {name: int(manifest["last"][name]) for name in HISTORY})
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{since} holds no {MANIFEST_NAME} that tells how far it came."
        raise ExportError("not-an-export", text, "Name an export that this version made, or make a whole one.") from error
    if of_broker != broker_id:
        raise ExportError("other-broker", f"{since} is of another broker's journal.", "Name the last export of this one.")
    return mark


@contextmanager
def snapshot_of(directory: Path, with_tracebacks: bool, at_ms: int | None = None) -> Iterator[Snapshot]:
    """A read transaction that has begun: everything read in it shows the same instant.

    ``at_ms``: which one that is by the broker's clock; None: by the system's, which may have been set back since.
    """
    with closing(open_read_only(directory)) as connection:
        connection.execute("BEGIN")
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        names = dict(connection.execute("SELECT queue_id, name FROM queue"))
        now_ms = max(time.time_ns() // 1_000_000 if at_ms is None else at_ms, int(meta.get("clock_ms", 0)))
        yield Snapshot(connection, now_ms, with_tracebacks, str(meta["broker_id"]), names, meta.get("history_from_ms"))


class _WalWatch:
    """Ends the export when the write-ahead log outgrows the budget, as the log cannot be cut while the snapshot is open."""

    def __init__(self, database: Path, budget_bytes: int) -> None:
        self._wal = database.with_name(database.name + "-wal")
        self._budget_bytes = min(budget_bytes, shutil.disk_usage(database.parent).free // 2)
        self._start_bytes = self._size()

    def _size(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def check(self) -> None:
        grown = self._size() - self._start_bytes
        if grown > self._budget_bytes:
            raise ExportError(
                "wal-budget",
                f"The journal's write-ahead log grew by {grown:,} bytes during the export, more than the {self._budget_bytes:,} allowed.",
                "Export when the broker is less busy, or allow more with --wal-budget.",
            )


def _write_table(snapshot: Snapshot, table: Table, partial: Path, watch: _WalWatch, progress: Progress | None) -> int:
    rows = 0
    with closing(export_parquet.TableWriter(table, partial, snapshot.broker_id)) as writer:
        for batch in _batches(table.rows(snapshot)):
            writer.write(batch)
            rows += len(batch)
            watch.check()
            if progress is not None:
                progress(table.name, rows)
    if progress is not None and rows == 0:
        progress(table.name, 0)
    return rows


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def write_manifest(partial: Path, snapshot: Snapshot, rows: dict[str, int], at_us: int, last: dict[str, int] | None = None) -> None:
    at, since_us = datetime.fromtimestamp(at_us / 1_000_000, UTC), snapshot.since and snapshot.since.at_us
    manifest: dict[str, Any] = {
        "format": "homing-export",
        "schema_version": SCHEMA_VERSION,
        "broker_id": snapshot.broker_id,
        "exported_at": at.isoformat(timespec="milliseconds"),
        "exported_at_us": at_us,
        "history_from_us": max(filter(None, (us(snapshot.history_from_ms), since_us)), default=None),
        "since_us": since_us,
        "last": last,
        "with_tracebacks": snapshot.with_tracebacks,
        "rows": rows,
    }
    (partial / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
