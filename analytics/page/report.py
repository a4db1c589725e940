"""The page: one HTML file that needs no network, made of the reports' own numbers.

Only bounded parts of the results are collected: the largest queues, the most frequent deaths, at most BINS points in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import words
from ..reports.dead_letters import AGES
from ..reports.retry_load import over_time
from . import charts, findings
from .report_fates import fate_sections
from .report_patterns import found_patterns

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from pyspark.sql import DataFrame

    from ..input.inputs import Export

Row = dict[str, Any]
QUEUES = 24
DEATHS = 24
FAILED = 20
BINS = 96
BIN_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 10_080, 43_200, 525_600)
#: Attempts are shown one by one up to here, then together.
LAST_ATTEMPT = 8


@dataclass(frozen=True, slots=True)
class Results:
    """What the job computed; the frames are persisted."""

    overview: DataFrame
    attempts_to_success: DataFrame
    survival: DataFrame
    time_to_success: DataFrame
    dead_letters: DataFrame
    dead_letter_groups: DataFrame
    dead_letter_growth: DataFrame
    dead_letter_trend: DataFrame
    retry_load: DataFrame
    retry_storms: DataFrame
    thundering_herds: DataFrame
    failed_most: DataFrame
    settings_in_force: DataFrame
    advice: DataFrame
    consumers: DataFrame
    due_error: DataFrame
    poison_clusters: DataFrame
    flow: DataFrame
    journeys: DataFrame


def render(export: Export, results: Results, dump: str) -> str:
    environment = page_environment()
    return environment.get_template("report.html.j2").render(
        dump=dump.rstrip("/").rsplit("/", 1)[-1],
        brokers=export.brokers,
        exports=export.exports,
        skipped=export.skipped,
        exported_at=datetime.fromtimestamp(export.manifest.exported_at_us / 1_000_000, UTC),
        **_overview(results.overview),
        attempts=_attempts(results.attempts_to_success),
        deaths=_deaths(results.dead_letters),
        load=_load(results.retry_load),
        failed=_failed(results.failed_most),
        **fate_sections(results),
        **found_patterns(results),
    )


def page_environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # error texts come from anywhere
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=words.number, span=words.span, moment=words.moment, clock=lambda at: words.clock(at, True))
    environment.globals.update(
        share=words.share, plural=words.plural, width=words.width, log_position=charts.log_position, log_ticks=charts.log_ticks
    )
    return environment


def _rows(frame: DataFrame, limit: int) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.limit(limit).collect()]


# --- sections ---------------------------------------------------------------------------------------------------------


def _overview(frame: DataFrame) -> Row:
    from pyspark.sql import functions as F

    names = [name for name in frame.columns if name not in ("queue", "success_share")]
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]
    wrong = F.count_if(F.col("difference") != 0).alias("wrong_queues")
    total = frame.where("sent > 0").agg(*sums).collect()[0].asDict()
    whole = frame.agg(F.count(F.lit(1)).alias("queues"), wrong, F.coalesce(F.sum("here"), F.lit(0)).alias("here")).collect()[0].asDict()
    parts = [
        ("first", "Succeeded at the first attempt", total["first_try"]),
        ("later", "Succeeded after failing", total["succeeded_later"]),
        ("dead", "Dead-lettered", total["dead_lettered"]),
        ("expired", "Expired", total["expired"]),
        ("dropped", "Dropped", total["dropped"]),
        ("purged", "Purged or moved by hand", total["purged"] + total["moved_out"]),
        ("here", "Still here", total["here"]),
    ]
    return {
        "total": total,
        "whole": whole,
        "queues": _rows(frame, QUEUES),
        "parts": [part for part in parts if part[2]],
        "headline": findings.headline(total),
        "balance": findings.balance(total, whole),
    }


def _attempts(frame: DataFrame) -> Row:
    """A table of queue × attempt; each cell has its count and its part of the queue's later successes."""
    from pyspark.sql import functions as F

    column = F.least(F.col("attempts"), F.lit(LAST_ATTEMPT + 1)).alias("attempt")
    busiest = frame.groupBy("queue").agg(F.sum("messages").alias("all")).orderBy(F.desc("all"), "queue").limit(QUEUES)
    cells = frame.join(F.broadcast(busiest), "queue").groupBy("queue", "all", column).agg(F.sum("messages").alias("messages"))
    by_queue: dict[str, dict[int, int]] = {}
    for row in cells.orderBy(F.desc("all"), "queue", "attempt").collect():
        by_queue.setdefault(row["queue"], {})[row["attempt"]] = row["messages"]
    later = {
        row["attempts"]: row["n"] for row in frame.where("attempts > 1").groupBy("attempts").agg(F.sum("messages").alias("n")).collect()
    }
    last = max((attempt for counts in by_queue.values() for attempt in counts), default=1)
    return {
        "title": findings.attempts(later),
        "columns": [f"{n}" if n <= LAST_ATTEMPT else f"over {LAST_ATTEMPT}" for n in range(1, last + 1)],
        "rows": [
            {"queue": queue, "cells": [counts.get(n, 0) for n in range(1, last + 1)], "later": sum(c for n, c in counts.items() if n > 1)}
            for queue, counts in by_queue.items()
        ],
    }


def _deaths(frame: DataFrame) -> Row:
    from pyspark.sql import functions as F

    ages = [F.sum(F.when(F.col("age_rank") == rank, F.col("deaths")).otherwise(0)).alias(f"age_{rank}") for rank in range(len(AGES))]
    kinds = frame.groupBy("queue", "error_class").agg(F.sum("deaths").alias("deaths"), F.sum("lying").alias("lying"), *ages)
    total = kinds.agg(F.coalesce(F.sum("deaths"), F.lit(0)).alias("deaths"), F.coalesce(F.sum("lying"), F.lit(0)).alias("lying")).collect()[
        0
    ]
    rows = _rows(kinds.orderBy(F.desc("deaths"), "queue", "error_class"), DEATHS)
    by_queue = _rows(frame.groupBy("queue").agg(F.sum("deaths").alias("deaths")).orderBy(F.desc("deaths"), "queue"), 1)
    shown = [(name, rank) for rank, (name, _) in enumerate(AGES) if any(row[f"age_{rank}"] for row in rows)]
    return {
        "title": findings.deaths(total["deaths"], by_queue, rows),
        "total": total["deaths"],
        "lying": total["lying"],
        "rows": rows,
        "largest": max((row["deaths"] for row in rows), default=1),
        "ages": shown,
    }


def _load(frame: DataFrame) -> Row:
    from pyspark.sql import functions as F

    ends = frame.agg(F.min("minute").alias("first"), F.max("minute").alias("last"))
    # As seconds: a Python datetime without a zone would depend on this machine's.
    row = ends.select(F.unix_seconds("first").alias("first"), F.unix_seconds("last").alias("last")).collect()[0]
    if row["first"] is None:
        return {"title": findings.load([], 1), "chart": None, "minutes": 1, "cost": ""}
    minutes = next(m for m in BIN_MINUTES if (row["last"] - row["first"]) / 60 / m + 2 <= BINS)
    found = over_time(frame, minutes).withColumn("at", F.unix_seconds("minute")).collect()
    by_start = {point["at"]: point for point in found}
    width_s = 60 * minutes
    starts = range(row["first"] // width_s * width_s, row["last"] + 1, width_s)
    points = [findings.Load.of(start, by_start.get(start)) for start in starts]
    title = findings.load(points, minutes)
    return {"title": title, "chart": _load_chart(points, minutes, title), "minutes": minutes, "cost": findings.cost(points)}


def _load_chart(points: list[findings.Load], minutes: int, title: str) -> Markup:
    with_day = points[-1].start_s - points[0].start_s >= 86_400
    every = max(1, -(-len(points) // (7 if with_day else 12)))
    bars = []
    for index, point in enumerate(points):
        at = datetime.fromtimestamp(point.start_s, UTC)
        told = (
            f"{words.clock(at, True)} UTC, {words.width(minutes)}: {words.number(point.succeeded_first)} succeeded at first, "
            f"{words.number(point.succeeded_retry)} on a retry; {words.number(point.failed_first)} failed at first, "
            f"{words.number(point.failed_retry)} on a retry, {words.number(point.wasted)} of these of messages that died in the end"
        )
        hopeful = max(0, point.failed_retry - point.wasted)
        values = (point.succeeded_first, point.failed_first, point.succeeded_retry, hopeful, point.wasted)
        bars.append(charts.Bar(words.clock(at, with_day) if index % every == 0 else "", told, values))
    return charts.columns(bars, ["first", "failed", "later", "again", "dead"], title)


def _failed(frame: DataFrame) -> Row:
    from pyspark.sql import functions as F

    shown = frame.withColumns({name: F.unix_micros(name) for name in ("first_failed_at", "last_failed_at")})
    rows = _rows(shown.orderBy(F.desc("failed_attempts"), "message_id"), FAILED)
    for row in rows:
        for name in ("first_failed_at", "last_failed_at"):
            row[name] = None if row[name] is None else datetime.fromtimestamp(row[name] / 1_000_000, UTC)
        row["fate"] = findings.fate(row)
    return {"title": findings.failed(rows), "rows": rows, "most": max((row["failed_attempts"] for row in rows), default=1)}
