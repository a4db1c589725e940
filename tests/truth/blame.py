"""Whom and what the report blames, from the clients' account: outages, programs, and the times at which faults were met."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.truth.account import Account, Between, Failure, Program, QueueEntry, times_of
from tests.truth.bounds import HOUR_US, MINUTE_US, OPEN, SECOND_US, Counts, first, last, moment, near, part_of
from tests.truth.lives import Life, Row, Rows, by_queue, failed_lives, on_record
from tests.truth.over_time import load_of, served

WON, FIRST = ("succeeded_first", "succeeded_retry"), ("succeeded_first", "failed_first")
FAILED = ("failed_first", "failed_retry")


class Run(NamedTuple):
    """Minutes one after the other in which hardly anything succeeded; the last one before and the first one after them that were well."""

    minutes: list[int]
    before: int | None
    after: int | None


def outages(account: Account) -> Rows:
    """Minutes of which nine in ten deliveries failed, two of them and ten failures at least, in a queue that does well otherwise; most that
    failed in them had not failed before, too many to be so by chance, and came from minute to minute or succeeded later.
    """
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        counts = load_of(entries)
        if not counts.is_sure(*WON, *FAILED) or any(entry.coarse for entry in entries):
            rows[queue, "open"] = {}
            continue
        turns: Counter[str] = Counter()
        lives = [life for life in failed_lives(account) if life.queue == queue and life.seen]
        for run in _runs(counts):
            if row := _outage(run, counts, entries, lives):
                error = row.pop("error_class")
                rows[queue, error, turns[error]] = row
                turns[error] += 1
    return rows


def _runs(counts: Counts) -> list[Run]:
    minutes = [minute for minute in counts.parts() if counts.least(minute, *WON, *FAILED)]
    well = [minute for minute in minutes if counts.least(minute, *WON) > 0.1 * counts.least(minute, *WON, *FAILED)]
    if sum(counts.least(each, *WON) for each in well) < 0.5 * sum(counts.least(each, *WON, *FAILED) for each in well) or not well:
        return []
    runs: list[list[int]] = []
    for minute in minutes:
        if minute in well:
            continue
        if runs and minute - runs[-1][-1] <= 30 and not any(runs[-1][-1] < each < minute for each in well):
            runs[-1].append(minute)
        else:
            runs.append([minute])
    times = [(run, [each for each in well if each < run[0]], [each for each in well if each > run[-1]]) for run in runs]
    return [Run(run, max(before, default=None), min(after, default=None)) for run, before, after in times]


def _outage(run: Run, counts: Counts, entries: list[QueueEntry], lives: list[Life]) -> Row | None:
    def within(at: Between) -> bool:
        return run.minutes[0] <= at.low // MINUTE_US <= run.minutes[-1]

    failures = sum(counts.least(minute, *FAILED) for minute in run.minutes)
    seen = [(entry.message, failure) for entry in entries for failure in on_record(entry) if within(failure.at)]
    met = [life for life in lives if within(life.seen[0].at)]
    won, came_in = sum(life.won for life in met), {life.seen[0].at.low // MINUTE_US for life in met}
    if len(run.minutes) < 2 or failures < 10 or len(met) < max(5, len({message for message, _ in seen}) / 2):
        return None
    well = [minute for minute in counts.parts() if counts.least(minute, *WON) > 0.1 * counts.least(minute, *WON, *FAILED)]
    tried = sum(counts.least(minute, *FIRST) for minute in well)
    usual = max(sum(counts.least(minute, "failed_first") for minute in well) / tried if tried else 0, 0.01)
    if usual ** len(met) >= 1e-6 or (len(came_in) <= 2 and 2 * won < len(met)):
        return None
    errors = Counter(failure.error for _, failure in seen)
    row: Row = {"error_class": min(errors, key=lambda error: (-errors[error], error)), "failures": failures, "messages": len(met)}
    row |= {"from_at": first(failure.at for _, failure in seen), "to_at": last(failure.at for _, failure in seen), "succeeded": won}
    ends = {"up_before": run.before, "up_after": run.after}
    return row | {name: None if at is None else moment(at, MINUTE_US) for name, at in ends.items()}


def died_in_outage(account: Account, queue: str, died: Between) -> Any:
    for key, row in outages(account).items():
        if key == (queue, "open"):
            return OPEN
        if key[0] == queue:
            until_us = row["up_after"].timestamp() * 1e6 if row["up_after"] else row["to_at"].high
            return row["from_at"].low <= died.low and died.high <= until_us
    return False


#: What a queue delivered is looked at in so many parts, of a record of an hour at least; the last three are now, and three without a pause.
PARTS = 12


def seen_when(account: Account, queue: str, times: Sequence[Between]) -> Any:
    """Whether a fault that was met in the queue at these times is new, gone, back or steady."""
    known = [part_of(at, MINUTE_US) for entry in account.entries for at in times_of(entry)]
    counts = load_of(by_queue(account)[queue])
    minutes = [part_of(at, MINUTE_US) for at in times]
    if None in known or not counts.is_sure(*WON, *FAILED) or any(entry.coarse for entry in account.entries):
        return OPEN
    # Counts are of minutes in which anything happened, in any queue.
    told = [minute for minute in known if minute is not None]
    if max(told) - min(told) + 1 < 60:
        return None
    so_far, total, part = 0.0, sum(counts.least(minute, *WON, *FAILED) for minute in counts.parts()), {}
    for minute in counts.parts():
        here = counts.least(minute, *WON, *FAILED)
        part[minute] = int(PARTS * (so_far + here / 2) / total)
        so_far += here
    parts = {part[minute] for minute in minutes if minute is not None}
    now, before = [each for each in parts if each >= PARTS - 3], [each for each in parts if each < PARTS - 3]
    if not now or not before:
        return "new" if now else "gone"
    return "back" if min(now) - max(before) > 3 else "steady"


#: What is compared, the first of those that explain a fault alike.
KINDS = ("version", "host", "client_id")
SLICE_US = 300 * SECOND_US
#: (kind of a program's name, name)
Name = tuple[str, str]


def names_of(program: Program) -> list[Name]:
    told = zip(KINDS, (program.version, program.host, program.client), strict=True)
    return [(kind, name) for kind, name in told if name is not None]


def releases(account: Account) -> Rows:
    """Programs by each of their names beside the others that got anything of the queue in the same five minutes, stratified by these."""
    rows: Rows = {}
    given: dict[str, dict[int, Counter[Name]] | None] = {}
    for (queue, program), own in served(account).items():
        times = [each.at for each in own.failures] + [ended for _, ended in own.won]
        slices = [part_of(at, SLICE_US) for at in times]
        of_queue = given.setdefault(queue, defaultdict(Counter))
        # What is counted by the hour lies evenly between its first and its last; here it has to lie in one slice.
        by_hour: dict[int, set[int | None]] = defaultdict(set)
        for at, number in zip(times, slices, strict=True):
            by_hour[at.low // HOUR_US].add(number)
        if of_queue is None or any(len(each) > 1 or None in each for each in by_hour.values()):
            given[queue] = None
            continue
        for number in slices:
            if number is not None:
                of_queue[number].update(names_of(program))
    for queue, slices_of in given.items():
        if slices_of is None:
            rows[queue, "open"] = {}
            continue
        rows |= _of_queue(queue, by_queue(account)[queue], slices_of)
    return rows


def _of_queue(queue: str, entries: list[QueueEntry], given: dict[int, Counter[Name]]) -> Rows:
    rows: Rows = {}
    by_error: dict[str, dict[int, list[Failure]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        for failure in on_record(entry):
            by_error[failure.error][entry.message].append(failure)
    for error, messages in by_error.items():
        compared: dict[Name, Row] = {}
        for kind in KINDS:
            compared |= _of_kind(kind, list(messages.values()), given)
        _suspect(compared)
        rows |= {(queue, error, *name): row for name, row in compared.items()}
    return rows


def _of_kind(kind: str, messages: list[list[Failure]], given: dict[int, Counter[Name]]) -> dict[Name, Row]:
    there = {number: {name: n for name, n in counts.items() if name[0] == kind} for number, counts in given.items()}
    there = {number: counts for number, counts in there.items() if len(counts) > 1}
    met: dict[int, dict[Name, list[Between]]] = defaultdict(lambda: defaultdict(list))
    for failures in messages:
        names = {name for failure in failures for name in names_of(failure.program) if name[0] == kind}
        earliest = min((failure.at for failure in failures), key=lambda at: at.low)
        if len(names) == 1:
            met[earliest.low // SLICE_US][names.pop()].append(earliest)
    found: dict[Name, Row] = {}
    for name in {name for number in met for name in met[number] if number in there and name in there[number]}:
        tables, times, others_failed = [], [], 0
        for number in met.keys() & there.keys():
            if name not in there[number]:
                continue
            mine, all_failed = met[number][name], sum(map(len, met[number].values()))
            rest = sum(max(n, len(met[number][other])) for other, n in there[number].items() if other != name)
            n, theirs = max(there[number][name], len(mine)), all_failed - len(mine)
            others_failed += theirs
            times += mine
            tables.append([[len(mine), n - len(mine)], [theirs, rest - theirs]])
        if not times:
            continue
        row: Row = {"failed": len(times), "others_failed": others_failed, "first_at": first(times), "last_at": last(times)}
        row["deliveries"] = sum(counts.get(name, 0) for counts in there.values())
        row["others_deliveries"] = sum(sum(counts.values()) - counts[name] for counts in there.values() if name in counts)
        found[name] = row | _compared(row, tables)
    return found


def _compared(row: Row, tables: list[list[list[int]]]) -> Row:
    """By Mantel and Haenszel, as statsmodels has it. ``errors``: by how many the name is above the others."""
    from statsmodels.stats.contingency_tables import StratifiedTable  # two seconds, which whoever only collects tests saves

    whole: Any = StratifiedTable(np.array(tables, float).transpose(1, 2, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = float(whole.riskratio_pooled) if row["others_failed"] else None
        expected = sum(sum(own) * (own[0] + rest[0]) / (sum(own) + sum(rest)) for own, rest in tables)
        errors = float(whole.test_null_odds(correction=False).statistic) ** 0.5 * (1 if row["failed"] > expected else -1)
    enough = row["failed"] >= 5 and row["deliveries"] >= 20 and row["others_deliveries"] >= 20
    far = enough and errors > 4 and (lift is None or lift >= 2)
    return {"lift": None if lift is None else near(lift), "errors": errors, "far": far}


def _suspect(compared: dict[Name, Row]) -> None:
    """The one that explains the fault best of those far above the others, and those that explain it as well."""
    most = max((row["errors"] for row in compared.values() if row["far"]), default=0)
    best = [name for name, row in compared.items() if row["far"] and row["errors"] >= 0.95 * most]
    best.sort(key=lambda name: (KINDS.index(name[0]), -compared[name]["errors"], name[1]))
    for name, row in compared.items():
        row["suspect"] = name == best[0] if best else False
        row["alike"] = ", ".join(sorted(map(" ".join, best[1:]))) if row["suspect"] else None
        del row["errors"], row["far"]
