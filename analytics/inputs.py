"""An export as Spark sees it, checked before anything is computed from it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.errors import AnalyticsError
from analytics.files import Files
from analytics.schema import MANIFEST_NAME, SCHEMA_VERSION, SPARK_TYPES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Below this many rows a run is over before Java has warmed up.
SMALL_ROWS = 1_000_000
#: The tables that the reports read.
NEEDED = ("messages", "attempts", "dead_letters", "deliveries_by_minute")


@dataclass(frozen=True, slots=True)
class Manifest:
    broker_id: str
    exported_at_us: int
    #: table -> rows
    rows: dict[str, int]

    @property
    def is_small(self) -> bool:
        return sum(self.rows.values()) < SMALL_ROWS


@dataclass(frozen=True, slots=True)
class Export:
    manifest: Manifest
    messages: DataFrame
    attempts: DataFrame
    dead_letters: DataFrame
    deliveries_by_minute: DataFrame


def check_local(dump: str) -> Manifest | None:
    """What can be said without Spark, so that a wrong path is told at once. Paths on other file systems are left to Spark: None."""
    if "://" in dump:
        return None
    directory = Path(dump)
    if not directory.is_dir():
        raise AnalyticsError("no-export", f"{dump} is not a directory.", "Name what `homing journal export --out` made.")
    if not (directory / MANIFEST_NAME).is_file():
        raise _not_an_export(dump)
    manifest = parse_manifest(dump, (directory / MANIFEST_NAME).read_text(encoding="utf-8"))
    missing = [table for table in NEEDED if not (directory / table).is_dir()]
    if missing:
        raise _missing(dump, missing)
    return manifest


def read_export(spark: SparkSession, dump: str) -> Export:
    """Open an export on any file system that Spark knows.

    Raises AnalyticsError: no-export, not-an-export, export-version, export-empty, export-incomplete, export-schema, export-damaged.
    """
    check_local(dump)
    manifest = parse_manifest(dump, _read_text(spark, f"{dump}/{MANIFEST_NAME}", dump))
    with ThreadPoolExecutor(len(NEEDED)) as pool:  # each waits for a job that reads one footer
        tables = dict(zip(NEEDED, pool.map(lambda table: _read_table(spark, dump, table), NEEDED), strict=True))
    _check_rows(dump, manifest, tables)
    return Export(manifest, tables["messages"], tables["attempts"], tables["dead_letters"], tables["deliveries_by_minute"])


def parse_manifest(dump: str, text: str) -> Manifest:
    try:
        manifest: Any = json.loads(text)
        if manifest["format"] != "homing-export":
            raise _not_an_export(dump)
        version = manifest["schema_version"]
        if version != SCHEMA_VERSION:
            raise AnalyticsError(
                "export-version",
                f"{dump} has schema version {version}; this homing reads version {SCHEMA_VERSION}.",
                "Analyse it with the homing that made it, or a newer one.",
            )
        rows = {table: int(count) for table, count in manifest["rows"].items()}
        parsed = Manifest(str(manifest["broker_id"]), int(manifest["exported_at_us"]), rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_an_export(dump) from error
    if not any(rows.get(table) for table in NEEDED):
        raise AnalyticsError("export-empty", f"{dump} has no message, no attempt and no count in it.", "Export after some traffic.")
    return parsed


def _not_an_export(dump: str) -> AnalyticsError:
    return AnalyticsError(
        "not-an-export",
        f"{dump} has no {MANIFEST_NAME} that can be read, so it is no whole export.",
        "Name what `homing journal export --out` made.",
    )


def _missing(dump: str, tables: list[str]) -> AnalyticsError:
    return AnalyticsError("export-incomplete", f"{dump} lacks the table {', '.join(tables)}.", "Copy or make the export again, whole.")


def _read_text(spark: SparkSession, path: str, dump: str) -> str:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return Files(spark).read_text(path)
    except Py4JError as error:
        raise _not_an_export(dump) from error


def _read_table(spark: SparkSession, dump: str, table: str) -> DataFrame:
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        frame = spark.read.parquet(f"{dump}/{table}")
    except AnalysisException as error:
        raise _missing(dump, [table]) from error
    except (PySparkException, Py4JError) as error:
        raise damaged(dump, error) from error
    found = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    wrong = [name for name, kind in TABLES[table] if found.get(name) != SPARK_TYPES[kind]]
    if wrong:
        raise AnalyticsError(
            "export-schema",
            f"Table {table} in {dump} lacks columns or has other types than schema version {SCHEMA_VERSION}: {', '.join(wrong)}.",
            "See docs/export-schema.md; make the export again.",
        )
    return frame.select([name for name, _ in TABLES[table]])


def _check_rows(dump: str, manifest: Manifest, tables: dict[str, DataFrame]) -> None:
    """An export that lost a file on its way has fewer rows than its manifest says; its reports would be quietly wrong."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    counts: DataFrame | None = None
    for table, frame in tables.items():
        one = frame.agg(F.lit(table).alias("table"), F.count(F.lit(1)).alias("rows"))
        counts = one if counts is None else counts.unionByName(one)
    assert counts is not None
    try:
        found = {row["table"]: row["rows"] for row in counts.collect()}
    except (PySparkException, Py4JError) as error:
        raise damaged(dump, error) from error
    wrong = [
        f"{table} {found[table]:,} of {manifest.rows.get(table, 0):,}" for table in NEEDED if found[table] != manifest.rows.get(table, 0)
    ]
    if wrong:
        raise AnalyticsError(
            "export-incomplete", f"{dump} has other rows than its manifest says: {'; '.join(wrong)}.", "Copy it again, whole."
        )


def damaged(dump: str, error: Exception) -> AnalyticsError:
    return AnalyticsError("export-damaged", f"Reading {dump} failed: {cause(error)}", "Copy or make the export again.")


def cause(error: Exception) -> str:
    """The one line of a Java stack trace that says what happened: the innermost cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1 if causes else 0][:300]
