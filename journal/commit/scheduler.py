"""Which of the groups that wait go to disk next.

A message that is acknowledged before it was written costs no row. Where consumers follow closely, a group is therefore better kept back for
the few milliseconds in which its messages are acknowledged; a group without messages goes at once, and one in which somebody waits for
anything but the confirm of a send takes everything with it. Nothing is confirmed any earlier for that, and order stays: what goes is
always a prefix. Whether waiting pays, and how long, is not guessed but counted (figures: docs/decisions/0003-groups-that-wait.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .batch import Group

#: How long a group waits for acknowledgements: the first where they come soon, up to the second where they were seen to take longer.
PATIENCE_S = 0.010
MOST_PATIENCE_S = 0.100
#: Below so many messages a second nothing waits: then the disk is not what limits anybody, and a confirm is worth more than a row.
_BUSY_PER_S = 5000.0
#: Waiting begins when this share of the messages was acknowledged before, or right after, they were written.
_HOPE = 0.5
#: More patience is shown when this share of what was written was acknowledged right after.
_TOO_SOON = 0.1
#: How much one commit says about the next.
_WEIGHT = 0.3
#: The loop's clock has milliseconds.
_TICK_S = 0.001


class Gathering:
    def __init__(self, elide: bool) -> None:
        self.waiting: deque[Group] = deque()
        self._elide = elide
        #: Messages of the last commit that were written; those acknowledged since then were written in vain.
        self._written: set[int] = set()
        self._elided = 0
        self._hope = 0.0
        self._patience_s = PATIENCE_S
        self._counted = 0
        self._counted_since_s = 0.0
        self._per_s = 0.0

    def close(self, group: Group, now_s: float) -> None:
        """The open group joins the row."""
        group.closed_s = now_s
        self.waiting.append(group)

    def take(self, now_s: float, open_group: Group) -> Group | None:
        """What is due, as one group; None when it is better to wait."""
        count = self._due(now_s)
        if not count:
            return None
        waiting = self.waiting
        taken = waiting.popleft()
        for _ in range(count - 1):
            taken.absorb(waiting.popleft())
        if taken.messages:
            taken.drop_bodies_gone_in((*waiting, open_group))
        self._learn(taken, now_s, (*waiting, open_group))
        return taken

    def look_again_s(self) -> float:
        """When the oldest group has waited long enough."""
        return self.waiting[0].closed_s + self._patience_s

    @property
    def _pays(self) -> bool:
        return self._elide and self._hope > _HOPE and self._per_s > _BUSY_PER_S

    def _due(self, now_s: float) -> int:
        """How many groups, from the oldest on."""
        if not self._pays:
            return len(self.waiting)
        closed_before_s = now_s - self._patience_s + _TICK_S / 2
        count = 0
        for number, group in enumerate(self.waiting, 1):
            if group.urgent:
                return len(self.waiting)
            if count == number - 1 and (not group.added or group.closed_s <= closed_before_s):
                count = number
        return count

    def _learn(self, taken: Group, now_s: float, later: Iterable[Group]) -> None:
        """What came of the commit before this one, and how much there is to do."""
        written = len(self._written)
        before = written + self._elided
        if before:
            in_vain = sum(len(self._written & group.deleted) for group in (taken, *later))
            if self._pays:
                too_soon = in_vain > _TOO_SOON * before
                self._patience_s = min(MOST_PATIENCE_S, 2 * self._patience_s) if too_soon else max(PATIENCE_S, 0.97 * self._patience_s)
            self._hope += _WEIGHT * ((self._elided + in_vain) / before - self._hope)
            self._count(before, now_s)
        self._written = set(taken.added)
        self._elided = taken.elided

    def _count(self, messages: int, now_s: float) -> None:
        """Over some time: two messages may come close together where there are few."""
        self._counted += messages
        passed_s = now_s - self._counted_since_s
        if passed_s >= PATIENCE_S:
            self._per_s += _WEIGHT * (self._counted / passed_s - self._per_s)
            self._counted, self._counted_since_s = 0, now_s
