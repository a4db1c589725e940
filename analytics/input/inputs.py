"""One or many exports as Spark sees them, checked before anything is computed from them.

Checked means: the manifest, and the footer of every Parquet file (its columns and its rows), read without running a job. What is wrong
is refused, or named and left out, as the caller chooses. Exports that overlap are merged: analytics/input/merge.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AnalyticsError
from . import schema
from .export import Export, Manifest, Skipped
from .files import Files, Footer
from .merge import merged
from .schema import MANIFEST_NAME, SPARK_TYPES, TABLES
from .window import WHOLE, Taken, Window, covered_from, latest_of, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Without these there is nothing to report.
NEEDED = ("messages", "attempts", "dead_letters", "deliveries_by_minute")
#: How a path begins that names its file system.
SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
#: Exports may lie this deep below the directory that is named.
DEPTH = 4
#: Footers read at the same time.
READERS = 8


@dataclass(frozen=True, slots=True)
class Found:
    """One export that passed its checks."""

    path: str
    manifest: Manifest
    #: table -> its files, and the columns (name, type) that all of them have
    files: dict[str, tuple[str, ...]]
    columns: dict[str, tuple[tuple[str, str], ...]]
    #: of all its files
    bytes: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Names an export for good: its broker and its moment."""
        return self.manifest.broker_id, self.manifest.exported_at_us

    @property
    def taken(self) -> Taken:
        return Taken(*self.key, self.manifest.history_from_us, self.manifest.is_archive)


def check_local(dump: str) -> Manifest | None:
    """What can be said without Spark, so that a wrong path is reported at once.

    None where only Spark can tell: paths on other file systems, and directories of several exports.
    """
    if not _is_here(dump):
        return None
    directory = Path(dump)
    if not directory.is_dir():
        raise AnalyticsError("no-export", f"{dump} is not a directory.", "Name what `homing journal export --out` made.")
    if not (directory / MANIFEST_NAME).is_file():
        levels = ("/".join(["*"] * depth) for depth in range(1, DEPTH + 1))
        if any(next(directory.glob(f"{level}/{MANIFEST_NAME}"), None) for level in levels):
            return None
        raise _not_an_export(dump)
    manifest = parse_manifest(dump, (directory / MANIFEST_NAME).read_text(encoding="utf-8"))
    missing = [table for table in NEEDED if not (directory / table).is_dir()]
    if missing:
        raise _missing(dump, missing)
    return manifest


def check_all_local(dumps: Sequence[str]) -> list[Manifest | None]:
    """check_local of each; an empty one beside others is left out later."""
    found = []
    for dump in dumps:
        try:
            found.append(check_local(dump))
        except AnalyticsError as error:
            if error.code != "export-empty" or len(dumps) == 1:
                raise
            found.append(None)
    return found


def is_small(dumps: Sequence[str], skip: bool) -> bool:
    """Whether these are single exports here of less than SMALL_ROWS each, so that Spark can be started for little.

    Also reports at once what is wrong with a path on this machine, unless it is to ``skip`` that.
    """
    if skip:
        return False
    manifests = check_all_local(dumps)
    return all(manifest is not None and manifest.is_small for manifest in manifests)


def _is_here(path: str) -> bool:
    """Whether a path is surely on this machine: it names no file system, and nobody has told Hadoop of another one."""
    names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT")
    return SCHEME.match(path) is None and not any(os.environ.get(name) for name in names)


def find_exports(
    spark: SparkSession, dumps: Sequence[str], *, skip: bool = False, known: Collection[tuple[str, int]] = ()
) -> tuple[list[Found], list[Skipped]]:
    """Every export in ``dumps`` (exports, or directories of them at any depth up to DEPTH), and what was left out.

    ``known``: keys of exports of which no more is read than the manifest; they come without files. ``skip``: leave out what is damaged
    or foreign instead of raising AnalyticsError: no-export, not-an-export, export-version, export-empty, export-incomplete,
    export-schema, export-damaged.
    """
    files = Files(spark)
    found: list[Found] = []
    skipped: list[Skipped] = []
    places = [place for dump in dumps for place in _places(files, dump.rstrip("/"), DEPTH)]

    def check(place: tuple[str, bool]) -> Found | AnalyticsError:
        try:
            return _check_export(files, *place, known)
        except AnalyticsError as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        for (path, _), result in zip(places, pool.map(check, places), strict=True):
            if isinstance(result, Found):
                found.append(result)
            elif skip or (result.code == "export-empty" and len(places) > 1):
                skipped.append(Skipped(path, result.code, result.message))
            else:
                raise result
    if not found:
        what = skipped[0].message if skipped else f"{', '.join(dumps)} holds no export."
        raise AnalyticsError("no-export", f"Nothing is left to analyse: {what}", "Name what `homing journal export --out` made.")
    return found, skipped


def _places(files: Files, path: str, depth: int) -> list[tuple[str, bool]]:
    """(path, whether a manifest lies there) of every export below ``path``, and of every file that belongs to none."""
    listed = files.listing(path)
    if listed is None:
        raise AnalyticsError("no-export", f"{path} is not a directory.", "Name what `homing journal export --out` made.")
    if any(name == MANIFEST_NAME for name, _ in listed):
        return [(path, True)]
    places: list[tuple[str, bool]] = []
    for name, is_directory in listed:
        inner = f"{path}/{name}"
        if name.startswith((".", "_")):
            continue  # partial exports and marks of other tools
        if is_directory and depth > 0:
            places += _places(files, inner, depth - 1)
        else:
            places.append((inner, False))
    return places or [(path, False)]


def _check_export(files: Files, path: str, has_manifest: bool, known: Collection[tuple[str, int]]) -> Found:
    if not has_manifest:
        raise _not_an_export(path)
    manifest = parse_manifest(path, _read_text(files, f"{path}/{MANIFEST_NAME}", path))
    if (manifest.broker_id, manifest.exported_at_us) in known:
        return Found(path, manifest, {}, {})
    size = 0
    parts: dict[str, tuple[str, ...]] = {}
    columns: dict[str, tuple[tuple[str, str], ...]] = {}
    wrong = []
    for table in TABLES:
        names = files.parquet_files(f"{path}/{table}")
        if not names:
            if table in NEEDED:
                raise _missing(path, [table])
            continue
        footers = [_footer(files, name, path) for name in names]
        parts[table] = tuple(names)
        columns[table] = _check_columns(path, table, manifest.schema_version, footers)
        size += sum(footer.bytes for footer in footers)
        rows, stated = sum(footer.rows for footer in footers), manifest.rows.get(table, 0)
        if rows != stated:
            wrong.append(f"{table} {rows:,} of {stated:,}")
    if wrong:
        text = f"{path} has other rows than its manifest says: {'; '.join(wrong)}."
        raise AnalyticsError("export-incomplete", text, "Copy it again, whole.")
    return Found(path, manifest, parts, columns, size)


def _footer(files: Files, name: str, dump: str) -> Footer:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return files.parquet_footer(name)
    except (PySparkException, Py4JError) as error:
        raise damaged(dump, error) from error


def _check_columns(dump: str, table: str, version: int, footers: Sequence[Footer]) -> tuple[tuple[str, str], ...]:
    """The columns that all files have. Only what the version's own expressions do not make anew must be there."""
    common = set(footers[0].columns.items()).intersection(*(footer.columns.items() for footer in footers))
    names = {name for name, _ in common}
    made = schema.VERSIONS[version].get(table, {})
    wrong = [
        name
        for name, kind in TABLES[table]
        if name not in made
        and not (name in schema.ADDED.get(table, ()) and name not in names)
        and any(footer.columns.get(name) != SPARK_TYPES[kind] for footer in footers)
    ]
    if wrong:
        raise AnalyticsError(
            "export-schema",
            f"Table {table} in {dump} lacks columns or has other types than schema version {version}: {', '.join(wrong)}.",
            "See docs/export-schema.md; make the export again.",
        )
    return tuple(sorted(common))


def read_export(spark: SparkSession, dump: str | Sequence[str], *, skip: bool = False) -> Export:
    """Open exports on any file system that Spark knows, as one. Raises as find_exports does."""
    dumps = [dump] if isinstance(dump, str) else list(dump)
    if not skip:
        check_all_local(dumps)
    found, skipped = find_exports(spark, dumps, skip=skip)
    return open_exports(spark, found, skipped)


def open_exports(spark: SparkSession, found: Sequence[Found], skipped: Sequence[Skipped], window: Window = WHOLE) -> Export:
    brokers = sorted({each.manifest.broker_id for each in found})
    taken = [each.taken for each in found]
    latest = latest_of(taken)
    once = len(latest) == len(found)
    frames = {table: read_table(spark, found, table, timed=not once) for table in TABLES}
    tables = frames if once else {table: merged(table, frame, latest) for table, frame in frames.items()}
    rows = {table: sum(each.manifest.rows.get(table, 0) for each in found) for table in TABLES}
    manifest = Manifest(brokers[0], max(latest.values()), rows)
    export = Export(
        manifest,
        **tables,
        brokers=tuple(brokers),
        exports=len(found),
        skipped=tuple(skipped),
        begins={},
        before=None,
        until_us=None,
        archives_only=all(each.is_archive for each in taken),
    )
    return within(export, window, covered_from(taken))


def read_table(spark: SparkSession, found: Sequence[Found], table: str, *, timed: bool = True) -> DataFrame:
    """One table of all ``found``, in the columns of schema.TABLES, and where it is ``timed`` ``exported_at_us``: of the export that holds
    the row.

    Files with the same columns, version and time of export are read together, so a thousand part files are one scan.
    """
    from pyspark.sql import functions as F

    groups: dict[tuple[int, bool, tuple[tuple[str, str], ...]], list[Found]] = {}
    for each in found:
        if table in each.files:
            groups.setdefault((each.manifest.schema_version, each.manifest.is_archive, each.columns[table]), []).append(each)
    frames = [
        _read_group(spark, table, schema.made_in(version, table, is_archive), dict(columns), members, timed)
        for (version, is_archive, columns), members in groups.items()
    ]
    if not frames:
        empty = spark.createDataFrame([], schema.struct_of(TABLES[table]))
        return empty.withColumn("exported_at_us", F.lit(None).cast("long")) if timed else empty
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _read_group(
    spark: SparkSession, table: str, made: dict[str, str], columns: dict[str, str], members: list[Found], timed: bool
) -> DataFrame:
    from pyspark.sql import functions as F

    paths = [path for each in members for path in each.files[table]]
    # The columns and their types are known from the footers: Spark need not look again.
    plain = [(name, kind) for name, kind in TABLES[table] if name in columns and name not in made]
    fields = ", ".join(f"`{name}` {kind}" for name, kind in columns.items()) if made else schema.struct_of(plain)
    frame = spark.read.schema(fields).option("recursiveFileLookup", "true").parquet(*paths)
    others = {
        name: F.expr(f"CAST({made.get(name, 'NULL')} AS {SPARK_TYPES[kind]})") for name, kind in TABLES[table] if (name, kind) not in plain
    }
    if others:
        frame = frame.withColumns(others).select(*(name for name, _ in TABLES[table]))
    if not timed:
        return frame
    times = {each.manifest.exported_at_us for each in members}
    if len(times) == 1:
        return frame.withColumn("exported_at_us", F.lit(times.pop()).cast("long"))
    by_path = {_tail(path): each.manifest.exported_at_us for each in members for path in each.files[table]}
    return _with_times(spark, frame.withColumn("_tail", _tail_column()), by_path)


def _tail(path: str) -> str:
    """What of a path is the same however the file system writes its beginning."""
    scheme = SCHEME.match(path)
    return str(Path(path).absolute()) if scheme is None else re.sub("^(//[^/]*)?/*", "/", path[scheme.end() :])


def _tail_column() -> Any:
    from pyspark.sql import functions as F

    return F.regexp_replace(
        F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))), "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?/*", "/"
    )


def _with_times(spark: SparkSession, frame: DataFrame, by_path: dict[str, int]) -> DataFrame:
    from pyspark.sql import functions as F

    times = spark.createDataFrame(sorted(by_path.items()), "_tail string, exported_at_us bigint")
    return frame.join(F.broadcast(times), "_tail", "inner").drop("_tail")


def parse_manifest(dump: str, text: str) -> Manifest:
    try:
        manifest: Any = json.loads(text)
        if manifest["format"] != "homing-export":
            raise _not_an_export(dump)
        version = manifest["schema_version"]
        if version not in schema.VERSIONS:
            known = ", ".join(map(str, sorted(schema.VERSIONS)))
            raise AnalyticsError(
                "export-version",
                f"{dump} has schema version {version}; this homing reads version {known}.",
                "Analyse it with the homing that made it, or a newer one.",
            )
        rows = {table: int(count) for table, count in manifest["rows"].items()}
        of_all = str(manifest["broker_id"]), int(manifest["exported_at_us"]), rows, int(version), manifest.get("history_from_us")
        parsed = Manifest(*of_all, is_archive="bodies" in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_an_export(dump) from error
    if not any(rows.get(table) for table in NEEDED):
        raise AnalyticsError("export-empty", f"{dump} has no message, no attempt and no count in it.", "Export after some traffic.")
    return parsed


def _not_an_export(dump: str) -> AnalyticsError:
    return AnalyticsError(
        "not-an-export",
        f"{dump} has no {MANIFEST_NAME} that can be read, so it is no whole export.",
        "Name what `homing journal export --out` made, or leave it out with --on-damage skip.",
    )


def _missing(dump: str, tables: list[str]) -> AnalyticsError:
    return AnalyticsError("export-incomplete", f"{dump} lacks the table {', '.join(tables)}.", "Copy or make the export again, whole.")


def _read_text(files: Files, path: str, dump: str) -> str:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return files.read_text(path)
    except (PySparkException, Py4JError) as error:
        raise _not_an_export(dump) from error


def damaged(dump: str, error: Exception) -> AnalyticsError:
    fix = "Copy or make the export again, or leave it out with --on-damage skip."
    return AnalyticsError("export-damaged", f"Reading {dump} failed: {cause(error)}", fix)


def cause(error: Exception) -> str:
    """The one line of a Java stack trace that says what happened: the innermost cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" :\t")] or [repr(error)]
    causes = [number for number, line in enumerate(lines) if line.startswith("Caused by: ")]
    called = lines[0].startswith("An error occurred while calling") and len(lines) > 1
    at = causes[-1] if causes else int(called)
    text = lines[at].removeprefix("Caused by:").removeprefix(":").strip()
    if text.endswith(":") and len(lines) > at + 1:  # only the kind of error, what it says begins on the next line
        text = f"{text} {lines[at + 1]}"
    return text[:300]
