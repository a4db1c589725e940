"""The page's sections on patterns: settings and advice, poison, storms and herds, consumers, due times, and ways between queues."""

from __future__ import annotations

from typing import Any

from ..reports.due_error import BINS
from ..words import clock, number, plural, share, span
from .charts import sparkline
from .flow_chart import drawn_flow
from .ranking import expectation, fingerprints, suspect_sentence, who_is
from .tables import Results, Row, first_rows

PERIODS, CLUSTERS, STORMS, HERDS, OUTAGES, CONSUMERS, QUEUES, WAYS, JOURNEYS = 24, 8, 10, 10, 10, 16, 16, 28, 10


def found_patterns(results: Results) -> Row:
    import pyarrow.compute as pc

    storms, herds = first_rows(results["retry_storms"], STORMS), first_rows(results["thundering_herds"], HERDS)
    clusters = first_rows(results["poison_clusters"].filter((pc.field("messages") > 1) | (pc.field("deaths") > 0)), CLUSTERS)
    people = [row | {"name": who_is(row)} for row in first_rows(results["consumers"], CONSUMERS)]
    punctual = first_rows(results["due_error"], QUEUES)
    periods = first_rows(results["settings_in_force"], PERIODS)
    return {
        "periods": {"title": _period_title(periods), "rows": periods},
        "clusters": {"title": _cluster_title(results["poison_clusters"].to_pylist()), "rows": _with_course(clusters, results)},
        "yields": [row | {"says": expectation(row)} for row in first_rows(results["redrive_yield"], CLUSTERS)],
        "storms": {
            "title": _storm_title(storms, herds),
            "rows": storms,
            "herds": herds,
            "outages": first_rows(results["outages"], OUTAGES),
        },
        "suspects": [
            row | {"sentence": suspect_sentence(row)} for row in first_rows(results["releases"].filter(pc.field("suspect")), CONSUMERS)
        ],
        "people": {"title": _people_title(people), "rows": people},
        "punctual": {"title": _due_title(punctual), "rows": punctual, "bins": list(BINS)},
        "ways": _ways(first_rows(results["flow"], WAYS), results["journeys"]),
    }


def _with_course(clusters: list[Row], results: Results) -> list[Row]:
    """With the course and the command of the fault that most of each is."""
    known, found = fingerprints(results), []
    for row in clusters:
        fault = known.get((row["queue"], row["cluster"]))
        course = [int(each) for each in fault["course"].split()] if fault else []
        drawn = sparkline(course, f"{number(sum(course))} attempts, at most {number(max(course))} in a part of the time") if course else ""
        found.append(row | {"course": drawn, "fingerprint": fault["fingerprint"] if fault else ""})
    return found


def _ways(rows: list[Row], journeys: Any) -> Row:
    import pyarrow.compute as pc

    title = _way_title(rows)
    found = {"title": title, "rows": rows, "most": max((row["messages"] for row in rows), default=1)}
    return found | {
        "picture": drawn_flow(rows, title) if rows else None,
        "journeys": first_rows(journeys.filter(pc.field("hops") > 1), JOURNEYS),
    }


def _period_title(rows: list[Row]) -> str:
    changed = [row for row in rows if row["verdict"] in ("better", "worse")]
    if changed:
        last = max(changed, key=lambda row: row["from_at"])
        did = "fewer" if last["verdict"] == "better" else "more"
        return f"After the settings of {last['queue']} changed on {clock(last['from_at'], True)}, {did} of what failed was dead-lettered"
    periods = sum(row["verdict"] == "same" for row in rows)
    if periods:
        return f"{plural(periods, 'change')} of settings, none with an effect on what was dead-lettered"
    return "No settings changed while anything failed" if rows else "No settings are on record for what failed"


def _cluster_title(rows: list[Row]) -> str:
    poison = [row for row in rows if row["poison"]]
    if not rows:
        return "No error text is on record"
    if not poison:
        return "No fault kills most of the messages that meet it"
    worst = poison[0]
    return f"{plural(len(poison), 'fault is', 'faults are')} poison; the worst, {worst['error_class']}, killed {number(worst['deaths'])}"


def _storm_title(storms: list[Row], herds: list[Row]) -> str:
    if not storms and not herds:
        return "No retry storm: messages came back spread over time"
    text = []
    if storms:
        worst = storms[0]
        part = share(worst["retries"], worst["deliveries"])
        text.append(f"The worst retry storm: in {plural(worst['minutes'], 'minute')} {part} of the work of {worst['queue']} was retries")
    if herds:
        worst = herds[0]
        text.append(f"{number(worst['due'])} messages of {worst['queue']} came due in one second, {number(worst['times'])} times the usual")
    return "; ".join(text)


def _people_title(rows: list[Row]) -> str:
    hoards = [row for row in rows if row["hoards"]]
    slow = [row for row in rows if row["slow"]]
    if hoards:
        first = hoards[0]
        waited = f"messages of {first['queue']} waited {span(first['window_p50_ms'])} in its window"
        return f"{first['name']} hoards: {waited}; a smaller prefetch frees them"
    if slow:
        held = slow[0]["hold_p50_ms"] if slow[0]["hold_mean_ms"] is None else slow[0]["hold_mean_ms"]
        return f"{slow[0]['name']} of {slow[0]['queue']} is slow: it holds a message {span(held)}"
    greedy = [row for row in rows if row["greedy"]]
    if greedy:
        first = greedy[0]
        return f"{first['name']} had {share(first['share'], 1)} of {first['queue']}, where {share(first['fair_share'], 1)} would be fair"
    return "No consumer holds messages much longer than the others of its queue" if rows else "No deliveries by consumer are on record"


def _due_title(rows: list[Row]) -> str:
    if not rows:
        return "No retry with a due time is on record"
    timed = [row for row in rows if row["p50_ms"] is not None]
    if not timed:
        return "Every retry on record had another time by hand"
    worst = rows[0]
    if worst["late"]:
        return f"Retries of {worst['queue']} come {span(worst['p50_ms'])} late: its consumers are busy, or there are too few"
    slowest = max(timed, key=lambda row: row["p99_ms"])
    return f"Retries come when they are due: 99 of 100 within {span(max(slowest['p99_ms'], 1))}, also in {slowest['queue']}"


def _way_title(rows: list[Row]) -> str:
    if not rows:
        return "No message moved between queues"
    circling = [row for row in rows if row["circling"]]
    if circling:
        first = circling[0]
        return f"{plural(first['circling'], 'message goes', 'messages go')} in circles through {first['source']}"
    return f"{plural(sum(row['messages'] for row in rows), 'move')} between queues, none in a circle"
