"""The log of a cell begins anew behind what one of its nodes has, since it lost what that one has."""

from __future__ import annotations

from typing import NamedTuple

from homing.journal.replication.entry import Position
from homing.journal.replication.log import Standing
from homing.journal.replication.postgresql import PostgresLog

from ...errors import Refused
from .handing_over import member_of


class Seed(NamedTuple):
    """``at``: the last entry of the node. ``epoch``: that the log goes on in. ``further``: the other nodes that told of more entries, and
    how many."""

    seen: Standing
    node: str
    at: Position
    epoch: int
    further: dict[str, int]

    def said(self) -> str:
        """What it does, as sentences without the last full stop."""
        lacks = "".join(f" Node {node} is {more:,} further, and keeps that aside." for node, more in self.further.items())
        ends = f"The log ends with entry {self.seen.last:,} of epoch {self.seen.epoch}."
        begins = f"It begins anew behind entry {self.at.number:,} of epoch {self.at.epoch}, the last of node {self.node}"
        return f"{ends} {begins}; what is in it goes.{lacks} Whoever has less, or something else, is made anew from {self.node}"


async def look(log: PostgresLog, node: str) -> Seed:
    """Raises Refused, LogAway, and JournalError as PostgresLog.describe."""
    cell = await log.describe()
    seen = cell.standing
    member_of(cell, node)
    if any(cell.state(each) == "leading" for each in cell.members):
        raise Refused("log-not-lost", f"node {seen.node} leads", "stop all nodes that do not tell of a lost log first")
    lost = {each.node: Position.unpack(each.lost) for each in cell.members if each.lost is not None}
    if node not in lost:
        raise Refused(
            "log-not-lost",
            f"node {node} has not told that the log lacks what it has",
            "start it, so that it compares: it ends with exit code 73 where that is so",
        )
    at = lost[node]
    further = {name: other.number - at.number for name, other in lost.items() if other.number > at.number}
    return Seed(seen, node, at, 1 + max(seen.epoch, *(other.epoch for other in lost.values())), further)


async def reseed(log: PostgresLog, seed: Seed) -> None:
    """Raises Refused: it is not as it was any more; LogAway."""
    if not await log.reseed(seed.seen, seed.epoch, seed.at):
        raise Refused("log-moved", "somebody wrote to the log meanwhile", "`homing cluster status` shows who leads")
