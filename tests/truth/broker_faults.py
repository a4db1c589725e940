"""What the broker counts of faults, and what lies in dead-letter queues, as clients know it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from statsmodels.stats.proportion import proportion_confint

from tests.truth.account import Account, Between, QueueEntry
from tests.truth.bounds import MINUTE_US, OPEN, Within, first, last
from tests.truth.lives import Row, Rows, on_record
from tests.truth.over_time import Maybe

#: Queue and error class, or why it was dead-lettered where it never failed.
Fault = tuple[str, str]
COUNTED = ("failures", "waiting", "succeeded", "died", "redriven", "back_succeeded", "back_died", "dead")


@dataclass(eq=False)
class OneOf:
    values: set[Any]

    def __eq__(self, reported: object) -> bool:
        return reported in self.values

    __hash__ = None  # type: ignore[assignment]


@dataclass(eq=False)
class Sum:
    """Numbers beside each other, of which clients know what they come to."""

    of: Any

    def __eq__(self, reported: object) -> bool:
        return bool(self.of == sum(map(int, str(reported).split())))

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Seen:
    counts: Counter[str] = field(default_factory=Counter)
    times: list[Between] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    #: What became of some that met it is not told to clients: which of a message's numbers goes on, or whether a kill took the count.
    open: bool = False
    #: Those that lie there: where, and the deaths.
    lie: dict[str, list[QueueEntry]] = field(default_factory=lambda: defaultdict(list))


def seen(account: Account) -> dict[Fault, Seen]:
    found: dict[Fault, Seen] = defaultdict(Seen)
    for message in dict.fromkeys(entry.message for entry in account.entries):
        met: set[Fault] = set()
        entries = account.of(message)
        _follow(entries, found, met)
        if message in account.passing or any(entry.outcome in ("edited", "delayed", "moved") for entry in entries):
            for fault in met:
                found[fault].open = True
    return found


def _follow(entries: list[QueueEntry], found: dict[Fault, Seen], met: set[Fault]) -> None:
    """One message, from entry to entry: ``cause`` is the fault it failed of last, or died of."""
    cause: Fault | None = None
    dead = back = False
    for number, entry in enumerate(entries):
        for failure in entry.failures:
            fault = entry.queue, failure.error
            met.add(fault)
            found[fault].counts["failures"] += 1
            found[fault].times.append(failure.at)
            found[fault].texts |= {failure.text or ""}
            cause = cause if dead else fault
        leaves_dead = entry.ended is not None and (entry.outcome == "dead-lettered" or (entry.outcome == "expired" and bool(entry.target)))
        if leaves_dead and cause is None:
            assert entry.ended
            cause = entry.queue, str(entry.reason)
            met.add(cause)
            found[cause].times.append(entry.ended)
            found[cause].texts.add("")
        if cause is None:
            continue
        counts = found[cause].counts
        counts["died"] += leaves_dead
        counts["back_died"] += leaves_dead and back and not dead and bool(entry.failures or number)
        if entry.outcome == "succeeded" and not dead:
            counts["succeeded"] += 1
            counts["back_succeeded"] += back
        if entry.outcome is None:
            counts["dead" if dead else "waiting"] += 1
            if dead and entries[number - 1].outcome == "dead-lettered":  # what expired is no dead letter
                found[cause].lie[entry.queue].append(entries[number - 1])
        if entry.outcome == "redriven":
            counts["redriven"] += 1
        back = back or entry.outcome == "redriven"
        dead = leaves_dead


def faults(account: Account) -> Rows:
    rows: Rows = {}
    whole = account.whole or account
    for fault, what in seen(whole).items():
        row: Row = dict.fromkeys(COUNTED, OPEN) if what.open else {name: what.counts[name] for name in COUNTED}
        number = attempts(account, fault)
        row |= {"attempts": number, "course": Sum(number)}
        row |= dict.fromkeys(("fixed_in", "fixed_at", "regressed_at")) | {"muted": False}
        row |= {"first_at": first(what.times), "text": OneOf(what.texts)}
        latest = last(what.times)
        row["last_at"] = Within(latest.low - MINUTE_US, latest.high)
        rows[fault] = Maybe(row) if account.is_cut else row
    return rows


def attempts(account: Account, fault: Fault) -> Any:
    """Of those without a record it is told that they failed as the last of their entry."""
    queue, error = fault
    least = most = 0
    for entry in account.entries:
        record = on_record(entry) if entry.queue == queue else []
        if record:
            own = sum(each.error == error for each in record)
            lost = len(entry.recent) - len(record) if record[-1].error == error else 0
            least, most = least + own + (0 if account.is_cut else lost), most + own + lost
    return Within(least, most) if least < most else least


def redrive_yield(account: Account) -> Rows:
    rows: Rows = {}
    for (queue, error), what in seen(account.whole or account).items():
        for place, deaths in what.lie.items():
            died = [each.ended for each in deaths if each.ended]
            row: Row = {"lie": len(deaths), "first_died_at": first(died), "last_died_at": last(died)}
            row |= {name: OPEN if what.open else what.counts[name] for name in ("redriven", "back_succeeded", "back_died")}
            row["text"] = OneOf(what.texts)
            met = {each.message for each in account.entries if each.queue == queue and _met(each, error)}
            like = [each for each in account.entries if each.queue == queue and each.outcome == "succeeded" and each.message in met]
            row |= _like(like, last(died))
            well, tried = what.counts["back_succeeded"], what.counts["back_succeeded"] + what.counts["back_died"]
            low, high = proportion_confint(well, tried, alpha=0.1, method="wilson") if tried else (None, None)
            row |= {"least": _near(low, len(deaths)), "most": _near(high, len(deaths))} if not what.open else {"least": OPEN, "most": OPEN}
            rows[place, queue, error] = row
    return {(place, "open"): {} for place, *_ in rows} if account.is_cut else rows


def _met(entry: QueueEntry, error: str) -> bool:
    return any(each.error == error for each in on_record(entry))


def _near(share: float | None, number: int) -> Any:
    return None if share is None else Within(share * number - 1, share * number + 1)


def _like(entries: list[QueueEntry], since: Within) -> Row:
    sure, possible = (
        [each for each in entries if each.ended and each.ended[end] > bound] for end, bound in ((0, since.high), (1, since.low))
    )
    if len(sure) < len(possible):
        return dict.fromkeys(("like_succeeded", "like_last_at", "like_version"), OPEN)
    versions = {each.program and each.program.version for each in sure}
    latest = last(each.ended for each in sure if each.ended) if sure else None
    return {"like_succeeded": len(sure), "like_last_at": latest, "like_version": OneOf(versions) if sure else None}
