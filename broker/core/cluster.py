"""What a node of a cluster knows of it, as it was a second ago. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from .counts import Histogram

_APPENDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Of a member that is there something is heard each second.
_HEARD_S: Final = 5.0
#: One that is silent for so long is not waited for with newer entries.
_HERE_S: Final = 60.0
#: A standby that lacks entries for so long is behind.
BEHIND_S: Final = 30.0
#: The part of its limit from which on the log is made shorter wherever it can be: below that producers go on.
_FULL: Final = 0.9


class Node(NamedTuple):
    """One that has not stopped in order: how many entries it lacks, and for how long, also where it is gone; and how many it has that are
    not on disk for sure."""

    name: str
    behind: int
    behind_s: float
    unsynced: int


class ClusterFigures:
    """``log_bytes``: what the log's tables take; ``fail_overs``: leaders that were taken for gone, since the cell was made."""

    def __init__(self, cell: str, node: str, log_limit: int) -> None:
        self.cell = cell
        self.node = node
        self.log_limit = log_limit
        self.leads = self.log_away = False
        self.epoch = self.log_bytes = self.fail_overs = 0
        self.nodes: list[Node] = []
        #: Up to which versions those nodes read entries that were here a minute ago.
        self.read: list[int] = []
        #: How long each took until it was sure, in seconds; of the leader.
        self.appends = Histogram(_APPENDS_S)
        self._behind = set[str]()

    def take(self, found: dict[str, Any], leads: bool) -> None:
        """``found``: see journal.replication's PostgresLog.describe."""
        self.leads, self.epoch, self.log_bytes, self.fail_overs = leads, found["epoch"], found["log_bytes"], found["fail_overs"]
        leader = found["leader"].rpartition(" ")[2]
        self.read = [each["reads"] for each in found["members"] if each["process"] and each["seen_s"] < _HERE_S]
        self.nodes = [_node(each, found["last"], each["process"] == leader) for each in found["members"] if each["process"]]

    def newly_behind(self) -> Iterable[Node]:
        """Each standby once, until it is behind no more."""
        behind = {each.name: each for each in self.nodes if each.name != self.node and each.behind_s >= BEHIND_S}
        found = [each for name, each in behind.items() if name not in self._behind]
        self._behind = set(behind)
        return found

    @property
    def log_is_full(self) -> bool:
        """About: little is written to it where producers wait."""
        return self.log_bytes >= self.log_limit * _FULL

    def log_room(self) -> tuple[int, int]:
        """What the log takes, and may take, in bytes."""
        return self.log_bytes, self.log_limit


def _node(member: dict[str, Any], last: int, leads: bool) -> Node:
    """What each says of itself is a second old: a leader lacks nothing."""
    silent_s = member["seen_s"] if member["seen_s"] > _HEARD_S else 0.0
    behind, behind_s = (0, 0.0) if leads else (max(0, last - member["applied"]), max(member["behind_ms"] / 1000, silent_s))
    return Node(member["node"], behind, behind_s, max(0, member["applied"] - member["durable"]))
