"""The clients' logs, arranged by what they are about: sends by key, stays by (message, queue), transactions by id."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, nextafter
from typing import TypeVar

from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN, VOID, Event, Snapshot

QueueEntry = tuple[int, str]
#: What is done with a message that came over a connection.
_OF_A_CONNECTION = ("deliver", "ack", "fail")
_JUST_MS = 0.001
_STRENGTH = {UNKNOWN: 0, FAIL: 1, OK: 2}


@dataclass(slots=True)
class Send:
    """One message as its sender knows it. Sent again under the same key after an unknown outcome, the better outcome counts."""

    key: str
    queue: str
    t: float
    w: float
    delay_ms: int
    ttl_ms: int
    tx: str | None
    #: The message that it takes the place of.
    of: int | None = None
    #: Its sender wants it kept, or sends it where everything is.
    durable: bool = True
    outcome: str = UNKNOWN
    ok_t: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class Delivery:
    t: float
    w: float
    count: int
    mode: str
    #: Since the one before, the broker began to stop: that counts as a delivery what it knows to have been read, without a failure.
    after_stop: bool = False
    #: Since the one before, connections to a broker that lived on were lost, with what clients reported of this as read: so it counts it as
    #: unread (docs/semantics.md, section 5).
    after_cut: bool = False


@dataclass(slots=True)
class Acknowledgement:
    t: float
    client: str
    tx: str | None
    #: Replaced by another message.
    edit: bool = False
    outcome: str = UNKNOWN
    ok_t: float = 0.0


@dataclass(slots=True)
class Failure:
    t: float
    w: float
    client: str
    count: int
    delay_ms: int
    how: str
    outcome: str = UNKNOWN
    ok_t: float = 0.0


@dataclass(slots=True)
class Life:
    """What clients saw of one message in one queue, each list in the order of time."""

    id: int
    queue: str
    key: str = ""
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Acknowledgement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def confirmed_ack(self) -> Acknowledgement | None:
        return next((ack for ack in self.acks if ack.outcome == OK), None)

    @property
    def perhaps_acked(self) -> bool:
        return any(ack.outcome != FAIL for ack in self.acks)

    @property
    def edited(self) -> bool:
        """It has ended by another taking its place."""
        return any(ack.edit and ack.outcome == OK for ack in self.acks)

    @property
    def blows(self) -> list[Failure]:
        """Failures that may have reached the broker."""
        return [failure for failure in self.failures if failure.outcome != VOID]


@dataclass(slots=True)
class Commit:
    outcome: str = UNKNOWN
    t: float = 0.0
    keys: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Retry:
    """Another time for messages of a queue: ``ids``, or all that wait. OK: each of these has it since ``end_t``."""

    t: float
    w: float
    queue: str
    ids: list[int] | None
    way: str
    delay_ms: int
    outcome: str = UNKNOWN
    end_t: float = float("inf")

    def touches(self, life: Life) -> bool:
        return self.queue == life.queue and (self.ids is None or life.id in self.ids)


_Settlement = TypeVar("_Settlement", Acknowledgement, Failure)


def _latest_of(settlements: list[_Settlement], client: str) -> _Settlement:
    """What an outcome speaks of: its own client's latest, since meanwhile another may have got the message."""
    return next(each for each in reversed(settlements) if each.client == client)


def _in_its_life(event: Event, ends: Sequence[float]) -> Event:
    """What came over a connection is of the broker that it was made to, however late the client read it: bytes outlive who wrote them, and
    a leader that was paused finds them written. ``ends``: when brokers were known to be gone, in order."""
    since = event.get("s")
    if since is None or event["e"] not in _OF_A_CONNECTION:
        return event
    place = bisect_right(ends, since)
    return event if place == len(ends) or event["t"] < ends[place] else {**event, "t": ends[place] - _JUST_MS}


class History:
    """``sends`` by key, ``lives`` by (message id, queue), ``ids`` by key (every number a key was seen under), ``commits`` by id.

    What became of an edit that nobody was notified of is what became of its copy, which whoever gets or edits it, or ``snapshots``, show.
    Where the copy may have expired unseen, nobody knows.
    """

    def __init__(self, events: Iterable[Event], snapshots: Sequence[Snapshot] = (), cuts: Sequence[tuple[float, float]] = ()) -> None:
        """``cuts``: from when until when connections were lost to a broker that lived on."""
        self.sends: dict[str, Send] = {}
        self.lives: dict[QueueEntry, Life] = {}
        self.ids: dict[str, set[int]] = {}
        self.commits: dict[str, Commit] = {}
        self.lives_of: dict[int, list[Life]] = {}
        self.retries: dict[str, Retry] = {}
        self._snapshots = snapshots
        ends = [snapshot.t for snapshot in snapshots]
        for event in sorted((_in_its_life(event, ends) for event in events), key=lambda event: float(event["t"])):
            take = getattr(self, f"_{event['e']}", None)
            if take is not None:
                take(event)
        self._settle_edits(self._first_seen())
        self._settle_transactions()
        for life in self.lives.values():
            for before, after in pairwise(life.deliveries):
                after.after_stop = any(before.t < snapshot.t < after.t for snapshot in snapshots if snapshot.orderly or snapshot.stopping)
                after.after_cut = any(before.t < until and since < after.t for since, until in cuts)
            if life.edited:
                self.ids.setdefault(life.key, set()).add(life.id)

    def of_durable(self) -> History:
        """Only what a kill must not take."""
        found = copy.copy(self)
        found.sends = {key: send for key, send in self.sends.items() if send.durable}
        found.lives = {entry: life for entry, life in self.lives.items() if life.key in found.sends}
        return found

    def _life(self, event: Event) -> Life:
        entry = (event["id"], event["queue"])
        life = self.lives.get(entry)
        if life is None:
            life = self.lives[entry] = Life(*entry)
            self.lives_of.setdefault(life.id, []).append(life)
        return life

    def _send(self, event: Event) -> None:
        key, tx = event["key"], event.get("tx")
        if key not in self.sends:
            waits = (event.get("delay_ms", 0), event.get("ttl_ms", 0))
            self.sends[key] = Send(key, event["queue"], event["t"], event["w"], *waits, tx, event.get("of"), event.get("durable", True))
        self.sends[key].tries += 1
        if tx is not None:
            self.commits.setdefault(tx, Commit()).keys.append(key)

    def _sent(self, event: Event) -> None:
        self._better(self.sends[event["key"]], event["outcome"], event["t"])

    @staticmethod
    def _better(what: Send | Acknowledgement, outcome: str, t: float) -> None:
        if _STRENGTH[outcome] > _STRENGTH[what.outcome]:
            what.outcome = outcome
            what.ok_t = t

    def _deliver(self, event: Event) -> None:
        life = self._life(event)
        life.key = event["key"]
        life.deliveries.append(Delivery(event["t"], event["w"], event["count"], event["mode"]))
        self.ids.setdefault(life.key, set()).add(life.id)

    def _ack(self, event: Event) -> None:
        life = self._life(event)
        life.key = life.key or event.get("key", "")
        life.acks.append(Acknowledgement(event["t"], event["c"], event.get("tx"), event.get("edit", False)))

    def _acked(self, event: Event) -> None:
        self._better(_latest_of(self._life(event).acks, event["c"]), event["outcome"], event["t"])

    def _fail(self, event: Event) -> None:
        failure = Failure(event["t"], event["w"], event["c"], event["count"], event["delay_ms"], event["how"])
        self._life(event).failures.append(failure)

    def _failed(self, event: Event) -> None:
        same = [failure for failure in self._life(event).failures if failure.count == event["count"]]
        if event["outcome"] != UNKNOWN:
            found = _latest_of(same, event["c"])
            found.outcome, found.ok_t = event["outcome"], event["t"]

    def _committed(self, event: Event) -> None:
        commit = self.commits.setdefault(event["tx"], Commit())
        commit.outcome, commit.t = event["outcome"], event["t"]

    def _retry(self, event: Event) -> None:
        wanted = (event["queue"], event["ids"], event["way"], event["delay_ms"])
        self.retries[event["retry"]] = Retry(event["t"], event["w"], *wanted)

    def _retried(self, event: Event) -> None:
        retry = self.retries[event["retry"]]
        retry.outcome, retry.end_t = event["outcome"], event["t"]
        if event.get("cut"):
            # Whoever was asked may live on, and do it yet.
            retry.end_t = next((snapshot.t for snapshot in self._snapshots if snapshot.t > event["t"]), float("inf"))

    def _first_seen(self) -> dict[str, float]:
        """When a message of each key was first known to be there. Whoever edits one has read it."""
        found: dict[str, float] = {}
        for life in self.lives.values():
            times = [each.t for each in life.deliveries] + [each.t for each in life.acks if each.edit]
            found[life.key] = min([found.get(life.key, inf), *times])
        for snapshot in self._snapshots:
            for entry in snapshot.entries:
                found[entry.key] = min(found.get(entry.key, inf), nextafter(snapshot.t, 0))  # it was there before
        return found

    def _settle_edits(self, seen: dict[str, float]) -> None:
        for key, send in self.sends.items():
            if send.of is not None and send.tx is not None and (commit := self.commits[send.tx]).outcome == UNKNOWN:
                commit.outcome = OK if key in seen else UNKNOWN if send.ttl_ms else FAIL
                # Whoever was asked may live on, and do it long after the client has heard that the connection is gone.
                commit.t = seen.get(key, commit.t)

    def _settle_transactions(self) -> None:
        """What was done within a transaction has the outcome of the transaction."""
        for send in self.sends.values():
            if send.tx is not None:
                commit = self.commits[send.tx]
                send.outcome, send.ok_t = commit.outcome, commit.t
        for life in self.lives.values():
            for ack in life.acks:
                if ack.tx is not None:
                    commit = self.commits.setdefault(ack.tx, Commit())
                    ack.outcome, ack.ok_t = commit.outcome, commit.t
