"""The columns of an export that this package reads and makes samples of: docs/export-schema.md, version 2."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import types as T

SCHEMA_VERSION = 2
_NOBODY = dict.fromkeys(("producer", "client_id", "host", "version"), "NULL")
#: version -> table -> column of version SCHEMA_VERSION -> Spark SQL over the columns of that version's files, where it is not the column
#: of the same name. Versions that are not named here are refused: what their columns mean is not known.
VERSIONS: dict[int, dict[str, dict[str, str]]] = {
    1: {
        # From where a message was dead-lettered first is not recorded, nor what failed at first, nor for how long:
        # the attempts do, as far as they are kept.
        **{table: {"home_queue": "queue"} | _NOBODY for table in ("messages", "attempts", "dead_letters")},
        "deliveries_by_minute": {"failed_first": "NULL", "failed_ms": "NULL"},
        "deliveries_by_consumer": {"client_id": "NULL", "host": "NULL", "version": "NULL", "failed": "NULL", "failed_ms": "NULL"}
        | {"first_at": "hour", "last_at": "hour + INTERVAL 1 HOUR"},
    },
    SCHEMA_VERSION: {},
}
_COUNTED = "sent moved_in delivered succeeded first_try failed dead_lettered expired dropped purged moved_out".split()
#: Counts of messages that were not durable.
_TRANSIENT = (*(f"transient_{name}" for name in _COUNTED), "kept", "lost")
#: table -> columns that came later within a version: files without them are read as if they held null.
ADDED: dict[str, set[str]] = {
    "messages": {"message_key", "amqp_message_id", "app_id"},
    "attempts": {"message_key", "bases", "exit_status", "rule"},
    "dead_letters": {"fingerprint"},
    "faults": {"back_succeeded", "back_died"},
    "edits": {"first_id"},
    "deliveries_by_minute": set(_TRANSIENT),
}
MANIFEST_NAME = "_homing_export.json"

_SHARED = "broker_id:string schema_version:int32"
_CLIENT = "client_id:string host:string version:string"
_KEYS = f"{_SHARED} message_id:int64 sequence:int64 queue_id:int64 queue:string address:string"

_COLUMNS = {
    "messages": f"{_KEYS} state:string outcome:string attempts:int32 failed_attempts:int32 delivery_count:int32 reason:string suspect:bool "
    "priority:int32 body_bytes:int64 hops:int32 sent_at:time entered_at:time due_at:time expires_at:time settled_at:time "
    f"target_queues:strings message_key:string amqp_message_id:string app_id:string home_queue:string producer:string {_CLIENT}",
    "attempts": f"{_KEYS} attempt:int32 at:time assigned_at:time given_at:time outcome:string error_class:string error_type:string "
    "bases:strings error_text:string exit_status:int64 reason:string traceback:string fingerprint:string consumer:string "
    "connection:string delivery_count:int32 failed_attempts:int32 decision:string rule:string delay_ms:int64 due_at:time policy:string "
    f"message_key:string home_queue:string producer:string {_CLIENT}",
    "dead_letters": f"{_KEYS} died_at:time reason:string attempts:int32 error_class:string error_type:string error_text:string "
    f"sent_at:time target_queues:strings lies_in:strings hops:hops home_queue:string producer:string {_CLIENT} fingerprint:string",
    "queues": f"{_SHARED} queue_id:int64 queue:string address:string routing_type:string selector:string durable:bool auto_created:bool "
    "paused:bool options_json:string created_at:time deleted_at:time ready:int64 scheduled:int64 parked:int64",
    "settings": f"{_SHARED} from_at:time pattern:string setting:string value_json:string",
    "policies": f"{_SHARED} policy:string from_at:time settings_json:string",
    "deliveries_by_minute": f"{_SHARED} queue_id:int64 queue:string minute:time {' '.join(f'{name}:int64' for name in _COUNTED)} "
    f"failed_first:int64 failed_ms:int64 {' '.join(f'{name}:int64' for name in _TRANSIENT)}",
    "deliveries_by_consumer": f"{_SHARED} queue_id:int64 queue:string hour:time consumer:string {_CLIENT} succeeded:int64 held_ms:int64 "
    "failed:int64 failed_ms:int64 first_at:time last_at:time",
    "faults": f"{_SHARED} fingerprint:string queue:string error_class:string text:string first_at:time last_at:time failures:int64 "
    "waiting:int64 succeeded:int64 died:int64 redriven:int64 back_succeeded:int64 back_died:int64 dead:int64 muted:bool fixed_in:string "
    "fixed_at:time regressed_at:time",
    "redrives": f"{_SHARED} redrive:int64 queue:string target:string filter_json:string state:string why:string started_at:time "
    "ended_at:time sent:int64 left:int64 succeeded:int64 died:int64 gone:int64 bounced:int64",
    "edits": f"{_SHARED} message_id:int64 original_id:int64 first_id:int64 queue_id:int64 queue:string at:time",
}


def _parsed(columns: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, _, kind in (column.partition(":") for column in columns.split())]


#: table -> [(column, kind)]; a kind is a key of SPARK_TYPES.
TABLES: dict[str, list[tuple[str, str]]] = {table: _parsed(columns) for table, columns in _COLUMNS.items()}

#: kind -> how Spark writes the type
SPARK_TYPES = {
    "string": "string",
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "time": "timestamp",
    "strings": "array<string>",
}
#: One of a message's earlier deaths.
_HOP = _parsed("sequence:int64 queue:string address:string reason:string at:time attempts:int32 delivery_count:int32 expires_at:time")
SPARK_TYPES["hops"] = f"array<struct<{','.join(f'{name}:{SPARK_TYPES[kind]}' for name, kind in _HOP)}>>"


def made_in(version: int, table: str, is_archive: bool) -> dict[str, str]:
    """Column -> the expression it is made of. What an archive has was where it says until it was removed."""
    made = VERSIONS[version].get(table, {})
    return made | {"lies_in": "array()"} if is_archive and table == "dead_letters" else made


def struct_of(columns: Sequence[tuple[str, str]]) -> T.StructType:
    """Columns (name, kind) as Spark's readers take them. Not as text: its parser takes half a second to read all of TABLES."""
    one: dict[str, T.DataType] = {
        "string": T.StringType(),
        "bool": T.BooleanType(),
        "int32": T.IntegerType(),
        "int64": T.LongType(),
        "time": T.TimestampType(),
        "strings": T.ArrayType(T.StringType()),
    }
    one["hops"] = T.ArrayType(T.StructType([T.StructField(name, one[kind]) for name, kind in _HOP]))
    return T.StructType([T.StructField(name, one[kind]) for name, kind in columns])


#: What names a row for good: of rows of overlapping exports with the same key, the one of the latest export counts.
KEYS = {
    "messages": ("broker_id", "sequence"),
    "attempts": ("broker_id", "sequence", "attempt"),
    "dead_letters": ("broker_id", "sequence"),
    "queues": ("broker_id", "queue_id"),
    "settings": ("broker_id", "from_at", "pattern", "setting"),
    "policies": ("broker_id", "policy"),
    "deliveries_by_minute": ("broker_id", "queue_id", "minute"),
    "deliveries_by_consumer": ("broker_id", "queue_id", "hour", "consumer", "client_id", "host", "version"),
    "faults": ("broker_id", "queue", "fingerprint"),
    "redrives": ("broker_id", "redrive"),
    "edits": ("broker_id", "message_id"),
}
#: The column by whose UTC day a table's rows are kept apart, so that a new export touches only its days.
DAY_OF = {
    "messages": "entered_at",
    "attempts": "at",
    "dead_letters": "died_at",
    "deliveries_by_minute": "minute",
    "deliveries_by_consumer": "hour",
}
#: Of these a row tells nothing of another day.
OF_ITS_DAY = ("attempts", "deliveries_by_consumer")


def day_of(at_us: int) -> str:
    """As in a directory's name, such as 2026-11-21."""
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d}"
