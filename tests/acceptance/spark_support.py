"""One Spark session for all tests of a run, and exports made for them."""

from __future__ import annotations

import atexit
import json
import os
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from homing.analytics.input.schema import DAY_OF, MANIFEST_NAME, TABLES
from homing.analytics.spark.session import spark_session, suited_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
COUNTS = [name for name, kind in TABLES["deliveries_by_minute"] if kind == "int64" and name != "queue_id"]


@cache
def session() -> SparkSession:
    """Started at the first use, stopped when the tests are over.

    It leaves no archive of its classes in the user's cache: for one start that takes longer to write than it saves.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.devnull)
        spark = stack.enter_context(spark_session("local[2]", rows=1))
    stack.enter_context(suited_to(spark, 1))
    return spark


def table(dump: Path, name: str) -> list[Row]:
    rows: list[Row] = ds.dataset(dump / name, format="parquet", partitioning=None).to_table().to_pylist()
    return rows


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows, in an order of their own, so that two frames can be compared."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def as_of(dump: Path, out: Path, at: datetime, *, forget_before: datetime | None = None) -> Path:
    """The export that would have been taken at ``at`` (a whole minute), with history forgotten before ``forget_before``, where counts
    are by the hour.
    """
    rows = {name: table(dump, name) for name in ("messages", "attempts", "dead_letters", "queues", "settings", "policies")}
    rows["deliveries_by_minute"] = [row for row in table(dump, "deliveries_by_minute") if row["minute"] < at]
    rows["attempts"] = [row for row in rows["attempts"] if row["at"] < at]
    rows["dead_letters"] = [row for row in rows["dead_letters"] if row["died_at"] < at]
    rows["messages"] = [_entry_at(row, at) for row in rows["messages"] if row["entered_at"] < at]
    if forget_before is not None:
        rows["deliveries_by_minute"] = _by_the_hour(rows["deliveries_by_minute"], forget_before.replace(minute=0))
        for name in ("attempts", "dead_letters"):
            rows[name] = [row for row in rows[name] if row[DAY_OF[name]] >= forget_before]
        rows["messages"] = [row for row in rows["messages"] if row["settled_at"] is None or row["settled_at"] >= forget_before]
    manifest = json.loads((dump / MANIFEST_NAME).read_text())
    manifest |= {"exported_at": at.isoformat(), "exported_at_us": int(at.timestamp()) * 1_000_000}
    manifest["rows"] = {name: len(each) for name, each in rows.items()}
    for name, each in rows.items():
        shape = ds.dataset(dump / name, format="parquet", partitioning=None).schema
        (out / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(each, schema=shape), out / name / "part-00000.parquet")
    (out / MANIFEST_NAME).write_text(json.dumps(manifest))
    return out


def _by_the_hour(rows: list[Row], before: datetime) -> list[Row]:
    """As the journal folds its old counts."""
    kept: dict[tuple[int, datetime], Row] = {}
    for row in rows:
        minute = row["minute"].replace(minute=0) if row["minute"] < before else row["minute"]
        key = row["queue_id"], minute
        whole = kept.get(key, dict.fromkeys(COUNTS, 0))
        kept[key] = row | {"minute": minute} | {name: whole[name] + row[name] for name in COUNTS}
    return list(kept.values())


def _entry_at(row: Row, at: datetime) -> Row:
    if row["settled_at"] is None or row["settled_at"] < at:
        return row
    return row | {"state": "ready", "outcome": None, "settled_at": None, "reason": None, "target_queues": None}


def day(dump: Path, hours: float) -> datetime:
    """A whole minute, ``hours`` after the first count of an export."""
    first: datetime = min(row["minute"] for row in table(dump, "deliveries_by_minute"))
    return first.astimezone(UTC) + timedelta(hours=hours)
