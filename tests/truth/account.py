"""What the clients of a workload know by themselves: of each message where it stood, how each delivery ended, and between which moments.

The broker is never asked. Where a message goes that failed follows from the settings that the workload wrote and from how it was failed;
that it really went there shows when a client finds it there, or looks at the queue in the end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple


class Between(NamedTuple):
    """A moment that a client knows within bounds, in microseconds since 1970; the broker's clock ticks in milliseconds."""

    low: int
    high: int

    @classmethod
    def since(cls, low_us: int) -> Between:
        return cls((low_us - _set_us()) // 1000 * 1000 - 1000, now_us() + _set_us() + 1000)

    def after(self, ms: int) -> Between:
        return Between(self.low + ms * 1000, self.high + ms * 1000)


#: By how much the clock of the machine that a task plays on, and what it starts, is ahead of this one's.
AHEAD_US: ContextVar[int] = ContextVar("AHEAD_US", default=0)


_APART_NS: Final = time.time_ns() - time.monotonic_ns()


def _set_us() -> int:
    """By how much this machine's clock has been set since: a broker follows it within a second, and forward only."""
    return abs(time.time_ns() - time.monotonic_ns() - _APART_NS) // 1000


def now_us() -> int:
    return time.time_ns() // 1000 + AHEAD_US.get()


class Program(NamedTuple):
    """What a consumer's program says of itself, which may be nothing."""

    client: str | None
    version: str | None
    host: str | None


class Failure(NamedTuple):
    at: Between
    #: when it joined the consumer's window, and when the broker heard that the program had it
    assigned: Between
    given: Between
    error: str
    #: None: nothing was told
    text: str | None
    program: Program
    #: the limit in force, and how many attempts of each message are kept
    limit: int
    records: int
    #: when it was to be tried again; None: at once, or never
    due: Between | None = None
    #: for how long at least the program had it
    held_us: int = 0
    #: of the settings, that had a say in what becomes of it
    rule: str | None = None


@dataclass
class QueueEntry:
    """One message in one queue."""

    message: int
    queue: str
    entered: Between
    #: when the message was sent as it is now
    sent: Between
    #: why it came: sent, moved
    came: str = "sent"
    failures: list[Failure] = field(default_factory=list)
    #: None while it is there
    outcome: str | None = None
    reason: str | None = None
    target: str | None = None
    ended: Between | None = None
    program: Program | None = None
    #: of the delivery that succeeded, when it joined the window
    assigned: Between | None = None
    #: it stays, and nobody gets it any more
    parked: bool = False
    #: it stays, and is due long after the end
    waits: bool = False
    #: until it is released by hand
    held: bool = False
    #: of its failures so many, the first ones, and whether it came, before the time that a report speaks of
    before: int = 0
    came_before: bool = False
    #: it failed after that time, and of the first attempt that did the broker keeps no record: it may have been before
    untold: bool = False
    #: it is so old that the broker keeps its counts by the hour
    coarse: bool = False

    @property
    def recent(self) -> list[Failure]:
        return self.failures[self.before :]


@dataclass
class Account:
    entries: list[QueueEntry] = field(default_factory=list)
    #: number in the body -> the broker's number, as the clients were told; of what was edited since the first one
    ids: dict[int, int] = field(default_factory=dict)
    #: queue -> its limits one after the other, and from when on
    limits: dict[str, list[tuple[int, Between]]] = field(default_factory=dict)
    #: for how long the broker keeps its history; 0: for longer than any workload takes
    history_us: int = 0
    #: message -> the queue that it was sent to
    homes: dict[int, str] = field(default_factory=dict)
    #: messages that are not durable
    passing: set[int] = field(default_factory=set)
    #: queue -> the delay after a failure, in milliseconds
    delays: dict[str, int] = field(default_factory=dict)
    #: of all brokers of a report: when anything happened first, and when the last export was taken, as it says itself
    began: Between = field(default_factory=lambda: Between(0, 0))
    exported_us: int = 0
    #: of a part of the time: the whole of it, None: it is that; and whether anything of it is not in the part
    whole: Account | None = None
    is_cut: bool = False

    #: message -> its entries; queue -> message -> the entry that is not over, and of these the ones that somebody will be given
    _of: dict[int, list[QueueEntry]] = field(default_factory=lambda: defaultdict(list))
    _here: dict[str, dict[int, QueueEntry]] = field(default_factory=lambda: defaultdict(dict))
    _ready: dict[str, dict[int, QueueEntry]] = field(default_factory=lambda: defaultdict(dict))

    def enter(self, message: int, queue: str, at: Between, came: str = "sent", *, edited: bool = False) -> QueueEntry:
        before = self._of[message]
        entry = QueueEntry(message, queue, at, at if edited or not before else before[-1].sent, came)
        self.homes.setdefault(message, queue)
        self.put(entry)
        self._here[queue][message] = self._ready[queue][message] = entry
        return entry

    def put(self, entry: QueueEntry) -> None:
        self.entries.append(entry)
        self._of[entry.message].append(entry)

    def here(self, queue: str) -> list[QueueEntry]:
        return list(self._here[queue].values())

    def ready(self, queue: str) -> Mapping[int, QueueEntry]:
        """In the order in which they came."""
        return self._ready[queue]

    def of(self, message: int) -> list[QueueEntry]:
        return self._of[message]

    def at(self, message: int, queue: str) -> QueueEntry:
        """Where a client has just got it. Raises where it cannot be."""
        return self._ready[queue][message]

    def stays_for_long(self, entry: QueueEntry, *, parked: bool) -> None:
        entry.parked, entry.waits = parked, not parked
        del self._ready[entry.queue][entry.message]

    def comes_back(self, entry: QueueEntry) -> None:
        """It waited for long, and does not any more."""
        entry.waits = entry.held = False
        self._ready[entry.queue][entry.message] = entry

    def end(
        self, entry: QueueEntry, outcome: str, at: Between, reason: str | None = None, target: str | None = None, by: Program | None = None
    ) -> None:
        entry.outcome, entry.ended, entry.reason, entry.target, entry.program = outcome, at, reason, target, by
        del self._here[entry.queue][entry.message]
        self._ready[entry.queue].pop(entry.message, None)
        if target is not None:
            self.enter(entry.message, target, at, "moved", edited=outcome == "edited")


def within(account: Account, since_us: int, until_us: int, fine_us: int) -> Account:
    """What the clients would tell of that time alone: what ended before it is over, what ends after it is still there. ``fine_us``: from
    then on the broker keeps counts by the minute.
    """
    limits = {queue: [load for load in loads if load[1].low < until_us] for queue, loads in account.limits.items()}
    found = Account(ids=account.ids, homes=account.homes, limits=limits, delays=account.delays, passing=account.passing, whole=account)
    found.is_cut = since_us > 0 or any(at.high >= until_us for entry in account.entries for at in times_of(entry))
    for entry in account.entries:
        if entry.entered.low >= until_us or (entry.ended is not None and entry.ended.low < since_us):
            continue
        failures = [each for each in entry.failures if each.at.low < until_us]
        before = sum(each.at.low < since_us for each in failures)
        cut = replace(entry, failures=failures, before=before, came_before=entry.entered.low < since_us)
        cut.coarse = any(at.low < fine_us for at in times_of(cut))
        if entry.ended is not None and entry.ended.low >= until_us:
            cut = replace(cut, outcome=None, reason=None, target=None, ended=None, program=None, assigned=None)
        if len(failures) < len(entry.failures):
            most, number = entry.failures[0].records, len(failures)
            untold = most // 10 <= number < len(entry.failures) - (most - most // 10)
            cut = replace(cut, parked=False, waits=False, untold=untold)
        found.put(cut)
    return found


def reported(accounts: list[Account], exported_us: int) -> Account:
    """Says to each of which time the report is; returns all of them as one, for what is told of all brokers together."""
    times = [at for account in accounts for entry in account.entries for at in times_of(entry)]
    coarse = any(entry.coarse for account in accounts for entry in account.entries)
    began = Between(0 if coarse else min(each.low for each in times), min(each.high for each in times))
    for account in accounts:
        account.began, account.exported_us = began, exported_us
    whole = Account(began=accounts[0].began, exported_us=accounts[0].exported_us)
    for number, account in enumerate(accounts):
        for entry in account.entries:
            copied = replace(entry, message=number * 1_000_000 + entry.message)
            whole.homes[copied.message] = account.homes[entry.message]
            whole.put(copied)
    return whole


def times_of(entry: QueueEntry) -> list[Between]:
    """When anything happened to it."""
    came, ended = [] if entry.came_before else [entry.entered], [] if entry.ended is None else [entry.ended]
    return [*came, *(each.at for each in entry.recent), *ended]
