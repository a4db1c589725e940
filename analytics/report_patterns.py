"""The page's sections on patterns: advice, poison, storms, consumers, due times, and the ways between queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from analytics.advice import sentence
from analytics.words import moment, number, plural, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from analytics.report import Results

Row = dict[str, Any]
ADVISED, CLUSTERS, STORMS, CONSUMERS, QUEUES, WAYS = 8, 12, 10, 16, 16, 24


def found_patterns(results: Results) -> Row:
    from pyspark.sql import functions as F

    storms = _rows(results.retry_storms.withColumn("second", F.unix_seconds("second")), STORMS)
    for row in storms:
        row["at"] = moment(datetime.fromtimestamp(row["second"], UTC))
    clusters = _rows(results.poison_clusters.where("messages > 1 OR deaths > 0"), CLUSTERS)
    people = _rows(results.consumers, CONSUMERS)
    punctual = _rows(results.due_error, QUEUES)
    ways = _rows(results.flow.drop("first_at", "last_at"), WAYS)
    return {
        "advised": [sentence(row) for row in _rows(results.advice.where("kind IN ('longer', 'not-retryable')"), ADVISED)],
        "clusters": {"title": _cluster_title(clusters), "rows": clusters},
        "storms": {"title": _storm_title(storms), "rows": storms},
        "people": {"title": _people_title(people), "rows": people},
        "punctual": {"title": _due_title(punctual), "rows": punctual},
        "ways": {"title": _way_title(ways), "rows": ways, "most": max((row["messages"] for row in ways), default=1)},
    }


def _rows(frame: DataFrame, limit: int) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.limit(limit).collect()]


def _cluster_title(rows: list[Row]) -> str:
    poison = [row for row in rows if row["poison"]]
    if not rows:
        return "No error text is on record"
    if not poison:
        return "No fault kills most of the messages that meet it"
    worst = poison[0]
    return f"{plural(len(poison), 'fault is', 'faults are')} poison; the worst, {worst['error_class']}, killed {number(worst['deaths'])}"


def _storm_title(rows: list[Row]) -> str:
    if not rows:
        return "No retry storm: messages came back spread over time"
    worst = rows[0]
    told = f"{number(worst['due'])} messages of {worst['queue']} came due in one second, {number(worst['times'])} times what is usual there"
    return f"{told}; a collision avoidance factor would have spread them" if worst["failures_s"] > 5 else told


def _people_title(rows: list[Row]) -> str:
    hoards = [row for row in rows if row["hoards"]]
    slow = [row for row in rows if row["slow"]]
    if hoards:
        first = hoards[0]
        lay = f"messages of {first['queue']} lay {span(first['window_p50_ms'])} in its window"
        return f"{first['consumer']} hoards: {lay}; a smaller prefetch frees them"
    if slow:
        return f"{slow[0]['consumer']} of {slow[0]['queue']} is slow: it holds a message {span(slow[0]['hold_p50_ms'])}"
    return "No consumer holds messages much longer than the others of its queue"


def _due_title(rows: list[Row]) -> str:
    if not rows:
        return "No retry with a due time is on record"
    early = sum(row["early"] for row in rows)
    if early:
        return f"{plural(early, 'retry came', 'retries came')} before its time"
    worst = rows[0]
    if worst["late"]:
        return f"Retries of {worst['queue']} come {span(worst['p50_ms'])} late: its consumers are busy, or there are too few"
    return f"Retries come when they are due; at worst, in {worst['queue']}, half are later than {span(worst['p50_ms'])}"


def _way_title(rows: list[Row]) -> str:
    if not rows:
        return "No message moved between queues"
    circling = [row for row in rows if row["circling"]]
    if circling:
        first = circling[0]
        return f"{plural(first['circling'], 'message goes', 'messages go')} in circles through {first['source']}"
    return f"{plural(sum(row['messages'] for row in rows), 'move')} between queues, none in a circle"
