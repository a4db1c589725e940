"""Spark against DuckDB on the same export: equal to the row, and how long each took. ``scripts/bench-analytics`` runs it by size."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.overview import HERE
from benchmarks.analytics.duck import COUNTS, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_spark(spark: SparkSession, dump: Path) -> tuple[dict[str, list[tuple[Any, ...]]], int]:
    """The three tables in duck.tables' shape, and the time of the export."""
    from pyspark.sql import functions as F

    from analytics.attempts_to_success import attempts_to_success
    from analytics.dead_letters import dead_letters
    from analytics.inputs import read_export
    from analytics.overview import overview

    export = read_export(spark, str(dump))
    died = dead_letters(export.dead_letters, export.manifest.exported_at_us)
    frames = {
        "overview": overview(export.messages, export.deliveries_by_minute).select("queue", *COUNTS, *HERE, "here"),
        "attempts_to_success": attempts_to_success(export.messages, export.deliveries_by_minute).select("queue", "attempts", "messages"),
        "dead_letters": died.select(
            *("queue", "error_class", "age_rank", "deaths", "lying"), F.unix_micros("first_died_at"), F.unix_micros("last_died_at")
        ),
    }
    return {name: sorted(tuple(row) for row in frame.collect()) for name, frame in frames.items()}, export.manifest.exported_at_us


def main() -> int:
    from analytics.spark import spark_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.analytics.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--master", default="local[*]")
    given = parser.parse_args()
    began = time.perf_counter()
    with spark_session(given.master) as spark:
        started = time.perf_counter()
        ours, at_us = by_spark(spark, given.dump)
        done = time.perf_counter()
    driver_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    before = time.perf_counter()
    theirs = tables(given.dump, at_us)
    duck_s = time.perf_counter() - before
    equal = {name: ours[name] == theirs[name] for name in ours}
    found = {"start_s": started - began, "spark_s": done - started, "duckdb_s": duck_s, "ratio": (done - started) / duck_s}
    print(json.dumps({name: round(value, 2) for name, value in found.items()} | {"python_driver_mb": driver_mb, "equal": equal}))
    return 0 if all(equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
