"""What to look at first: everything the tables found wrong, ranked by the messages it cost, then by the work.

A cause is told once: what follows from it (more dead letters, a storm of its retries, advice for its error) is not told beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..words import between, number, plural, share, span
from .advice_words import sentence
from .tables import Row, bare, first_rows

#: table -> what was written of it, a pyarrow.Table
Tables = Mapping[str, Any]
#: Rows of a table that are looked at; they come with the worst first.
LOOKED_AT = 50
#: A fault that fewer messages met is not reported as new, or as back: one that comes now and then pauses by chance.
ENOUGH = 10
SEEN = {"new": ENOUGH, "back": 2 * ENOUGH}
#: How what `releases` compares is called.
SUSPECTS = {"version": ("suspect-release", "Version"), "host": ("suspect-host", "Host"), "client_id": ("suspect-client", "Client")}
#: Those are known to be so before anything else, and these may be no more than what another one brings about.
FIRST, SYMPTOMS = ("imbalance", *(kind for kind, _ in SUSPECTS.values())), ("growth", "storm", "herd", "late")
#: Of several findings about one fault the first of these is told.
CAUSES = (*FIRST[1:], "outage", "not-retryable", "redrive", "poison", "longer", "room", "new-fault", "back-fault")

Times = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: a word for it that stays. What it cost: ``messages`` lost or in trouble, ``retries`` that need not have been.

    ``window``: the first and the last time it was seen, or that its queue is on record; None: neither. ``section``: of the page, where its
    details are. ``over``: nothing of it is lost, or lies anywhere now.
    """

    kind: str
    queue: str
    messages: int
    retries: int
    window: Times | None
    text: str
    command: str
    section: str
    #: queue and error class, where it is of one
    fault: tuple[str, str] | None = None
    over: bool = False

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
        return named | {"first_seen": first, "last_seen": last, "text": self.text, "command": self.command, "over": self.over}


def ranked(tables: Tables, dump: str) -> list[Finding]:
    """What is over last, else the costliest first. ``dump``: what the commands that read exports are to be given."""
    about_faults = (*_suspects(tables), *_outages(tables), *_advice(tables, dump), *_faults(tables), *_new_faults(tables))
    told: dict[tuple[str, str] | None, Finding] = {}
    for each in sorted(about_faults, key=lambda each: CAUSES.index(each.kind)):
        told.setdefault(each.fault, each)
    times = _times(tables["retry_load"])
    causes = [each for each in about_faults if told[each.fault].kind == each.kind]
    other = (*_imbalance(tables), *_growth(tables), *_load(tables), *_people(tables), *_ways(tables))
    found = [each if each.window else replace(each, window=times.get(each.queue)) for each in (*causes, *other)]
    found = [each for each in found if each.kind not in SYMPTOMS or not any(_explains(cause, each) for cause in found)]
    return sorted(found, key=lambda each: (each.over, each.kind not in FIRST, -each.messages, -each.retries, each.kind, each.queue))


def _explains(cause: Finding, symptom: Finding) -> bool:
    """Whether it is of the same queue and time."""
    if cause.kind not in CAUSES or cause.queue != symptom.queue:
        return False
    return not (cause.window and symptom.window) or (cause.window[0] <= symptom.window[1] and symptom.window[0] <= cause.window[1])


def _times(load: Any) -> dict[str, Times]:
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
        if row["ran_out"]:
            text = f"{plural(row['ran_out'], 'message')} expired in {row['queue']} before a consumer was done with them"
            yield Finding("expired", row["queue"], row["ran_out"], 0, None, text, f"homing explain {bare(row['queue'])}", "balance")


def suspect_sentence(row: Row) -> str:
    """One row of ``releases``."""
    here, others = (share(row[failed], row[n]) for failed, n in (("failed", "deliveries"), ("others_failed", "others_deliveries")))
    text = f"{SUSPECTS[row['kind']][1]} {row['name']} fails {here} of what it gets from {row['queue']} with {row['error_class']}"
    text += f"; others do {others} at the same time" if row["others_failed"] else "; no other does at the same time"
    return f"{text}. It may as well be {row['alike']}: they fail alike" if row["alike"] else text


def _suspects(tables: Tables) -> Iterator[Finding]:
    for row in first_rows(tables["releases"], LOOKED_AT):
        if row["suspect"]:
            window, fault = (row["first_at"], row["last_at"]), (row["queue"], row["error_class"])
            command = f"homing consumers {bare(row['queue'])}"
            kind, text = SUSPECTS[row["kind"]][0], suspect_sentence(row)
            yield Finding(kind, row["queue"], row["failed"], 0, window, text, command, "releases", fault)


def _outages(tables: Tables) -> Iterator[Finding]:
    """Each with what died of its error while it lasted; of a fault that is met as often without one, none is the cause."""
    faults = {(row["queue"], row["error_class"]): row for row in tables["poison_clusters"].to_pylist()}
    for row in first_rows(tables["outages"], LOOKED_AT):
        queue, error = row["queue"], row["error_class"]
        of = faults.get((queue, error), {"deaths": 0, "here": 0, "lost": 0, "outage": False, "attempts": 0})
        dead = of["here"] + of["lost"] if of["outage"] else 0
        then = f"{number(row['succeeded'])} of {plural(row['messages'], 'message')} succeeded since"
        then += f", and {number(dead)} were dead-lettered and are well" if dead else ""
        text = f"{queue} was down {between(row['from_at'], row['to_at'])}: every delivery failed, mostly with {error}. {then}"
        command = _redrive(tables, queue) if dead else f"homing explain {bare(queue)}"
        alone = of["outage"] or 2 * row["failures"] >= of["attempts"]
        window, fault = (row["from_at"], row["to_at"]), (queue, error if alone else f"{error} while down")
        yield Finding("outage", queue, dead, row["failures"], window, text, command, "storms", fault)


def _redrive(tables: Tables, queue: str) -> str:
    return f"homing redrive {_lies_in(tables, queue)}"


def _lies_in(tables: Tables, queue: str) -> str:
    groups = [row for row in tables["dead_letter_groups"].to_pylist() if row["queue"] == queue and row["remaining"]]
    return bare(max(groups, key=lambda row: row["remaining"])["dead_letter_queue"]) if groups else bare(queue)


def fingerprints(tables: Tables) -> dict[tuple[str, int], Row]:
    """Queue and cluster -> the row of ``faults`` with most attempts of those that look alike."""
    found: dict[tuple[str, int], Row] = {}
    for row in tables["faults"].to_pylist():
        known = found.setdefault((row["queue"], row["cluster"]), row)
        if row["attempts"] > known["attempts"]:
            found[row["queue"], row["cluster"]] = row
    return found


def _show(known: Mapping[tuple[str, int], Row], row: Row) -> str:
    fault = known.get((row["queue"], row["cluster"]))
    return fault["command"] if fault else f"homing explain {bare(row['queue'])}"


def _faults(tables: Tables) -> Iterator[Finding]:
    known = fingerprints(tables)
    yields = {row["fingerprint"]: row for row in reversed(tables["redrive_yield"].to_pylist())}
    for row in first_rows(tables["poison_clusters"], LOOKED_AT):
        fault = queue, error = row["queue"], row["error_class"]
        window, lost = (row["first_at"], row["last_at"]), row["here"] + row["lost"]
        of = f"{number(row['deaths'])} of {plural(row['messages'], 'message')} that met it were dead-lettered"
        of += f", and it is {row['seen']}" if row["seen"] in ("new", "back") else ""
        back = f"{number(row['succeeded'])} that were sent back succeeded"
        if row["deaths"] >= ENOUGH and not lost:
            text = f"{error} in {queue} is dealt with: {of}; {back if row['succeeded'] else 'nobody left them where they were'}"
            yield Finding("poison", queue, row["deaths"], 0, window, text, _show(known, row), "faults", fault, over=True)
        elif row["here"] and 2 * row["succeeded"] >= row["deaths"] >= ENOUGH:
            text = f"{number(row['here'])} dead letters of {error} in {queue} may go back: {back}"
            these = yields.get(known.get((queue, row["cluster"]), {}).get("fingerprint"))
            text, command = (text, _redrive(tables, queue)) if these is None else (f"{text}{expectation(these)}", these["command"])
            yield Finding("redrive", queue, row["here"], 0, window, text, command, "yield", fault)
        elif row["poison"]:
            lies = f"{number(row['here'])} lie in a dead-letter queue" if row["here"] else ""
            gone = f"{number(row['lost'])} are gone" if row["lost"] else ""
            text = f"{error} in {queue} is poison: {of}; {' and '.join(filter(None, (lies, gone)))}"
            yield Finding("poison", queue, lost, 0, window, text, _show(known, row), "faults", fault)


def expectation(row: Row) -> str:
    """Of a row of ``redrive_yield``: how many can be expected to succeed, and whether its like does."""
    text = (
        ""
        if row["most"] is None
        else f"; {number(row['least'])} to {number(row['most'])} of {number(row['lie'])} can be expected to succeed"
    )
    if row["like_succeeded"]:
        text += f"; since then {plural(row['like_succeeded'], 'message')} that met it succeeded"
        text += f", the last in {row['like_version']}" if row["like_version"] else ""
    return text


def _new_faults(tables: Tables) -> Iterator[Finding]:
    known = fingerprints(tables)
    for row in first_rows(tables["poison_clusters"], tables["poison_clusters"].num_rows):
        if row["seen"] in SEEN and row["messages"] >= SEEN[row["seen"]]:
            text = f"{row['error_class']} in {row['queue']} is {row['seen']}: {number(row['messages'])} messages met it"
            fault, window = (row["queue"], row["error_class"]), (row["first_at"], row["last_at"])
            kind, retries, command = f"{row['seen']}-fault", row["attempts"] - row["messages"], _show(known, row)
            yield Finding(kind, row["queue"], row["here"] + row["lost"], retries, window, text, command, "faults", fault)


def _advice(tables: Tables, dump: str) -> Iterator[Finding]:
    for row in first_rows(tables["advice"], LOOKED_AT):
        if not row["current"] or row["kind"] in ("fine", "too-few"):
            continue
        window = row["first_at"], row["last_at"]
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
