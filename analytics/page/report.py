"""The page: one HTML file that needs no network, made of the reports' own numbers.

It shows bounded parts of them: the largest queues, the most frequent deaths, at most BINS points in time.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .. import words
from ..input.export import ADD_AN_EXPORT
from ..reports.dead_letters import AGES
from ..reports.recent_load import REACH_S
from . import charts, findings
from .ranking import Finding, headlines
from .report_fates import fate_sections
from .report_patterns import found_patterns
from .tables import Results, Row, bare, epoch_s, first_rows, summed, total

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from ..input.export import Export

FINDINGS = 8
QUEUES = 24
DEATHS = 24
FAILED = 20
BINS = 96
BIN_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 10_080, 43_200, 525_600)
#: Attempts are shown one by one up to here, then together.
LAST_ATTEMPT = 8


def render(export: Export, brokers: Mapping[str, str], results: Results, found: Sequence[Finding], dump: str) -> str:
    """``results``: with the names of ``brokers`` (tables.labelled)."""
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            dump=dump.rstrip("/").rsplit("/", 1)[-1],
            brokers=list(brokers.values()),
            exports=export.exports,
            skipped=export.skipped,
            archives_only=export.archives_only,
            what_to_add=ADD_AN_EXPORT,
            begins=_begins(export),
            until=None if export.until_us is None else datetime.fromtimestamp(export.until_us / 1_000_000, UTC),
            exported_at=datetime.fromtimestamp(export.manifest.exported_at_us / 1_000_000, UTC),
            findings=headlines(found, FINDINGS),
            findings_in_all=len(found),
            **_overview(results["overview"]) | _removed(export, results["dead_letters"]),
            attempts=_attempts(results["attempts_to_success"]),
            deaths=_deaths(results["dead_letters"]),
            load=_load(results["retry_load"], results["recent_load"]),
            failed=_failed(results["failed_most"]),
            **fate_sections(results),
            **found_patterns(results),
        )
    )


def page_environment() -> Environment:
    """Templates, and the one script of a page with the hash by which its policy allows it."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),  # also from an archive, as --py-files brings it
        autoescape=True,  # error texts come from anywhere
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=words.number, span=words.span, moment=words.moment, second=words.second, bare=bare)
    environment.filters.update(clock=lambda at: words.clock(at, True))
    script = files(__package__).joinpath("tables.js").read_text(encoding="utf-8")
    environment.globals.update(
        script=Markup(script),
        script_hash=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
        between=words.between,
        share=words.share,
        plural=words.plural,
        width=words.width,
        log_position=charts.log_position,
        log_ticks=charts.log_ticks,
    )
    return environment


def _begins(export: Export) -> datetime | None:
    """Where the latest window of a broker begins that does not begin with the broker."""
    return datetime.fromtimestamp(max(export.begins.values()) / 1_000_000, UTC) if export.begins else None


# --- sections ---------------------------------------------------------------------------------------------------------


def _overview(table: Any) -> Row:
    import pyarrow.compute as pc

    names = [name for name in table.column_names if name not in ("broker_id", "queue", "success_share")]
    sold = total(table.filter(pc.field("sent") > 0), names)
    wrong = table.filter(pc.field("difference") != 0).num_rows
    whole = {"queues": table.num_rows, "wrong_queues": wrong} | total(table, ["here"])
    parts = [
        ("first", "Succeeded at the first attempt", sold["at_once"]),
        ("later", "Succeeded after failing", sold["came_home"] - sold["at_once"]),
        ("dead", "Dead-lettered", sold["died"]),
        ("expired", "Expired", sold["ran_out"]),
        ("dropped", "Dropped, purged or moved by hand", sold["given_up"] - sold["died"] - sold["ran_out"]),
        ("here", "Not over", sold["waiting"]),
    ]
    return {
        "total": sold,
        "whole": whole,
        "queues": first_rows(table, QUEUES),
        "parts": [part for part in parts if part[2]],
        "headline": findings.headline(sold),
        "balance": findings.balance(sold, whole),
    }


def _removed(export: Export, table: Any) -> Row:
    """Another headline, where only what was removed is known."""
    import pyarrow.compute as pc

    if not export.archives_only:
        return {}
    return {"headline": findings.removed(total(table.filter(pc.field("outcome") == "dropped"), ["deaths"])["deaths"])}


def _attempts(table: Any) -> Row:
    """A table of queue × attempt; each cell has its count and its part of the queue's later successes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    every = summed(table, ["queue"], ["messages"]).sort_by([("messages", "descending"), ("queue", "ascending")])
    by_queue: dict[str, dict[int, int]] = {row["queue"]: Counter() for row in first_rows(every, QUEUES)}
    for row in table.filter(pc.field("queue").isin(pa.array(list(by_queue), pa.string()))).to_pylist():
        by_queue[row["queue"]][min(row["attempts"], LAST_ATTEMPT + 1)] += row["messages"]
    later = {
        row["attempts"]: row["messages"] for row in summed(table.filter(pc.field("attempts") > 1), ["attempts"], ["messages"]).to_pylist()
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


def _deaths(table: Any) -> Row:
    kinds: dict[tuple[str, ...], Row] = {}
    names = ("queue", "error_class", "reason", "outcome")
    for row in summed(table, [*names, "age_rank"], ["deaths", "remaining"]).to_pylist():
        key = tuple(row[name] for name in names)
        none = (
            dict(zip(names, key, strict=True))
            | {"why": findings.why(row), "deaths": 0, "remaining": 0}
            | {f"age_{rank}": 0 for rank in range(len(AGES))}
        )
        kind = kinds.setdefault(key, none)
        kind["deaths"] += row["deaths"]
        kind["remaining"] += row["remaining"]
        kind[f"age_{row['age_rank']}"] += row["deaths"]
    rows = sorted(kinds.values(), key=lambda row: (-row["deaths"], row["queue"], row["error_class"], row["why"]))[:DEATHS]
    by_queue = summed(table, ["queue"], ["deaths"]).sort_by([("deaths", "descending"), ("queue", "ascending")])
    every = total(table, ["deaths", "remaining"])
    shown = [(name, rank) for rank, (name, _) in enumerate(AGES) if any(row[f"age_{rank}"] for row in rows)]
    return {
        "title": findings.deaths(every["deaths"], first_rows(by_queue, 1), rows),
        "total": every["deaths"],
        "remaining": every["remaining"],
        "rows": rows,
        "largest": max((row["deaths"] for row in rows), default=1),
        "ages": shown,
    }


def _load(table: Any, recent: Any) -> Row:
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.num_rows == 0:
        return {"title": findings.load([], 1), "chart": None, "width": "", "seconds": False, "cost": ""}
    at_s = epoch_s(table["minute"])
    first, last = pc.min(at_s).as_py(), pc.max(at_s).as_py()
    minutes = next(m for m in BIN_MINUTES if (last - first) / 60 / m + 2 <= BINS)
    width_s = 60 * minutes
    binned = table.append_column("bin", pc.divide(at_s, pa.scalar(width_s, pa.int64())))
    by_bin = {row["bin"]: row for row in summed(binned, ["bin"], findings.Load._fields[1:]).to_pylist()}
    points = [findings.Load.of(number * width_s, by_bin.get(number)) for number in range(first // width_s, last // width_s + 1)]
    title = findings.load(points, minutes)
    found = {"title": title, "chart": _load_chart(points, minutes, title), "width": words.width(minutes), "seconds": False}
    if last - first < REACH_S - 60 and recent.num_rows:
        found |= _seconds(recent, title)
    return found | {"cost": findings.cost(points)}


def _seconds(table: Any, title: str) -> Row:
    """A run of minutes, drawn by the second."""
    by_second = dict(zip(epoch_s(table["second"]).to_pylist(), table.to_pylist(), strict=True))
    first, last = min(by_second), max(by_second)
    width_s = next(width for width in (1, 2, 5, 10) if (last - first) / width + 2 <= BINS)
    starts = range(first // width_s * width_s, last + 1, width_s)
    every = max(1, -(-len(starts) // 10))
    bars = []
    for index, start in enumerate(starts):
        rows = [by_second[second] for second in range(start, start + width_s) if second in by_second]
        failed, again, won = (sum(row[name] for row in rows) for name in ("failed_first", "failed_retry", "succeeded_retry"))
        clock = f"{datetime.fromtimestamp(start, UTC):%H:%M:%S}"
        text = f"{clock} UTC: {failed} failed at first, {again} on a retry; {won} succeeded on a retry"
        bars.append(charts.Bar(clock if index % every == 0 else "", text, (failed, won, again)))
    chart = charts.columns(bars, ["failed", "later", "again"], title)
    return {"chart": chart, "width": words.plural(width_s, "second"), "seconds": True}


def _load_chart(points: list[findings.Load], minutes: int, title: str) -> Markup:
    with_day = points[-1].start_s - points[0].start_s >= 86_400
    every = max(1, -(-len(points) // (7 if with_day else 12)))
    bars = []
    for index, point in enumerate(points):
        at = datetime.fromtimestamp(point.start_s, UTC)
        text = (
            f"{words.clock(at, True)} UTC, {words.width(minutes)}: {words.number(point.succeeded_first)} succeeded at first, "
            f"{words.number(point.succeeded_retry)} on a retry; {words.number(point.failed_first)} failed at first, "
            f"{words.number(point.failed_retry)} on a retry; {words.number(point.wasted)} retries had been made of dead letters then"
        )
        wasted = min(point.wasted, point.failed_retry)
        values = (point.succeeded_first, point.failed_first, point.succeeded_retry, point.failed_retry - wasted, wasted)
        bars.append(charts.Bar(words.clock(at, with_day) if index % every == 0 else "", text, values))
    return charts.columns(bars, ["first", "failed", "later", "again", "dead"], title)


def _failed(table: Any) -> Row:
    rows = first_rows(table, FAILED)
    for row in rows:
        row["fate"] = findings.fate(row)
    return {"title": findings.failed(rows), "rows": rows, "most": max((row["failed_attempts"] for row in rows), default=1)}
