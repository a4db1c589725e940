"""The page's sections on success after failing and on dead letters: curves, tables by queue and error class, growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .. import words
from ..reports.dead_letter_groups import AGE_COLUMNS
from . import charts, findings
from .line_chart import Curve, count_axis, falling, time_axis
from .tables import Results, Row, epoch_s, first_rows, summed

if TYPE_CHECKING:
    from markupsafe import Markup


#: Groups with a curve of their own, rows of the tables, queues with a colour of their own in the chart of growth.
CURVES, GROUPS, TIMES, TRENDS, COLOURED = 5, 16, 24, 16, 4
#: At these times after the first failure the table says how many had succeeded.
MARKS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000)
BIN_HOURS = (1, 2, 3, 6, 12, 24, 168, 720, 8_760)
BINS = 72


def fate_sections(results: Results) -> Row:
    return {"curves": _curves(results["survival"]), "times": _times(results["time_to_success"]), "growth": _growth(results)}


# --- success after failing --------------------------------------------------------------------------------------------


def _curves(survival: Any) -> Row:
    import pyarrow as pa
    import pyarrow.compute as pc

    own = survival.filter(pc.field("error_class").is_valid() | pc.field("queue").is_null())
    by_time = own.filter(pc.field("by") == "time").group_by(["queue", "error_class"], use_threads=False).aggregate([("at_risk", "max")])
    every = {(row["queue"], row["error_class"]): row["at_risk_max"] for row in by_time.to_pylist()}
    largest = sorted(every, key=lambda name: (name[0] is not None, -every[name], name[0] or "", name[1] or ""))[: GROUPS + 1]
    queues = pa.array([queue for queue, _ in largest if queue], pa.string())
    shown_queues = pc.field("queue").is_null() | pc.field("queue").isin(queues)
    steps = own.filter(shown_queues).to_pylist()
    found = [row | {"all": every[name]} for row in steps if (name := (row["queue"], row["error_class"])) in largest]
    groups: dict[tuple[str | None, str | None], dict[str, list[Any]]] = {}
    for row in sorted(found, key=_in_order):
        groups.setdefault((row["queue"], row["error_class"]), {"time": [], "attempts": []})[row["by"]].append(row)
    if not groups:
        return {"title": findings.survival(None, []), "rows": [], "time": None, "attempts": None, "legend": [], "marks": []}
    rows = [_group_row(queue, kind, steps["time"]) for (queue, kind), steps in groups.items()]
    title = findings.survival(rows[0], rows[1:])
    shown = list(groups.items())[: CURVES + 1]
    legend = [("all" if index == 0 else f"s{index}", _name(*name)) for index, (name, _) in enumerate(shown)]
    curves = [_curve(name, css, steps["time"]) for (css, name), (_, steps) in zip(legend, shown, strict=True)]
    by_attempts = [_curve(name, css, steps["attempts"]) for (css, name), (_, steps) in zip(legend, shown, strict=True)]
    latest = max(at for curve in curves for at, _ in curve.steps)
    most = int(max(at for curve in by_attempts for at, _ in curve.steps))
    high = max((at for curve in curves for at, _ in curve.steps), default=1_000)
    return {
        "title": title,
        "rows": rows,
        "rounded": steps[0]["rounded"],
        "legend": legend,
        "marks": [mark for mark in MARKS_MS if mark <= latest] or [MARKS_MS[0]],
        "time": falling(curves[::-1], time_axis(100, high, "time since the first failure"), title),
        "attempts": falling(by_attempts[::-1], count_axis(most, "attempts made"), title),
    }


def _in_order(row: Any) -> tuple[Any, ...]:
    """All together first, then the largest groups; each in the order of its steps."""
    return (row["queue"] is not None, -row["all"], row["queue"] or "", row["error_class"] or "", row["at"])


def _curve(name: str, css: str, steps: Sequence[Any]) -> Curve:
    return Curve(name, css, [(row["at"], 1 - row["came_home"]) for row in steps])


def _name(queue: str | None, kind: str | None) -> str:
    return "All messages that failed" if queue is None else f"{kind} in {queue}"


def _group_row(queue: str | None, kind: str | None, steps: Sequence[Any]) -> Row:
    """``home``: mark -> the part that had succeeded by then; ``half_ms``: when half had; null: never, as far as anybody looked."""
    half = next((row["at"] for row in steps if row["came_home"] >= 0.5), None)
    home = {}
    for mark in MARKS_MS:
        last = [row for row in steps if row["at"] <= mark]
        home[mark] = last[-1]["came_home"] if last else 0.0
    won, lost = sum(row["succeeded"] for row in steps), sum(row["died"] + row["censored"] for row in steps)
    return {"queue": queue, "error_class": kind, "failed": won + lost, "won": won, "half_ms": half, "home": home}


def _times(table: Any) -> Row:
    def by_size(row: Row) -> tuple[Any, ...]:
        return row["queue"] is not None, row["error_class"] is not None, -row["messages"], row["queue"] or "", row["error_class"] or ""

    found = sorted(table.to_pylist(), key=by_size)[: 4 * TIMES]
    every = next((row for row in found if row["queue"] is None), None)
    queues = sorted((row for row in found if row["queue"] and row["error_class"] is None), key=lambda row: (-row["p90_ms"], row["queue"]))
    kinds = [row for row in found if row["error_class"] is not None]
    shown = queues[:TIMES] + kinds[:TIMES]
    low, high = min((row["p50_ms"] for row in shown), default=1), max((row["max_ms"] for row in shown), default=1)
    title = findings.times(every, queues)
    return {"title": title, "queues": queues[:TIMES], "kinds": kinds[:TIMES], "low": max(low / 1.5, 1), "high": max(high * 1.1, 2)}


# --- deaths -----------------------------------------------------------------------------------------------------------


def _growth(results: Results) -> Row:
    import pyarrow as pa
    import pyarrow.compute as pc

    trends = first_rows(results["dead_letter_trend"], TRENDS)
    groups = first_rows(results["dead_letter_groups"], GROUPS)
    shown_ages = [name for name in AGE_COLUMNS if any(row[name] for row in groups)]
    title = findings.growth(trends)
    found: Row = {"title": title, "trends": trends, "groups": groups, "ages": shown_ages, "chart": None, "legend": [], "hours": 1}
    if not trends:
        return found
    named = [row["queue"] for row in trends[:COLOURED]]
    table = results["dead_letter_growth"]
    hour = pc.divide(epoch_s(table["hour"]), 3600)
    first, last = pc.min(hour).as_py(), pc.max(hour).as_py()
    hours = next(each for each in BIN_HOURS if (last - first) / each + 2 <= BINS)
    binned = table.append_column("bin", pc.divide(hour, pa.scalar(hours, pa.int64())))
    counts: Counter[tuple[int, str | None]] = Counter()
    for row in summed(binned, ["bin", "queue"], ["deaths"]).to_pylist():
        counts[row["bin"], row["queue"] if row["queue"] in named else None] += row["deaths"]
    names = [*named, *([None] if len(trends) > COLOURED else [])]
    bins = range(first // hours, last // hours + 1)
    legend = [(f"s{index + 1}", name or "other queues") for index, name in enumerate(names)]
    return found | {"chart": _growth_chart(bins, hours, names, counts, title), "legend": legend, "hours": hours}


def _growth_chart(bins: range, hours: int, names: Sequence[str | None], counts: dict[Any, int], title: str) -> Markup:
    with_day = len(bins) * hours > 24
    every = max(1, -(-len(bins) // (7 if with_day else 12)))
    bars = []
    for index, number in enumerate(bins):
        at = datetime.fromtimestamp(number * hours * 3600, UTC)
        values = tuple(counts.get((number, name), 0) for name in names)
        each = ", ".join(f"{words.number(value)} in {name or 'other queues'}" for value, name in zip(values, names, strict=True) if value)
        hint = f"{words.clock(at, True)} UTC, {words.plural(hours, 'hour')}: {each or 'no deaths'}"
        bars.append(charts.Bar(words.clock(at, with_day) if index % every == 0 else "", hint, values))
    return charts.columns(bars, [f"s{index + 1}" for index in range(len(names))], title)
