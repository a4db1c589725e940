"""What to look at first: everything the tables found wrong, ranked by the messages it cost, then by the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..words import number, plural, share, span
from .advice_words import sentence
from .tables import Row, bare, first_rows

#: table -> what was written of it, a pyarrow.Table
Tables = Mapping[str, Any]
#: Rows of a table that are looked at; they come with the worst first.
LOOKED_AT = 50
#: A fault that fewer messages met is not reported as new.
ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: a word for it that stays. What it cost: ``messages`` lost or in trouble, ``retries`` that need not have been.

    ``window``: the first and the last time it was seen, or that its queue is on record; None: neither. ``section``: of the page, where its
    details are.
    """

    kind: str
    queue: str
    messages: int
    retries: int
    window: tuple[datetime, datetime] | None
    text: str
    command: str
    section: str
    #: queue and error class, where it is of one
    fault: tuple[str, str] | None = None

    @property
    def cost(self) -> str:
        if self.messages:
            return plural(self.messages, "message")
        return plural(self.retries, "retry", "retries") if self.retries else ""

    @property
    def parts(self) -> tuple[str, str]:
        """The headline and the rest of ``text``."""
        head, _, rest = self.text.partition(": ") if self.kind == "longer" else self.text.partition(". ")
        return head, rest

    def as_json(self) -> Row:
        named = {"kind": self.kind, "queue": self.queue, "messages": self.messages, "retries": self.retries}
        first, last = (at.isoformat() for at in self.window) if self.window else (None, None)
        return named | {"first_seen": first, "last_seen": last, "text": self.text, "command": self.command}


def ranked(tables: Tables, dump: str) -> list[Finding]:
    """The costliest first. ``dump``: what the commands that read exports are to be given."""
    advised, faults = list(_advice(tables, dump)), list(_faults(tables))
    # One fault, one finding: that retrying is of no use says more than that it is poison, which says more than that it takes longer.
    hopeless = {each.fault for each in advised if each.kind == "not-retryable"}
    faults = [each for each in faults if each.fault not in hopeless]
    deadly = {each.fault for each in faults}
    advised = [each for each in advised if each.kind != "longer" or each.fault not in deadly]
    other = (*_imbalance(tables), *_new_faults(tables), *_growth(tables), *_load(tables), *_people(tables), *_ways(tables))
    times = _times(tables["retry_load"])
    found = [each if each.window else replace(each, window=times.get(each.queue)) for each in (*advised, *faults, *other)]
    return sorted(found, key=lambda each: (each.kind != "imbalance", -each.messages, -each.retries, each.kind, each.queue))


def _times(load: Any) -> dict[str, tuple[datetime, datetime]]:
    """Queue -> the first and the last minute for which something is counted: when what is of the whole time was seen."""
    ends = load.group_by("queue").aggregate([("minute", "min"), ("minute", "max")])
    return {row["queue"]: (row["minute_min"], row["minute_max"]) for row in ends.to_pylist()}


def who_is(row: Row) -> str:
    """A consumer by the name that its program gave itself, else by that of its connection."""
    return f"{row['client_id']}/{row['consumer']}" if row["client_id"] else str(row["consumer"])


def _imbalance(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["overview"], tables["overview"].num_rows):
        if row["difference"]:
            text = f"{row['queue']} does not add up: {number(abs(row['difference']))} messages are not accounted for"
            yield Finding("imbalance", row["queue"], abs(row["difference"]), 0, None, text, "homing journal check", "balance")
        if row["dropped"]:
            text = f"{row['queue']} dropped {plural(row['dropped'], 'message')}: there was no room, or no dead-letter address"
            yield Finding("dropped", row["queue"], row["dropped"], 0, None, text, f"homing explain {bare(row['queue'])}", "balance")
        if row["expired"]:
            text = f"{plural(row['expired'], 'message')} expired in {row['queue']} before a consumer was done with them"
            yield Finding("expired", row["queue"], row["expired"], 0, None, text, f"homing explain {bare(row['queue'])}", "balance")


def _faults(tables: Tables) -> Iterator[Finding]:
    deaths: dict[int, list[Row]] = {}
    for row in first_rows(tables["dead_letter_groups"], tables["dead_letter_groups"].num_rows):
        deaths.setdefault(row["cluster"], []).append(row)
    for row in first_rows(tables["poison_clusters"], LOOKED_AT):
        groups = deaths.get(row["cluster"])
        if not groups or not (row["poison"] or row["outage"]):
            continue
        window = min(each["first_died_at"] for each in groups), max(each["last_died_at"] for each in groups)
        lies_in = bare(groups[0]["dead_letter_queue"] or groups[0]["queue"])
        fault = groups[0]["queue"], row["error_class"]
        of = f"{number(row['deaths'])} of {plural(row['messages'], 'message')} that met it were dead-lettered"
        of += f", and it is {row['seen']}" if row["seen"] in ("new", "back") else ""
        if row["outage"]:
            text = f"{row['queues']} was down: {row['error_class']} killed what it met ({of}), and the messages are well"
            yield Finding("outage", groups[0]["queue"], row["deaths"], 0, window, text, f"homing redrive {lies_in}", "faults", fault)
        else:
            text = f"{row['error_class']} in {row['queues']} is poison: {of}"
            yield Finding("poison", groups[0]["queue"], row["deaths"], 0, window, text, f"homing peek {lies_in}", "faults", fault)


def _new_faults(tables: Tables) -> Iterator[Finding]:
    """Those that are not found for what they do anyway."""
    for row in first_rows(tables["poison_clusters"], tables["poison_clusters"].num_rows):
        if row["seen"] in ("new", "back") and row["messages"] >= ENOUGH and not (row["poison"] or row["outage"]):
            text = f"{row['error_class']} in {row['queues']} is {row['seen']}: {number(row['messages'])} messages met it"
            queue, window = row["queues"].partition(", ")[0], (row["first_at"], row["last_at"])
            command = f"homing explain {bare(queue)}"
            yield Finding(f"{row['seen']}-fault", queue, row["deaths"], row["attempts"] - row["messages"], window, text, command, "faults")


def _advice(tables: Tables, dump: str) -> Iterator[Finding]:
    under = {
        (row["queue"], row["policy"], row["rule"]): row
        for row in first_rows(tables["settings_in_force"], tables["settings_in_force"].num_rows)
    }
    for row in first_rows(tables["advice"], LOOKED_AT):
        if not row["current"] or row["kind"] in ("fine", "too-few"):
            continue
        period = under.get((row["queue"], row["policy"], row["rule"]))
        window = (period["from_at"], period["until"]) if period else None
        wasted = row["wasted"] if row["kind"] == "not-retryable" else 0
        command = f"homing simulate {dump} --policy new.yaml" if row["kind"] == "longer" else f"homing explain {bare(row['queue'])}"
        died = row["died"] if row["kind"] != "room" else row.get("died_otherwise", 0)
        yield Finding(row["kind"], row["queue"], died, wasted, window, _text(row), command, "settings", (row["queue"], row["error_class"]))


def _text(row: Row) -> str:
    said = sentence(row)
    if row["kind"] == "longer":
        return f"{row['queue']} gives up too early on {row['error_class']}: {said.partition(': ')[2]}"
    return said


def _growth(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["dead_letter_trend"], LOOKED_AT):
        if row["verdict"] == "growing":
            halves = f"{number(row['early'])} in the first half of the time, {number(row['late'])} in the second"
            text, more = f"Deaths in {row['queue']} grow: {halves}", row["late"] - row["early"]
            yield Finding("growth", row["queue"], more, 0, None, text, "homing queues --watch", "deaths")


def _load(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["retry_storms"], 3):
        part = f"{share(row['retries'], row['deliveries'])} of its work in {plural(row['minutes'], 'minute')} was retries"
        text = f"A retry storm in {row['queue']}: {part}"
        window, command = (row["from_at"], row["until"]), f"homing explain {bare(row['queue'])}"
        yield Finding("storm", row["queue"], 0, row["retries"], window, text, command, "storms")
    for row in first_rows(tables["thundering_herds"], 3):
        if row["herded"]:
            text = (
                f"{number(row['due'])} messages of {row['queue']} fell due in one second, {number(row['times'])} times the usual; "
                "redelivery-collision-avoidance-factor spreads them"
            )
            window, command = (row["second"], row["second"]), f"homing explain {bare(row['queue'])}"
            yield Finding("herd", row["queue"], 0, row["due"], window, text, command, "storms")
    for row in first_rows(tables["due_error"], LOOKED_AT):
        if row["late"]:
            text = f"Retries of {row['queue']} come {span(row['p50_ms'])} late: its consumers are busy, or there are too few"
            yield Finding("late", row["queue"], 0, row["retries"], None, text, f"homing consumers {bare(row['queue'])}", "punctual")


def _people(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["consumers"], LOOKED_AT):
        who, command = f"{who_is(row)} of {row['queue']}", f"homing consumers {bare(row['queue'])}"
        if row["hoards"]:
            text = f"{who} hoards: messages waited {span(row['window_p50_ms'])} in its window; a smaller prefetch frees them"
            yield Finding("hoarder", row["queue"], 0, row["failed"], None, text, command, "consumers")
        elif row["slow"]:
            held = row["hold_p50_ms"] if row["hold_mean_ms"] is None else row["hold_mean_ms"]
            text = f"{who} is slow: it holds a message {span(held)}"
            yield Finding("slow", row["queue"], 0, row["failed"], None, text, command, "consumers")


def _ways(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["flow"], LOOKED_AT):
        if row["circling"]:
            text = f"{plural(row['circling'], 'message goes', 'messages go')} in circles from {row['source']} to {row['target']}"
            window, command = (row["first_at"], row["last_at"]), f"homing explain {bare(row['source'])}"
            yield Finding("circle", row["source"], row["circling"], 0, window, text, command, "flow")


def headlines(found: Sequence[Finding], limit: int) -> list[Finding]:
    """The first ``limit``, and of each queue and kind only the worst: the others are in the tables."""
    seen: set[tuple[str, str]] = set()
    shown = []
    for each in found:
        if (each.kind, each.queue) not in seen:
            seen.add((each.kind, each.queue))
            shown.append(each)
    return shown[:limit]
