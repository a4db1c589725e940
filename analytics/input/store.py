"""What incremental runs keep: all exports ever merged, each row once, by day.

``STORE/_homing_store.json`` names the exports that are in it and, for each table and day, the directory that holds its rows now. A run
reads only the exports that are not in it, rewrites only the days they touch, into directories of its own, and then replaces that one
file: a run that was cut off has changed nothing. Late data is a day rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import AnalyticsError
from .files import Files
from .inputs import Export, Found, Manifest, Skipped, read_table
from .merge import as_of_latest, once
from .schema import DAY_OF, SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORE_NAME = "_homing_store.json"
#: The day of tables that have none, and of rows whose time is unknown.
NO_DAY = "none"
_T = TypeVar("_T")
#: Tables merged at the same time: small ones wait for single tasks.
PARALLEL_TABLES = 4


@dataclass(slots=True)
class _State:
    run: int = 0
    #: [broker_id, exported_at_us] of what is in it
    exports: list[list[Any]] = field(default_factory=list)
    #: table -> day -> directory, relative to the store
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    #: table -> day -> rows there
    rows: dict[str, dict[str, int]] = field(default_factory=dict)

    def text(self) -> str:
        whole = {"format": "homing-store", "schema_version": SCHEMA_VERSION, "run": self.run, "exports": self.exports}
        whole |= {"parts": self.parts, "rows": self.rows}
        return json.dumps(whole, indent=1) + "\n"


def _updated(before: dict[str, dict[str, _T]], days: dict[str, dict[str, _T]]) -> dict[str, dict[str, _T]]:
    return {table: before.get(table, {}) | of_table for table, of_table in days.items()}


class Store:
    def __init__(self, spark: SparkSession, path: str) -> None:
        """Raises AnalyticsError not-a-store for a directory that holds something else, store-version."""
        self._spark, self._files, self._path = spark, Files(spark), path.rstrip("/")
        self._state = self._load()

    def _load(self) -> _State:
        names = self._files.names(self._path)
        if STORE_NAME not in names:
            if any(not name.startswith(".") and name != "runs" for name in names):
                raise AnalyticsError("not-a-store", f"{self._path} is not empty and holds no store.", "Name a new directory for --store.")
            return _State()
        try:
            kept = json.loads(self._files.read_text(f"{self._path}/{STORE_NAME}"))
            if kept["schema_version"] != SCHEMA_VERSION:
                raise AnalyticsError(
                    "store-version", f"{self._path} was made by another version of homing.", "Make it anew from the exports."
                )
            return _State(int(kept["run"]), kept["exports"], kept["parts"], kept.get("rows", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise AnalyticsError("not-a-store", f"{self._path}/{STORE_NAME} cannot be read.", "Make it anew from the exports.") from error

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """The keys of the exports that are in it."""
        return frozenset((broker_id, at_us) for broker_id, at_us in self._state.exports)

    def add(self, found: Sequence[Found]) -> list[Found]:
        """Merge the exports that are not in it yet; returns them."""
        new = {each.key: each for each in found}
        fresh = [each for key, each in sorted(new.items()) if key not in self.known]
        if not fresh:
            return []
        run = self._state.run + 1
        self._files.remove(self._run(run))  # what a run that was cut off left
        with ThreadPoolExecutor(PARALLEL_TABLES) as pool:
            parts = dict(zip(TABLES, pool.map(lambda table: self._merge(table, fresh, run), TABLES), strict=True))
            rows = dict(zip(TABLES, pool.map(self._count, parts.values()), strict=True))
        before = {place for days in self._state.parts.values() for place in days.values()}
        exports = sorted([*self._state.exports, *([e.manifest.broker_id, e.manifest.exported_at_us] for e in fresh)])
        was = self._state
        self._state = _State(run, exports, _updated(was.parts, parts), _updated(was.rows, rows))
        self._files.replace_text(f"{self._path}/{STORE_NAME}", self._state.text())
        for place in before - {place for days in self._state.parts.values() for place in days.values()}:
            self._files.remove(f"{self._path}/{place}")
        return fresh

    def _count(self, days: dict[str, str]) -> dict[str, int]:
        """The rows of what was just written, by day, from its footers."""
        files = self._files
        return {
            day: sum(files.parquet_footer(name).rows for name in files.parquet_files(f"{self._path}/{place}"))
            for day, place in days.items()
        }

    def _run(self, run: int) -> str:
        return f"{self._path}/runs/{run:06d}"

    def _merge(self, table: str, fresh: Sequence[Found], run: int) -> dict[str, str]:
        """Write the days of ``table`` that ``fresh`` touches; day -> directory. One row a day is collected."""
        from pyspark.sql import functions as F

        day = F.coalesce(F.date_format(DAY_OF[table], "yyyy-MM-dd"), F.lit(NO_DAY)) if table in DAY_OF else F.lit(NO_DAY)
        new = read_table(self._spark, fresh, table)
        days = [row["day"] for row in new.select(day.alias("day")).distinct().collect()]
        kept = [f"{self._path}/{place}" for each, place in self._state.parts.get(table, {}).items() if each in days]
        if kept:
            new = new.unionByName(self._spark.read.option("recursiveFileLookup", "true").parquet(*kept))
        place = f"{self._run(run)}/{table}"
        # A directory a day; adaptive execution joins the small partitions of a shuffle by day.
        once(table, new).withColumn("day", day).repartition("day").write.mode("overwrite").partitionBy("day").parquet(place)
        return {each: f"runs/{run:06d}/{table}/day={each}" for each in days}

    def open(self, skipped: Sequence[Skipped] = ()) -> Export:
        """Everything in the store, as one export. Raises AnalyticsError store-empty."""
        if not self._state.exports:
            raise AnalyticsError("store-empty", f"{self._path} holds nothing yet.", "Name an export to add.")
        latest: dict[str, int] = {}
        for broker_id, at_us in self._state.exports:
            latest[broker_id] = max(latest.get(broker_id, 0), at_us)
        tables = {table: as_of_latest(table, self._table(table), latest) for table in TABLES}
        rows = {table: sum(days.values()) for table, days in self._state.rows.items()}
        manifest = Manifest(min(latest), max(latest.values()), rows)
        return Export(manifest, **tables, brokers=tuple(sorted(latest)), exports=len(self._state.exports), skipped=tuple(skipped))

    def _table(self, table: str) -> DataFrame:
        from pyspark.sql import functions as F

        from .schema import SPARK_TYPES

        places = [f"{self._path}/{place}" for place in self._state.parts.get(table, {}).values()]
        fields = ", ".join([*(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in TABLES[table]), "exported_at_us bigint"])
        if not places:
            return self._spark.createDataFrame([], fields)
        frame = self._spark.read.schema(fields).option("recursiveFileLookup", "true").parquet(*places)
        return frame.select(*(F.col(name) for name, _ in TABLES[table]), "exported_at_us")
