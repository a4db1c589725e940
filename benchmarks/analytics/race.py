"""Spark against DuckDB on the same export: equal to the row, how long each took, and what it cost.

``scripts/bench-analytics`` runs it by size."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.analytics.duck import COUNTS, tables
from benchmarks.analytics.processes import cpu_s, peak_mb
from homing.analytics.reports.overview import HERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_spark(spark: SparkSession, dump: Path) -> tuple[dict[str, list[tuple[Any, ...]]], int]:
    """The three tables in duck.tables' shape, and the time of the export."""
    from pyspark.sql import functions as F

    from homing.analytics.input.inputs import read_export
    from homing.analytics.reports.attempts_to_success import attempts_to_success
    from homing.analytics.reports.dead_letters import dead_letters
    from homing.analytics.reports.fates import Shared
    from homing.analytics.reports.overview import overview

    export = read_export(spark, str(dump))
    died = dead_letters(Shared(export).deaths(), export.manifest.exported_at_us)
    frames = {
        "overview": overview(export.messages, export.deliveries_by_minute).select("queue", *COUNTS, *HERE, "here"),
        "attempts_to_success": attempts_to_success(export.messages, export.deliveries_by_minute).select("queue", "attempts", "messages"),
        "dead_letters": died.select(
            *("queue", "error_class", "age_rank", "deaths", "remaining"), F.unix_micros("first_died_at"), F.unix_micros("last_died_at")
        ),
    }
    return {name: sorted(tuple(row) for row in frame.collect()) for name, frame in frames.items()}, export.manifest.exported_at_us


def by_duckdb(dump: Path, at_us: int, threads: int | None) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, float]]:
    """The same by DuckDB in a process of its own: tables, and its seconds, CPU seconds and peak memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_measured, dump, at_us, threads).result()


def _measured(dump: Path, at_us: int, threads: int | None) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, float]]:
    before = time.perf_counter(), time.process_time()
    found = tables(dump, at_us, threads)
    spent = {"duckdb_s": time.perf_counter() - before[0], "duckdb_cpu_s": time.process_time() - before[1]}
    return found, spent | {"duckdb_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main() -> int:
    from homing.analytics.spark.session import spark_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.analytics.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--master", default="local[*]")
    given = parser.parse_args()
    # On a cluster that was started for this, its processes are the parent's.
    root = os.getpid() if given.master.startswith("local") else os.getppid()
    began = time.perf_counter()
    with spark_session(given.master) as spark:
        started, cpu = time.perf_counter(), cpu_s(root)
        ours, at_us = by_spark(spark, given.dump)
        found = {"start_s": started - began, "spark_s": time.perf_counter() - started, "spark_cpu_s": cpu_s(root) - cpu}
        memory = peak_mb(root)
    theirs, duck = by_duckdb(given.dump, at_us, 1 if given.master == "local[1]" else None)
    found |= duck | {"ratio": found["spark_s"] / duck["duckdb_s"]}
    equal = {name: ours[name] == theirs[name] for name in ours}
    print(json.dumps({name: round(value, 2) for name, value in found.items()} | {"peak_mb": memory, "equal": equal}), flush=True)
    return 0 if all(equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
