"""The tables that tell of minutes, seconds and milliseconds, as far as the clients' bounds decide them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.truth.account import Account, Between, Failure, Program, QueueEntry
from tests.truth.bounds import (
    HOUR_US,
    MINUTE_US,
    OPEN,
    SECOND_US,
    Counts,
    Within,
    decided,
    first,
    last,
    moment,
    near,
    part_of,
    ranked,
    usual,
)
from tests.truth.lives import DEAD, Row, Rows, by_queue, numbered, on_record

LOAD = ("succeeded_first", "succeeded_retry", "failed_first", "failed_retry")


class Maybe(dict[str, Any]):
    """A row that is there, or not."""


def load_of(entries: list[QueueEntry], size_us: int = MINUTE_US) -> Counts:
    counts = Counts(size_us)
    for entry in entries:
        for number, failure in enumerate(entry.failures):
            if number < entry.before:
                continue
            counts.add("failed_retry" if number else "failed_first", failure.at)
            counts.add("failed_ms", failure.at, max(failure.held_us / 1000 - 2, 0), (failure.at.high - failure.given.low) / 1000 + 1)
        if entry.ended and entry.outcome == "succeeded":
            counts.add("succeeded_retry" if entry.failures else "succeeded_first", entry.ended)
        if entry.ended and entry.outcome in DEAD and len(entry.failures) > 1:
            counts.add("wasted", entry.ended, len(entry.failures) - 1)
    return counts


def retry_load(account: Account) -> Rows:
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        counts = load_of(entries)
        if any(entry.coarse for entry in entries):
            rows[queue, "open"] = {}
            continue
        for minute in counts.parts():
            row: Row = {name: counts.of(minute, name) for name in (*LOAD, "wasted")}
            row |= {"retries": counts.of(minute, "succeeded_retry", "failed_retry")}
            row |= {"failed_ms": Within(counts.least(minute, "failed_ms"), counts.most(minute, "failed_ms"))}
            key = queue, moment(minute, MINUTE_US)
            rows[key] = row if counts.least(minute, *LOAD) else Maybe(row)
    return rows


def recent_load(account: Account) -> Rows:
    """Of what is on record by itself, of all brokers."""
    counts = Counts(SECOND_US)
    for entry in account.entries:
        for number, failure in numbered(entry):
            counts.add("failed_retry" if number > 1 else "failed_first", failure.at)
        if entry.failures and entry.ended and entry.outcome == "succeeded":
            counts.add("succeeded_retry", entry.ended)
    since = account.exported_us - 600 * SECOND_US
    names = ("failed_first", "failed_retry", "succeeded_retry")
    rows: Rows = {}
    for second in counts.parts():
        row: Row = {name: counts.of(second, name) for name in names}
        if second * SECOND_US >= since:
            rows[moment(second, SECOND_US),] = row if counts.least(second) else Maybe(row)
    return rows


def retry_storms(account: Account) -> Rows:
    """30 retries a minute, and half of its deliveries; two minutes of calm do not end it."""
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        counts = load_of(entries)
        if not counts.is_sure(*LOAD, "wasted") or any(entry.coarse for entry in entries):
            rows[queue, "open"] = {}
            continue
        stormy = []
        for minute in counts.parts():
            retries = counts.least(minute, "succeeded_retry", "failed_retry")
            if retries >= 30 and retries >= 0.5 * counts.least(minute, *LOAD):
                stormy.append(minute)
        storms: list[list[int]] = []
        for minute in stormy:
            if storms and minute - storms[-1][-1] <= 3:
                storms[-1].append(minute)
            else:
                storms.append([minute])
        for storm in storms:
            row: Row = {"until": moment(storm[-1] + 1, MINUTE_US), "minutes": len(storm)}
            row |= {"retries": sum(counts.least(minute, "succeeded_retry", "failed_retry") for minute in storm)}
            row |= {"deliveries": sum(counts.least(minute, *LOAD) for minute in storm)}
            row |= {"peak": max(counts.least(minute, "succeeded_retry", "failed_retry") for minute in storm)}
            rows[queue, moment(storm[0], MINUTE_US)] = row | {"wasted": sum(counts.least(minute, "wasted") for minute in storm)}
    return rows


def thundering_herds(account: Account) -> Rows:
    """20 due in a second, and eight times what is usual."""
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        due = Counts(SECOND_US)
        behind: dict[int, list[Between]] = defaultdict(list)
        for failure in (each for entry in entries for each in on_record(entry)):
            if failure.due:
                due.add("due", failure.due)
                for second in range(failure.due.low // SECOND_US, failure.due.high // SECOND_US + 1):
                    behind[second].append(failure.at)
        total = sum(1 for entry in entries for each in on_record(entry) if each.due)
        for second in due.parts():
            here = due.least(second), due.most(second)
            others = [each for each in due.parts() if each != second]
            typical = usual(total, here, (sum(due.least(each) > 0 for each in others), len(others)))
            if here[1] < 20 or here[1] < 8 * typical[0]:
                continue
            known = here[0] == here[1]
            spread = [
                (last(behind[second]).low - first(behind[second]).high) / 1e6,
                (last(behind[second]).high - first(behind[second]).low) / 1e6,
            ]
            row: Row = {"due": Within(*here), "usual": Within(typical[0] - 1e-9, typical[1] + 1e-9)}
            row |= {"times": Within(here[0] / typical[1] - 1e-9, here[1] / typical[0] + 1e-9)}
            row |= {"failures_s": Within(*spread) if known else OPEN}
            row |= {"herded": decided(*(each > 5 for each in spread)) if known else OPEN}
            rows[queue, moment(second, SECOND_US)] = row if here[0] >= 20 and here[0] >= 8 * typical[1] else Maybe(row)
    return rows


BINS = {"within_10_ms": 10, "within_100_ms": 100, "within_1_s": 1_000, "within_10_s": 10_000, "later": float("inf")}


def due_error(account: Account) -> Rows:
    """How late retries were assigned that failed again, both attempts on record: no later than the program got them, and early by hand."""
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        late: list[tuple[float, float]] = []
        early = 0
        for entry in entries:
            seen = numbered(entry)
            for (before, one), (after, other) in pairwise(seen):
                if after == before + 1 and one.due and other.assigned.high < one.due.low:
                    early += 1
                elif after == before + 1 and one.due:
                    late.append((max((other.assigned.low - one.due.high) / 1000, 0), (other.assigned.high - one.due.low) / 1000 + 1))
        if late or early:
            row: Row = {"retries": len(late) + early, "early": early, "p50_ms": ranked(late, 0.5), "p99_ms": ranked(late, 0.99)}
            row |= {
                "max_ms": ranked(late, 1.0),
                "late": decided(*(sorted(e[i] for e in late)[(len(late) - 1) // 2] > 1_000 for i in (0, 1))) if late else False,
            }
            above = -1.0
            for name, end in BINS.items():
                surely = sum(above < low and high <= end for low, high in late)
                row[name] = Within(surely, sum(low <= end and high > above for low, high in late))
                above = end
            rows[queue,] = row
    return rows


def deaths_of(account: Account) -> dict[str, list[QueueEntry]]:
    return {
        queue: dead
        for queue, entries in by_queue(account).items()
        if (dead := [entry for entry in entries if entry.outcome in (*DEAD, "expired")])
    }


def counted_only(entry: QueueEntry) -> bool:
    """Of what gave way without ever failing the broker keeps no record."""
    return entry.reason == "maxlen" and entry.outcome == "dropped" and not entry.failures


def died_at(entry: QueueEntry) -> Between:
    """Of what was removed without ever failing only the minute is kept, and in the end the hour."""
    assert entry.ended is not None
    if not counted_only(entry):
        return entry.ended
    low_us = HOUR_US if entry.coarse else MINUTE_US
    return Between(entry.ended.low // low_us * low_us, entry.ended.high // MINUTE_US * MINUTE_US)


def growth(account: Account) -> Rows:
    rows: Rows = {}
    for queue, dead in deaths_of(account).items():
        counts, before = Counts(HOUR_US), [0.0, 0.0]
        for entry in dead:
            counts.add("deaths", died_at(entry))
        for hour in counts.parts():
            before = [before[0] + counts.least(hour), min(before[1] + counts.most(hour), len(dead))]
            row: Row = {"deaths": counts.of(hour), "so_far": Within(*before)}
            rows[queue, moment(hour, HOUR_US)] = row if counts.least(hour) else Maybe(row)
    return rows


def trend(account: Account) -> Rows:
    rows: Rows = {}
    start = part_of(account.began, MINUTE_US)
    for queue, dead in deaths_of(account).items():
        row: Row = {"deaths": OPEN if start is None else len(dead), "verdict": "too-few" if len(dead) < 20 else OPEN}
        row |= dict.fromkeys(("hours", "per_day", "early", "late", "slope_per_day"), OPEN)
        if start is not None:
            whole_us = max(account.exported_us - start * MINUTE_US, 1)
            parts = [{min(int((end - start * MINUTE_US) * 12 // whole_us), 11) for end in died_at(entry)} for entry in dead]
            days = whole_us / 24 / HOUR_US
            row |= {"hours": near(days * 24), "per_day": near(len(dead) / days)}
            early = [sum(max(each) < 6 for each in parts), sum(min(each) < 6 for each in parts)]
            row |= {"early": Within(*early), "late": Within(len(dead) - early[1], len(dead) - early[0])}
            if all(len(each) == 1 for each in parts):
                row |= _slope([next(iter(each)) for each in parts], days)
        # What died before the counts by the minute begin is no part of a trend.
        rows[queue,] = Maybe(row) if all(entry.coarse for entry in dead) else row
    return rows


def _slope(parts: list[int], days: float) -> Row:
    """Least squares over twelve parts of the time, by hand."""
    counts = [parts.count(number) for number in range(12)]
    x = [number - 5.5 for number in range(12)]
    xx = sum(each * each for each in x)
    mean = len(parts) / 12
    slope = sum(a * b for a, b in zip(x, counts, strict=True)) / xx
    rest = sum((count - mean - slope * a) ** 2 for a, count in zip(x, counts, strict=True))
    error = (max(rest, 0) / 10 / xx) ** 0.5
    change = sum(counts[6:]) - sum(counts[:6])
    row: Row = {"slope_per_day": near(slope * (12 / days) ** 2)}
    if len(parts) >= 20 and abs(abs(slope) - 3 * error) > 1e-9:
        sure = abs(change) > max(3 * len(parts) ** 0.5, 0.2 * len(parts))
        row["verdict"] = "steady" if not sure else "uneven" if abs(slope) <= 3 * error else "growing" if slope > 0 else "falling"
    return row


class Served:
    """What one program had of a queue."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.seen: list[Failure] = []
        self.won: list[tuple[Between, Between]] = []

    @property
    def deliveries(self) -> int:
        return len(self.failures) + len(self.won)

    @property
    def begin(self) -> tuple[float, float]:
        times = [each.at for each in self.failures] + [ended for _, ended in self.won] + [each.assigned for each in self.seen]
        return min(each.low for each in times), min(each.high for each in times)

    @property
    def end(self) -> tuple[float, float]:
        times = [each.at for each in self.failures] + [ended for _, ended in self.won]
        return max(each.low for each in times), max(each.high for each in times)


def served(account: Account) -> dict[tuple[str, Program], Served]:
    found: dict[tuple[str, Program], Served] = defaultdict(Served)
    for entry in account.entries:
        kept = {id(failure) for failure in on_record(entry)}
        for failure in entry.recent:
            of = found[entry.queue, failure.program]
            of.failures.append(failure)
            of.seen += [failure] if id(failure) in kept else []
        if entry.outcome == "succeeded" and entry.program and entry.assigned and entry.ended:
            found[entry.queue, entry.program].won.append((entry.assigned, entry.ended))
    return found


def consumers(account: Account) -> Rows:
    all_served = served(account)
    rows: Rows = {}
    for (queue, program), own in all_served.items():
        mates = {who: other for (where, who), other in all_served.items() if where == queue}
        holds = [(each.held_us / 1000, (each.at.high - each.given.low) / 1000) for each in own.seen]
        windows = [(0.0, (each.given.high - each.assigned.low) / 1000) for each in own.seen]
        row: Row = {"deliveries": own.deliveries, "failed": len(own.failures), "host": program.host}
        row |= {"hold_p50_ms": ranked(holds, 0.5), "hold_p90_ms": ranked(holds, 0.9)}
        row |= {"window_p50_ms": ranked(windows, 0.5), "window_p90_ms": ranked(windows, 0.9)}
        row["hold_mean_ms"] = None
        if own.won:
            row["hold_mean_ms"] = Within(0, sum((ended.high - given.low) / 1000 + 1 for given, ended in own.won) / len(own.won))
        lone = len(mates) == 1
        row["slow"] = False if lone or max(len(own.failures), len(own.won)) < 10 else OPEN
        row["hoards"] = False if lone or len(own.failures) < 10 or max((high for _, high in windows), default=0) < 5_000 else OPEN
        rows[queue, program.client, program.version] = row | _fairness(own, list(mates.values()))
    return rows


def _fairness(own: Served, mates: list[Served]) -> Row:
    """Against those that were there when it was, for half of the time of either at least."""
    together = []
    for other in mates:
        answer = True if other is own else decided(*_overlaps(own, other))
        if answer is OPEN:
            return dict.fromkeys(("together", "share", "fair_share", "fairness", "greedy"), OPEN)
        together += [other.deliveries] if answer else []
    total, count = sum(together), len(together)
    share, fair = own.deliveries / total, 1 / count
    above = share - fair > 3 * (fair * (1 - fair) / total) ** 0.5
    greedy = own.deliveries >= 10 and share >= 1.5 * fair and above
    even = total * total / (count * sum(each * each for each in together))
    return {"together": count, "share": near(share), "fair_share": near(fair), "fairness": near(even), "greedy": greedy}


def _overlaps(one: Served, other: Served) -> list[bool]:
    found = []
    for way in (0, 1):
        # The shortest and the longest that both can have been there together.
        begins, ends = [each.begin[1 - way] for each in (one, other)], [each.end[way] for each in (one, other)]
        shared = min(ends) - max(begins)
        wide, tight = [[each.end[which] - each.begin[1 - which] for each in (one, other)] for which in (1, 0)]
        longer = max(tight) if way else max(wide)
        found.append(shared >= 0 and 2 * shared >= longer)
    return found
