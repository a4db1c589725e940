"""One or many exports as Spark sees them, checked before anything is computed from them.

Checked means: the manifest, and the footer of every Parquet file (its columns and its rows), read without running a job. What is wrong
is refused, or named and left out, as the caller chooses. Exports that overlap are merged: analytics/input/merge.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from ..spark.connect import frame_of
from . import schema
from .export import SHORT_ROWS, SMALL_ROWS, Export, Manifest, Skipped
from .files import SCHEME, Files, Footer, files_of, here
from .merge import merged
from .schema import MANIFEST_NAME, SPARK_TYPES, TABLES
from .taken import Taken, covered_from, latest_of
from .window import WHOLE, Window, within

#: Without these there is nothing to report.
NEEDED = ("messages", "attempts", "dead_letters", "deliveries_by_minute")
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


def rows_of(dumps: Sequence[str], skip: bool, stored: int = 0) -> int:
    """How many rows these exports have together with those ``stored`` before (store.rows_here), so that Spark can be started for few;
    SHORT_ROWS, which is not few, where they are not on this machine's disk.

    Also reports at once what is wrong with them, unless it is to ``skip`` that.
    """
    if skip or not all(map(here, dumps)):
        return SHORT_ROWS
    files, rows = Files(), stored
    places = [place for dump in dumps for place in _places(files, dump.rstrip("/"), DEPTH)]
    for path, has_manifest in places:
        try:
            rows += sum(_manifest(files, path, has_manifest).rows.values())
        except AnalyticsError as error:
            if error.code != "export-empty" or len(places) == 1:
                raise
    return rows or SHORT_ROWS


def _manifest(files: Files, path: str, has_manifest: bool) -> Manifest:
    if not has_manifest:
        raise _not_an_export(path)
    manifest = parse_manifest(path, _read_text(files, f"{path}/{MANIFEST_NAME}", path))
    if missing := [table for table in NEEDED if not files.listing(f"{path}/{table}")]:
        raise _missing(path, missing)
    return manifest


def find_exports(
    spark: SparkSession | None, dumps: Sequence[str], *, skip: bool = False, known: Collection[tuple[str, int]] = (), since_us: int = 0
) -> tuple[list[Found], list[Skipped]]:
    """Every export in ``dumps`` (exports, or directories of them at any depth up to DEPTH), and what was left out.

    ``known``: keys of exports of which no more is read than the manifest; they come without files. So do those, and days of attempts, in
    which nothing is of ``since_us`` or later. ``skip``: leave out what is damaged or foreign instead of raising AnalyticsError: no-export,
    not-an-export, export-version, export-empty, export-incomplete, export-base, export-schema, export-damaged.
    """
    files = files_of(spark)
    found: list[Found] = []
    skipped: list[Skipped] = []
    places = [place for dump in dumps for place in _places(files, dump.rstrip("/"), DEPTH)]

    def look(place: tuple[str, bool]) -> Manifest | AnalyticsError:
        try:
            return _manifest(files, *place)
        except AnalyticsError as error:
            return error

    def check(path: str, manifest: Manifest | AnalyticsError) -> Found | AnalyticsError:
        if isinstance(manifest, AnalyticsError):
            return manifest
        if manifest.key not in whole:
            text = f"{path} has only what changed since an earlier export, which is not there or not whole."
            return AnalyticsError("export-base", text, "Name the export of its --since, too.")
        if manifest.key in known or (manifest.exported_at_us < since_us and manifest.key not in last):
            return Found(path, manifest, {}, {})
        try:
            return _check_export(files, path, manifest, since_us)
        except AnalyticsError as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        paths, manifests = [path for path, _ in places], list(pool.map(look, places))
        readable = sorted((each for each in manifests if isinstance(each, Manifest)), key=lambda each: each.exported_at_us)
        last = latest_of(each.taken for each in readable).items() | {each.key for each in readable if each.is_archive}
        whole = set(known)
        for each in readable:
            if each.base is None or each.base in whole:
                whole.add(each.key)
        for each in reversed(readable):
            if each.base is not None and each.key in last:
                last.add(each.base)
        for path, result in zip(paths, pool.map(check, paths, manifests), strict=True):
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


def _check_export(files: Files, path: str, manifest: Manifest, since_us: int) -> Found:
    first_day = f"/day={schema.day_of(since_us)}"
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
        late = [name for name in names if "/day=" not in name or name[name.rindex("/day=") :] >= first_day]
        days = len(names) - len(late)
        names = late or names[:1]
        footers = [_footer(files, name, path) for name in names]
        parts[table] = tuple(names)
        columns[table] = _check_columns(path, table, manifest.schema_version, footers)
        size += sum(footer.bytes for footer in footers)
        rows, stated = sum(footer.rows for footer in footers), manifest.rows.get(table, 0)
        if rows > stated or (rows < stated and not days):
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
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        raise damaged(name, error) from error


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
    found, skipped = find_exports(spark, dumps, skip=skip)
    return open_exports(spark, found, skipped)


def open_exports(spark: SparkSession, found: Sequence[Found], skipped: Sequence[Skipped], window: Window = WHOLE) -> Export:
    taken, opened = [each.manifest.taken for each in found], [each for each in found if each.files]
    latest = latest_of(taken)
    once = len(latest) == len(opened)
    frames = {table: read_table(spark, opened, table, timed=not once) for table in TABLES}
    tables = frames if once else {table: merged(table, frame, latest) for table, frame in frames.items()}
    return assembled(tables, {table: sum(each.manifest.rows.get(table, 0) for each in opened) for table in TABLES}, taken, skipped, window)


def assembled(
    tables: Mapping[str, DataFrame], rows: dict[str, int], taken: Sequence[Taken], skipped: Sequence[Skipped], window: Window
) -> Export:
    """What of ``tables`` is in the window, of the exports ``taken``; ``rows``: how many are read."""
    latest = latest_of(taken)
    manifest, brokers = Manifest(min(latest), max(latest.values()), rows), tuple(sorted(latest))
    whole: dict[str, Any] = {**tables, "brokers": brokers, "exports": len(taken), "skipped": tuple(skipped)}
    export = Export(manifest, **whole, archives_only=all(each.is_archive for each in taken))
    return within(export, window, covered_from(taken))


def read_table(spark: SparkSession, found: Sequence[Found], table: str, *, timed: bool = True) -> DataFrame:
    """One table of all ``found``, in the columns of schema.TABLES, and where it is ``timed`` ``exported_at_us``: of the export that holds
    the row.

    Files with the same columns, version and time of export are read together, so a thousand part files are one scan.
    """
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
    # The columns and their types are known from the footers: Spark need not look again.
    plain = [(name, kind) for name, kind in TABLES[table] if name in columns and name not in made]
    fields = ", ".join(f"`{name}` {kind}" for name, kind in columns.items()) if made else schema.struct_of(plain)
    in_memory = all(here(each.path) for each in members) and sum(each.manifest.size for each in members) < SMALL_ROWS
    names = [name for name, _ in TABLES[table]] + ["exported_at_us"] * (timed and in_memory)
    if in_memory:
        rows = _in_memory(members, table, list(columns))
        if not made:
            return frame_of(spark, rows.select(names))
        frame = frame_of(spark, rows)
    else:
        paths = [path for each in members for path in each.files[table]]
        frame = spark.read.schema(fields).option("recursiveFileLookup", "true").parquet(*paths)
    others = {
        name: F.expr(f"CAST({made.get(name, 'NULL')} AS {SPARK_TYPES[kind]})") for name, kind in TABLES[table] if (name, kind) not in plain
    }
    if others:
        frame = frame.withColumns(others)
    frame = frame.select(*names)
    if not timed or in_memory:
        return frame
    times = {each.manifest.exported_at_us for each in members}
    if len(times) == 1:
        return frame.withColumn("exported_at_us", F.lit(times.pop()).cast("long"))
    by_path = {_tail(path): each.manifest.exported_at_us for each in members for path in each.files[table]}
    return _with_times(spark, frame.withColumn("_tail", _tail_column()), by_path)


def _in_memory(members: list[Found], table: str, names: list[str]) -> Any:
    """Of few rows, on this machine's disk: a pyarrow.Table; a column that no file has is null. Spark's readers take longer to be loaded
    than these to read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    parts = []
    for each in members:
        for path in each.files[table]:
            try:
                part = pq.ParquetFile(path).read(names)
            except (OSError, ValueError) as error:
                raise damaged(path, error) from error
            parts.append(part.append_column("exported_at_us", pa.array([each.manifest.exported_at_us] * part.num_rows, pa.int64())))
    whole = pa.concat_tables(parts)
    for field in to_arrow_schema(schema.struct_of(TABLES[table]), timezone="UTC"):
        if field.name not in names:
            whole = whole.append_column(field, pa.nulls(len(whole), field.type))
    # In one piece: at one without rows Spark stops.
    return whole.combine_chunks()


def in_memory(spark: SparkSession, files: Sequence[str], columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Of few rows, on this machine's disk, files that Spark wrote; a column that one does not have is null."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    shape = to_arrow_schema(schema.struct_of(columns), timezone="UTC")
    try:
        table = pq.read_table(list(files), schema=shape, partitioning=None)
    except (OSError, ValueError) as error:
        raise damaged(files[0], error) from error
    return frame_of(spark, table.combine_chunks())


def _tail(path: str) -> str:
    """What of a path is the same however the file system writes its beginning."""
    scheme = SCHEME.match(path)
    return str(Path(path).absolute()) if scheme is None else re.sub("^(//[^/]*)?/*", "/", path[scheme.end() :])


def _tail_column() -> Any:
    return F.regexp_replace(
        F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))), "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?/*", "/"
    )


def _with_times(spark: SparkSession, frame: DataFrame, by_path: dict[str, int]) -> DataFrame:
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
        parsed = Manifest(*of_all, is_archive="bodies" in rows, since_us=manifest.get("since_us"))
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
    if (place := here(path)) is not None:
        try:
            return place.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _not_an_export(dump) from error
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return files.read_text(path)
    except (PySparkException, Py4JError, OSError) as error:
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
