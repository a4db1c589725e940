"""What a log of entries that several nodes share can do, and what goes wrong with it.

It keeps a row: the epoch, who leads in it, the number of the last entry and its hash. One statement compares and changes that row, so an
entry joins only in its own epoch and only behind the one that its writer knows: nobody writes after somebody else took the lead.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..errors import JournalError
from .entry import NewerEntry, Position


class LogAway(Exception):
    """The log did not answer. What was asked of it may have happened, or may happen yet."""


class Standing(NamedTuple):
    """The row. ``leader``: who took the lead in this epoch; "": nobody has it. ``successor``: the node that is to lead next; "": anyone.
    ``lost``: it lacks what a leader had, and nobody takes the lead until it begins anew."""

    epoch: int
    last: int
    hash: bytes
    leader: str
    successor: str = ""
    lost: bool = False

    @property
    def node(self) -> str:
        """That leads; "": none does."""
        return self.leader.partition(" ")[0]

    @property
    def process(self) -> str:
        return self.leader.partition(" ")[2]

    def ends_at(self, position: Position) -> bool:
        return (self.last, self.hash) == (position.number, position.hash)


class ReplicatedLog(Protocol):
    """Each function raises LogAway."""

    async def look(self) -> Standing: ...

    async def append(self, before: Position, at: Position, entry: bytes) -> bool:
        """Adds the entry behind ``before``, with which the log stands ``at``. False: it was not added, since the row says otherwise. True:
        it is wherever the log is."""

    async def read(self, after: int) -> list[bytes]:
        """Entries from the one behind number ``after`` on, some of them; none where that is the last."""

    async def fence(self, seen: Standing, leader: str, silent_s: float = 0.0) -> bool:
        """Begins the next epoch, in which ``leader`` leads and nobody is named to succeed it, unless epoch or last entry are others than
        were seen. ``silent_s``: for how long nothing was seen of the one before."""

    async def lose(self) -> None:
        """It lacks what its leader has (see Standing)."""

    async def trim(self, epoch: int, copies: int, at_once: bool = False) -> None:
        """Entries that so many nodes have on disk may go. ``at_once``: also few of them."""

    async def release(self, epoch: int, ended_s: float = 0.0) -> None:
        """Nobody leads any more, where that epoch is still the last. ``ended_s``: since when nobody was served."""


def fenced(seen: Standing) -> JournalError:
    return JournalError(
        "journal-fenced",
        f"Another node leads: {seen.node or 'somebody'}, in epoch {seen.epoch}.",
        "Nobody was answered for what is uncertain; started again, this node follows the other.",
    )


def left_behind(first: int, known: Position) -> JournalError:
    return JournalError(
        "journal-left-behind",
        f"This node has the replicated journal up to entry {known.number}, and the log begins with entry {first}: what is between is gone.",
        "Its copy is made anew from another node's.",
    )


def log_newer(newer: NewerEntry, known: Position) -> JournalError:
    return JournalError(
        "log-newer",
        f"The leader writes entries that this node cannot read: behind entry {known.number}, {newer}.",
        "Start a newer Homing on this node. Standbys are upgraded first: a leader writes what every node that is there reads.",
    )


def parted(seen: Standing, known: Position) -> JournalError:
    """The log is not behind, or not from, what this node has. Somebody who took the lead later may have gone on without what was never
    confirmed; else the log lost something."""
    if seen.last < known.number or seen.epoch <= known.epoch:
        return log_lost(seen, known)
    return JournalError(
        "journal-other-past",
        f"This node has entry {known.number} of epoch {known.epoch}, and the log, in epoch {seen.epoch} by now, went on without it.",
        "Its copy is made anew from another node's; what it had is kept aside.",
    )


def log_lost(seen: Standing, known: Position) -> JournalError:
    return JournalError(
        "journal-log-lost",
        f"The replicated log ends with entry {seen.last} of epoch {seen.epoch}, and this node knows entry {known.number} of epoch"
        f" {known.epoch}, which is not in it: what keeps the log was failed over, or restored, to an older state.",
        "Nobody was answered for what is uncertain; bring its database back, or go on from a node: `homing cluster reseed`.",
    )
