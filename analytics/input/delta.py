"""The tables of a store as Delta Lake tables, for other readers: each state of the store is a commit to the log of each table.

A commit follows from a state and the one before it, so that whoever comes first writes it, and nobody has to read the log. What the
protocol asks of a writer that only adds and removes whole files: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from .files import Files
from .schema import TABLES, struct_of

LOG = "_delta_log"
Row = dict[str, Any]


def name_of(version: int) -> str:
    return f"{version:020d}.json"


def commit(files: Files, store: str, table: str, version: int, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Publish a version of ``table`` where it is not there: ``was``, ``now``: day -> the directory of its rows in ``store``."""
    actions = _actions(files, store, table, version, was, now)
    files.publish(f"{store}/{table}/{LOG}/{name_of(version)}", "".join(json.dumps(row) + "\n" for row in actions))


def _actions(files: Files, store: str, table: str, version: int, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Row]:
    at_ms = time.time_ns() // 1_000_000
    yield {"commitInfo": {"timestamp": at_ms, "operation": "MERGE"}}
    if version == 0:
        columns = struct_of([*TABLES[table], ("exported_at_us", "int64"), ("day", "string")])
        yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        shape = {"format": {"provider": "parquet", "options": {}}, "schemaString": columns.json(), "partitionColumns": ["day"]}
        yield {"metaData": shape | {"id": str(uuid5(NAMESPACE_URL, f"{store}/{table}")), "configuration": {}, "createdTime": at_ms}}
    for verb, days, others in (("remove", was, now), ("add", now, was)):
        moved = [(day, place) for day, place in days.items() if others.get(day) != place]
        for day, name in ((day, name) for day, place in moved for name in files.parquet_files(f"{store}/{place}")):
            what: Row = {"path": quote(name.removeprefix(f"{store}/{table}/")), "dataChange": True}
            if verb == "remove":
                yield {verb: what | {"deletionTimestamp": at_ms}}
            else:
                footer, of_day = files.parquet_footer(name), {"partitionValues": {"day": day}, "modificationTime": at_ms}
                yield {verb: what | of_day | {"size": footer.bytes, "stats": json.dumps({"numRecords": footer.rows})}}
