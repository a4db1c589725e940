"""Which of the batches that wait go to disk next.

A message that is acknowledged before it was written costs no row. Where consumers follow closely, a batch is therefore better kept back for
the few milliseconds in which its messages are acknowledged; a batch without messages goes at once, and one in which somebody waits for
anything but the confirm of a send takes everything with it. Nothing is confirmed any earlier for that, and order stays: what goes is
always a prefix. Whether waiting pays, and how long, is not guessed but counted (figures: docs/decisions/0003-groups-that-wait.md).

Acknowledgements that nobody waits for need no commit of their own either: a few wait a few milliseconds for the next batch that cannot
(docs/decisions/0023-acknowledgements-wait-for-company.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from .batch import WriteBatch

#: How long a batch waits for acknowledgements: the first where they come soon, up to the second where they were seen to take longer.
PATIENCE_S = 0.010
MOST_PATIENCE_S = 0.100
#: How long acknowledgements that nobody waits for do so for a batch that goes to disk anyway, and how many.
COMPANY_S = 0.005
MOST_IN_COMPANY = 256
#: Below so many messages a second no message waits: then the disk is not what limits anybody, and a confirm is worth more than a row.
_BUSY_PER_S = 5000.0
#: Waiting begins when this share of the messages was acknowledged before, or right after, they were written.
_HOPE = 0.5
#: More patience is shown when this share of what was written was acknowledged right after.
_TOO_SOON = 0.1
#: How much one commit says about the next.
_WEIGHT = 0.3
#: The loop's clock has milliseconds.
TICK_S = 0.001


class CommitScheduler:
    def __init__(self, elide: bool) -> None:
        self.waiting: deque[WriteBatch] = deque()
        self._elide = elide
        #: When somebody last waited for what was taken.
        self.awaited_s = -inf
        #: Messages of the last commit that were written; those acknowledged since then were written in vain.
        self._written: set[int] = set()
        self._elided = 0
        self._hope = 0.0
        self._patience_s = PATIENCE_S
        self._counted = 0
        self._counted_since_s = 0.0
        self._per_s = 0.0
        #: Whether batches wait for what they hold to be acknowledged.
        self.pays = False

    def close(self, batch: WriteBatch, now_s: float) -> None:
        """The open batch joins the row."""
        batch.closed_s = now_s
        self.waiting.append(batch)

    def take(self, now_s: float, open_batch: WriteBatch) -> WriteBatch | None:
        """What is due, as one batch; None when it is better to wait."""
        count = self._due(now_s)
        if not count:
            return None
        waiting = self.waiting
        taken = waiting.popleft()
        for _ in range(count - 1):
            taken.absorb(waiting.popleft())
        later = (*waiting, open_batch)
        if taken.messages:
            taken.drop_bodies_gone_in(later)
        self._learn(taken, now_s, later)
        if taken.awaited:
            self.awaited_s = now_s
        return taken

    def look_again_s(self) -> float:
        """When the oldest batch has waited long enough."""
        return self.waiting[0].closed_s + (self._patience_s if self.pays else COMPANY_S)

    def _due(self, now_s: float) -> int:
        """How many batches, from the oldest on."""
        if not self.pays:
            return 0 if self._waits_for_company(now_s) else len(self.waiting)
        closed_before_s = now_s - self._patience_s + TICK_S / 2
        count = 0
        for number, batch in enumerate(self.waiting, 1):
            if batch.urgent:
                return len(self.waiting)
            if count == number - 1 and (not batch.added or batch.closed_s <= closed_before_s):
                count = number
        return count

    def _waits_for_company(self, now_s: float) -> bool:
        """Few acknowledgements, that came just now and that nobody waits for. More would hold up whoever they go to disk with."""
        waiting, number = self.waiting, 0
        if not waiting or waiting[0].closed_s <= now_s - COMPANY_S + TICK_S / 2:
            return False
        for batch in waiting:
            if not batch.may_wait:
                return False
            number += len(batch.deleted)
        return number <= MOST_IN_COMPANY

    def _learn(self, taken: WriteBatch, now_s: float, later: Iterable[WriteBatch]) -> None:
        """What came of the commit before this one, and how much there is to do."""
        written = len(self._written)
        before = written + self._elided
        if before:
            in_vain = sum([len(self._written & batch.deleted) for batch in (taken, *later) if batch.deleted])
            if self.pays:
                too_soon = in_vain > _TOO_SOON * before
                self._patience_s = min(MOST_PATIENCE_S, 2 * self._patience_s) if too_soon else max(PATIENCE_S, 0.97 * self._patience_s)
            self._hope += _WEIGHT * ((self._elided + in_vain) / before - self._hope)
            self._count(before, now_s)
            self.pays = self._elide and self._hope > _HOPE and self._per_s > _BUSY_PER_S
        self._written = set(taken.added)
        self._elided = taken.elided

    def _count(self, messages: int, now_s: float) -> None:
        """Over some time: two messages may come close together where there are few."""
        self._counted += messages
        passed_s = now_s - self._counted_since_s
        if passed_s >= PATIENCE_S:
            self._per_s += _WEIGHT * (self._counted / passed_s - self._per_s)
            self._counted, self._counted_since_s = 0, now_s
