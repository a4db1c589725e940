"""Columns and Parquet files of an export. pyarrow belongs to the extra ``homing[export]`` and is imported when first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..commit.counts import MINUTE_NAMES
from . import rows as export_rows
from .rows import Row, Snapshot

SCHEMA_VERSION = 2
#: A file ends when it has this many rows, so that Spark has parts to share out and a writer's footer stays small.
FILE_ROWS = 1_000_000


class Table(NamedTuple):
    name: str
    #: "name:kind name:kind …", see _arrow_type; broker_id and schema_version come before them.
    columns: str
    rows: Callable[[Snapshot], Iterator[Row]]
    #: The time column whose UTC day partitions the table.
    by_day: str | None = None

    def fields(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, _, kind in (column.partition(":") for column in self.columns.split())]


_ENTRY = "message_id:int64 sequence:int64 queue_id:int64 queue:string address:string"
_CLIENT = "client_id:string host:string version:string"

#: In the order of writing: ``queues`` after ``messages``, which counts what is here.
TABLES = (
    Table(
        "messages",
        f"{_ENTRY} state:string outcome:string attempts:int32 failed_attempts:int32 delivery_count:int32 reason:string suspect:bool "
        "priority:int32 body_bytes:int64 hops:int32 sent_at:time entered_at:time due_at:time expires_at:time settled_at:time "
        f"target_queues:strings message_key:string amqp_message_id:string app_id:string home_queue:string producer:string {_CLIENT}",
        export_rows.messages,
    ),
    Table(
        "attempts",
        f"{_ENTRY} attempt:int32 at:time assigned_at:time given_at:time outcome:string error_class:string error_type:string "
        "bases:strings error_text:string exit_status:int64 reason:string traceback:string fingerprint:string consumer:string "
        "connection:string delivery_count:int32 failed_attempts:int32 decision:string rule:string delay_ms:int64 due_at:time "
        f"policy:string message_key:string home_queue:string producer:string {_CLIENT}",
        export_rows.attempts,
        by_day="at",
    ),
    Table(
        "dead_letters",
        f"{_ENTRY} died_at:time reason:string attempts:int32 error_class:string error_type:string error_text:string sent_at:time "
        f"target_queues:strings lies_in:strings hops:hops home_queue:string producer:string {_CLIENT} fingerprint:string",
        export_rows.dead_letters,
    ),
    Table(
        "queues",
        "queue_id:int64 queue:string address:string routing_type:string selector:string durable:bool auto_created:bool paused:bool "
        "options_json:string created_at:time deleted_at:time ready:int64 scheduled:int64 parked:int64",
        export_rows.queues,
    ),
    Table("settings", "from_at:time pattern:string setting:string value_json:string", export_rows.settings),
    Table("policies", "policy:string from_at:time settings_json:string", export_rows.policies),
    Table(
        "deliveries_by_minute",
        "queue_id:int64 queue:string minute:time " + " ".join(f"{name}:int64" for name in MINUTE_NAMES),
        export_rows.deliveries_by_minute,
    ),
    Table(
        "deliveries_by_consumer",
        f"queue_id:int64 queue:string hour:time consumer:string {_CLIENT} succeeded:int64 held_ms:int64 failed:int64 failed_ms:int64 "
        "first_at:time last_at:time",
        export_rows.deliveries_by_consumer,
    ),
    Table(
        "faults",
        "fingerprint:string queue:string error_class:string text:string first_at:time last_at:time failures:int64 "
        "waiting:int64 succeeded:int64 died:int64 redriven:int64 back_succeeded:int64 back_died:int64 dead:int64 "
        "muted:bool fixed_in:string fixed_at:time regressed_at:time",
        export_rows.faults,
    ),
    Table("edits", "message_id:int64 original_id:int64 first_id:int64 queue_id:int64 queue:string at:time", export_rows.edits),
    Table(
        "redrives",
        "redrive:int64 queue:string target:string filter_json:string state:string why:string started_at:time ended_at:time sent:int64 "
        "left:int64 succeeded:int64 died:int64 gone:int64 bounced:int64",
        export_rows.redrives,
    ),
)


def require_pyarrow(error: Callable[[str, str, str], Exception]) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as missing:
        raise error("no-analytics", "Exporting needs pyarrow, which is not installed.", "pip install 'homing[export]'") from missing


def arrow_schema(table: Table) -> Any:
    """The pyarrow.Schema of a table."""
    import pyarrow as pa

    shared = [pa.field("broker_id", pa.string(), nullable=False), pa.field("schema_version", pa.int32(), nullable=False)]
    return pa.schema([*shared, *(pa.field(name, _arrow_type(kind)) for name, kind in table.fields())])


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    time_type = pa.timestamp("us", tz="UTC")
    hop = pa.struct(
        [
            ("sequence", pa.int64()),
            ("queue", pa.string()),
            ("address", pa.string()),
            ("reason", pa.string()),
            ("at", time_type),
            ("attempts", pa.int32()),
            ("delivery_count", pa.int32()),
            ("expires_at", time_type),
        ]
    )
    types = {"string": pa.string(), "bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "time": time_type, "binary": pa.binary()}
    return types.get(kind) or {"strings": pa.list_(pa.string()), "hops": pa.list_(hop)}[kind]


class TableWriter:
    """Writes one table's rows to part files, a batch at a time. One file is open at any moment."""

    def __init__(self, table: Table, root: Path, broker_id: str) -> None:
        self._table = table
        self._directory = root / table.name
        self._broker_id = broker_id
        self._schema = arrow_schema(table)
        names = [name for name, _ in table.fields()]
        self._day_index = None if table.by_day is None else names.index(table.by_day)
        self._day: str | None = None
        self._writer: Any = None
        self._file_rows = 0
        self._parts = 0
        self._directory.mkdir()

    def write(self, rows: list[Row]) -> None:
        if self._day_index is None:
            self._write_part(rows)
            return
        index = self._day_index
        for day, of_day in groupby(rows, key=lambda row: _day(row[index])):
            if day != self._day:
                self._end_file()
                self._day, self._parts = day, 0
            self._write_part(list(of_day))

    def _write_part(self, rows: list[Row]) -> None:
        import pyarrow as pa

        if self._writer is None:
            self._begin_file()
        columns = [[self._broker_id] * len(rows), [SCHEMA_VERSION] * len(rows), *map(list, zip(*rows, strict=True))]
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._file_rows += len(rows)
        if self._file_rows >= FILE_ROWS:
            self._end_file()

    def _begin_file(self) -> None:
        import pyarrow.parquet as pq

        directory = self._directory if self._day is None else self._directory / f"day={self._day}"
        directory.mkdir(exist_ok=True)
        path = directory / f"part-{self._parts:05d}.parquet"
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", coerce_timestamps="us", version="2.6")
        self._parts += 1
        self._file_rows = 0

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        """End the last file; a table without rows gets one empty file, so that its columns can be read."""
        if self._parts == 0:
            self._begin_file()
        self._end_file()


def _day(at_us: int) -> str:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%d")


def make_durable(root: Path) -> int:
    """Close every file and directory below and with ``root`` to others, as the journal is, and fsync them; the bytes of all files."""
    total_bytes = 0
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            with open(os.path.join(directory, name), "rb") as file:
                os.fchmod(file.fileno(), 0o600)
                os.fsync(file.fileno())
                total_bytes += os.fstat(file.fileno()).st_size
        os.chmod(directory, 0o700)
        fsync_directory(Path(directory))
    return total_bytes


def fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
