"""What incremental runs keep: all exports ever merged, each row once, by day.

``STORE/_homing_store-N.json`` names the exports that are in it and, for each table and day, the directory that holds its rows then; the
greatest N is the store. A run reads only the exports that are not in it, rewrites only the days they touch, late ones too, into
directories of its own, and then publishes the next N in one step: a run that was cut off has changed nothing. Where another run was
first, it merges again with what that one made. What no N has named for KEPT_S goes, so nobody's files go while they are read. For others
``STORE/TABLE`` is a table of Delta Lake's (delta.py), of which each N is a version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from . import delta
from .export import SHORT_ROWS, SMALL_ROWS, Export, Skipped
from .files import files_of, here
from .inputs import Found, assembled, in_memory, read_table
from .merge import as_of_latest, once
from .schema import DAY_OF, OF_ITS_DAY, SCHEMA_VERSION, SPARK_TYPES, TABLES, VERSIONS, day_of
from .taken import Taken, latest_of
from .window import WHOLE, Window

STORE_NAME = re.compile(r"_homing_store-(\d+)\.json")
#: What a newer state has replaced is left to those who may still read it for so long.
KEPT_S = 86_400
#: The day of tables that have none, and of rows whose time is unknown.
NO_DAY = "none"
#: Where rows were before they were Delta tables.
_OLD_RUNS = "runs"
_T = TypeVar("_T")
#: Tables merged at the same time: small ones wait for single tasks.
PARALLEL_TABLES = 4


@dataclass(slots=True)
class _State:
    number: int = 0
    #: of what is in it the fields of Taken
    exports: list[list[Any]] = field(default_factory=list)
    #: table -> day -> directory, relative to the store
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    #: table -> day -> rows there
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The number of the state that is the first version of the Delta tables; 0: there are none yet.
    first: int = 0

    def text(self) -> str:
        whole = {"format": "homing-store", "schema_version": SCHEMA_VERSION, "exports": self.exports}
        whole |= {"parts": self.parts, "rows": self.rows, "first": self.first}
        return json.dumps(whole, indent=1) + "\n"

    def places(self) -> set[str]:
        return {place for days in self.parts.values() for place in days.values()}


def _numbers(names: Collection[str]) -> dict[int, str]:
    """The states there are: number -> name."""
    return {int(match[1]): name for name in names if (match := STORE_NAME.fullmatch(name))}


def _updated(before: dict[str, dict[str, _T]], days: dict[str, dict[str, _T]]) -> dict[str, dict[str, _T]]:
    return {table: before.get(table, {}) | of_table for table, of_table in days.items()}


def rows_here(path: str) -> int:
    """How many rows a store has, of all tables; as many as are not few where it does not tell, or lies elsewhere."""
    place = here(path)
    if place is None:
        return SHORT_ROWS
    names = _numbers([each.name for each in place.iterdir()] if place.is_dir() else [])
    if not names:
        return 0
    try:
        rows = json.loads((place / names[max(names)]).read_text(encoding="utf-8"))["rows"]
        return sum(sum(days.values()) for days in rows.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # what is wrong with it is told where it is opened
        return SHORT_ROWS


class Store:
    def __init__(self, spark: SparkSession, path: str) -> None:
        """Raises AnalyticsError not-a-store for a directory that holds something else, store-version."""
        self._spark, self._files, self._path = spark, files_of(spark), path.rstrip("/")
        self._state = self._load()

    def _load(self) -> _State:
        names = self._files.names(self._path)
        numbers = _numbers(names)
        if not numbers:
            if any(not name.startswith(".") and name not in {_OLD_RUNS, *TABLES} for name in names):
                raise AnalyticsError("not-a-store", f"{self._path} is not empty and holds no store.", "Name a new directory for --store.")
            return _State()
        return self._read(max(numbers), numbers[max(numbers)])

    def _read(self, number: int, name: str) -> _State:
        try:
            kept = json.loads(self._files.read_text(f"{self._path}/{name}"))
            if kept["schema_version"] not in VERSIONS:
                raise AnalyticsError(
                    "store-version", f"{self._path} was made by another version of homing.", "Make it anew from the exports."
                )
            return _State(number, kept["exports"], kept["parts"], kept.get("rows", {}), kept.get("first", 0))
        except (ValueError, KeyError, TypeError) as error:
            raise AnalyticsError("not-a-store", f"{self._path}/{name} cannot be read.", "Make it anew from the exports.") from error

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """The keys of the exports that are in it."""
        return frozenset((broker_id, at_us) for broker_id, at_us, *_ in self._state.exports)

    def add(self, found: Sequence[Found]) -> list[Found]:
        """Merge the exports that are not in it yet; returns them."""
        added: dict[tuple[str, int], Found] = {}
        while fresh := {each.manifest.key: each for each in found if each.manifest.key not in self.known}:
            next_state = self._merged([fresh[key] for key in sorted(fresh)])
            if self._files.publish(f"{self._path}/_homing_store-{next_state.number:06d}.json", next_state.text()):
                self._state, added = next_state, fresh
            else:  # another run was first
                self._state = self._load()
        if added:
            self.publish()
            self.tidy()
        return list(added.values())

    def publish(self) -> None:
        """Make each state that is not yet a version of the Delta tables one; those of runs that were cut off before that, too."""
        names, last = _numbers(self._files.names(self._path)), next(reversed(TABLES))
        done = self._files.names(f"{self._path}/{last}/{delta.LOG}")
        for number, name in sorted(names.items()):
            version = number - self._state.first
            if version >= 0 and delta.name_of(version) not in done:
                state, was = self._read(number, name), self._read(number - 1, names[number - 1]) if version else _State()
                for table in TABLES:
                    parts = was.parts.get(table, {}), state.parts.get(table, {})
                    delta.commit(self._files, self._path, table, version, *parts)

    def _merged(self, fresh: Sequence[Found]) -> _State:
        """The state with ``fresh`` in it; their days are written, and nothing names them yet."""
        was, run = self._state, uuid4().hex
        with ThreadPoolExecutor(PARALLEL_TABLES) as pool:
            parts = dict(zip(TABLES, pool.map(lambda table: self._merge(table, fresh, run), TABLES), strict=True))
            rows = dict(zip(TABLES, pool.map(self._count, parts.values()), strict=True))
        exports = sorted([*was.exports, *(list(each.manifest.taken) for each in fresh)], key=lambda each: each[:2])
        return _State(was.number + 1, exports, _updated(was.parts, parts), _updated(was.rows, rows), was.first or was.number + 1)

    def tidy(self) -> None:
        """Remove the states that were replaced long ago, with what only they name, and what runs that were cut off left."""
        ages_s = self._files.ages_s(self._path)
        names = sorted(_numbers(ages_s).items())
        old = [each for each, (_, after) in pairwise(names) if ages_s[after] > KEPT_S]
        kept = {place for number, name in names[len(old) :] for place in self._read(number, name).places()}
        runs = {"/".join(place.split("/")[:2]) for place in kept}
        for place in (_OLD_RUNS, *TABLES):
            for run, age_s in self._files.ages_s(f"{self._path}/{place}").items():
                if run != delta.LOG and f"{place}/{run}" not in runs and age_s > KEPT_S:
                    self._files.remove(f"{self._path}/{place}/{run}")
        for number, name in old:
            for place in self._read(number, name).places() - kept:
                self._files.remove(f"{self._path}/{place}")
            self._files.remove(f"{self._path}/{name}")

    def _count(self, days: dict[str, str]) -> dict[str, int]:
        """The rows of what was just written, by day, from its footers."""
        files = self._files
        return {
            day: sum(files.parquet_footer(name).rows for name in files.parquet_files(f"{self._path}/{place}"))
            for day, place in days.items()
        }

    def _merge(self, table: str, fresh: Sequence[Found], run: str) -> dict[str, str]:
        """Write the days of ``table`` that ``fresh`` touches; day -> directory. One row a day is collected."""
        day = F.coalesce(F.date_format(DAY_OF[table], "yyyy-MM-dd"), F.lit(NO_DAY)) if table in DAY_OF else F.lit(NO_DAY)
        new = read_table(self._spark, fresh, table)
        if before := self._state.parts.get(table):
            touched = {row["day"] for row in new.select(day.alias("day")).distinct().collect()}
            if kept := [f"{self._path}/{place}" for each, place in before.items() if each in touched or not self._state.first]:
                new = new.unionByName(self._rows(table, kept))
        place = f"{table}/{run}"
        # A directory a day; adaptive execution joins the small partitions of a shuffle by day.
        written = once(table, new).withColumn("day", day).repartition("day").write.mode("overwrite").partitionBy("day")
        written.parquet(f"{self._path}/{place}")
        return {
            name.removeprefix("day="): f"{place}/{name}" for name, is_day in self._files.listing(f"{self._path}/{place}") or [] if is_day
        }

    def open(self, skipped: Sequence[Skipped] = (), window: Window = WHOLE) -> Export:
        """Everything in the store, as one export. Raises AnalyticsError store-empty."""
        if not self._state.exports:
            raise AnalyticsError("store-empty", f"{self._path} holds nothing yet.", "Name an export to add.")
        taken = [Taken(*each) for each in self._state.exports]
        latest = latest_of(taken)
        first_day = day_of(window.since_us or 0)
        tables = {table: as_of_latest(table, self._table(table, first_day), latest) for table in TABLES}
        rows = {table: sum(days.values()) for table, days in self._state.rows.items()}
        return assembled(tables, rows, taken, skipped, window)

    def _table(self, table: str, first_day: str) -> DataFrame:
        """Days before that are opened only of tables that tell more of the time after."""
        days = self._state.parts.get(table, {}).items()
        return self._rows(table, [f"{self._path}/{place}" for day, place in days if table not in OF_ITS_DAY or day >= first_day])

    def _rows(self, table: str, places: Sequence[str]) -> DataFrame:
        """In the columns of today: what an older version did not write is made of what it did, as for its exports."""
        fields = ", ".join([*(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in TABLES[table]), "exported_at_us bigint"])
        if not places:
            return self._spark.createDataFrame([], fields)
        if 0 < sum(sum(days.values()) for days in self._state.rows.values()) < SMALL_ROWS and here(self._path) is not None:
            names = [name for place in places for name in self._files.parquet_files(place)]
            frame = in_memory(self._spark, names, [*TABLES[table], ("exported_at_us", "int64")])
        else:
            frame = self._spark.read.schema(fields).option("recursiveFileLookup", "true").parquet(*places)
        made = {name: F.coalesce(name, F.expr(value)) for name, value in VERSIONS[1].get(table, {}).items() if value != "NULL"}
        columns = [made[name].alias(name) if name in made else name for name, _ in TABLES[table]]
        return frame.select(*columns, "exported_at_us")
