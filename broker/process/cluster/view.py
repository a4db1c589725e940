"""What a node of a cluster knows of it, as it was a second ago: for the probes, the metrics, and what it does itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from homing.journal.replication.cell import Cell, Seen
from homing.journal.replication.leadership import Hindrance
from homing.journal.replication.log import Standing

from ...answers.administration import ClusterHealth
from ...core.counts import Histogram

_APPENDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: One that is silent for so long is not waited for with newer entries.
_HERE_S: Final = 60.0
#: A standby that lacks entries for so long is behind.
BEHIND_S: Final = 30.0
#: The part of its limit from which on the log is made shorter wherever it can be: below that producers go on.
_FULL: Final = 0.9


class View:
    """Of ``node``. ``log_limit``: in bytes. ``now_s``: a clock, in seconds."""

    def __init__(self, name: str, node: str, log_limit: int, now_s: Callable[[], float]) -> None:
        self.name = name
        self.node = node
        self.log_limit = log_limit
        #: As the database told it last; before that, empty.
        self.cell = Cell(Standing(0, 0, b"", ""))
        self.leads = self.log_away = False
        #: Why this node had better not lead.
        self.hindrance = Hindrance.NONE
        #: How many entries this node lacks.
        self.behind = 0
        self._now_s = now_s
        #: The last entry, as it was seen when this node had all that it had seen before, and when; and since when it lacks something.
        self._last, self._seen_s, self._whole_s = 0, now_s(), now_s()
        #: How long each took until it was sure, in seconds; of the leader.
        self.appends = Histogram(_APPENDS_S)
        self._behind = set[str]()

    def take(self, cell: Cell, applied: int) -> None:
        """``applied``: the last entry that this node has."""
        self.cell, last, now_s = cell, cell.standing.last, self._now_s()
        self.behind = 0 if self.leads else max(0, last - applied)
        if last - self.behind >= self._last:
            self._whole_s = self._seen_s
            self._last, self._seen_s = last, now_s
        if not self.behind:
            self._whole_s = now_s

    @property
    def behind_ms(self) -> int:
        """For how long it has lacked something that it saw."""
        return round(1000 * (self._now_s() - self._whole_s))

    def health(self) -> ClusterHealth:
        leader = self.node if self.leads else self.cell.standing.node or None
        behind_ms = self.behind_ms if self.behind else 0
        return {"leader": leader, "behind": self.behind, "behind_ms": behind_ms, "hindrance": self.hindrance or None}

    @property
    def here(self) -> list[Seen]:
        """All that have not stopped in order."""
        return [each for each in self.cell.members if each.process]

    def newly_behind(self) -> Iterable[Seen]:
        """Each standby once, until it is behind no more."""
        behind = {each.node: each for each in self.here if each.node != self.node and self.cell.behind_s(each) >= BEHIND_S}
        found = [each for node, each in behind.items() if node not in self._behind]
        self._behind = set(behind)
        return found

    def read_by(self) -> list[int]:
        """Up to which versions those nodes read entries that were here a minute ago."""
        return [each.reads for each in self.here if each.seen_s < _HERE_S]

    @property
    def log_is_full(self) -> bool:
        """About: little is written to it where producers wait."""
        return self.cell.log_bytes >= self.log_limit * _FULL

    def log_room(self) -> tuple[int, int]:
        """What the log takes, and may take, in bytes."""
        return self.cell.log_bytes, self.log_limit


def clock_off_ms(asked_ms: int, there_ms: int, answered_ms: int) -> int:
    """By how much this clock is ahead of (or behind: less than 0) one that showed ``there_ms`` at some moment between the two."""
    return max(0, asked_ms - there_ms) + min(0, answered_ms - there_ms)
