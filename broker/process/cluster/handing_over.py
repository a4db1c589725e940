"""Another node leads, since somebody wants it: by what stands in the database, which every node looks at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypedDict

from homing.journal.replication.cell import Cell, Seen
from homing.journal.replication.leadership import Hindrance
from homing.journal.replication.postgresql import PostgresLog

from ...errors import Refused

#: A leader keeps what is not durable as long as broker.stop-timeout has it; and what is started again reads its journal.
_CHANGED_S: Final = 120.0
_BACK_S: Final = 30.0
_LOOK_S: Final = 0.05
HINDRANCES: Final[dict[str, str]] = {
    Hindrance.CLOCK: "does not lead, as its clock is more than 5 minutes off the database's",
    Hindrance.DISK: "leads only where no other can, as there is little room on its disk",
    Hindrance.COPY: "is given a copy of the journal",
}


class Change(TypedDict):
    """``before``: who led; None: nobody. ``gap_ms``: for how long nobody was served; None: nothing was changed, or nobody knows.
    ``stands_by``: whether whoever led is there again."""

    leader: str | None
    before: str | None
    epoch: int
    gap_ms: int | None
    stands_by: bool


async def switch_over(log: PostgresLog, to: str = "", origin: str = "") -> Change:
    """``to``: "" for the node that has most. ``origin``: only where that one leads; "" for whoever leads. Raises Refused, LogAway."""
    cell = await log.describe()
    leads, epoch = cell.standing.node or None, cell.standing.epoch
    if (origin and leads != origin) or (leads and leads == to):
        return {"leader": leads, "before": leads, "epoch": epoch, "gap_ms": None, "stands_by": True}
    if leads is None:
        raise Refused("no-leader", "nobody leads", "start a node; `homing cluster take-over --force` names one that runs")
    if not await log.name_successor(epoch, to):
        raise _not_able(cell, to)
    return await _changed(log, cell, to, _BACK_S)


class TakeOver(NamedTuple):
    """``node``: that is to lead."""

    cell: Cell
    node: str

    def said(self) -> str:
        """What it does, as sentences without the last full stop."""
        led, epoch = self.cell.standing.node, self.cell.standing.epoch
        if not led:
            return f"Nobody leads. Node {self.node} takes the lead"
        lost = "Whoever waits for its answer gets none, and what is not durable is lost"
        return (
            f"Node {led} leads, in epoch {epoch}. It confirms nothing more from here on, and ends. {lost}. Node {self.node} takes the lead"
        )


async def look(log: PostgresLog, to: str = "") -> TakeOver:
    """``to``: "" for the node that has most. Raises Refused, LogAway."""
    cell = await log.describe()
    able = [each for each in cell.members if cell.state(each) == "standby" and each.hindrance != Hindrance.CLOCK and to in ("", each.node)]
    if not able:
        raise _not_able(cell, to)
    best = max(able, key=lambda each: (not each.hindrance, each.applied))
    return TakeOver(cell, best.node)


async def take_over(log: PostgresLog, begun: TakeOver) -> Change:
    """Raises Refused, LogAway."""
    if not await log.depose(begun.cell.standing.epoch, begun.node):
        raise Refused("lead-changed", "somebody else took the lead meanwhile", "`homing cluster status` shows who leads")
    return await _changed(log, begun.cell, begun.node, 0.0)


async def remove(log: PostgresLog, node: str) -> list[str]:
    """The nodes that are left. Raises Refused, LogAway."""
    if not await log.remove(node):
        cell = await log.describe()
        runs = f"node {node} runs: it is {cell.state(member_of(cell, node))}"
        raise Refused("node-runs", runs, "stop it, and wait 5 s; a node that comes back is a member again")
    return [each.node for each in (await log.describe()).members]


def member_of(cell: Cell, node: str) -> Seen:
    """Raises Refused."""
    member = cell.member(node)
    if member is None:
        raise Refused("no-such-node", f"the cell has no node {node}", "`homing cluster status` lists them")
    return member


def _not_able(cell: Cell, node: str) -> Refused:
    """Raises it, where there is no such node."""
    if not node:
        return Refused(
            "no-standby", "no other node is there that can lead", "start one, and let it read what it lacks: `homing cluster status`"
        )
    state = cell.state(member := member_of(cell, node))
    if state in ("stopped", "away"):
        return Refused("no-standby", f"node {node} does not run", "start it: homing serve")
    if state == "leading":
        return Refused("leads-already", f"node {node} leads", "`homing cluster status` shows who leads")
    if member.hindrance:
        return Refused("no-standby", f"node {node} {HINDRANCES[member.hindrance]}", "see to that; its log says more")
    lacks = f"node {node} has lacked something for {member.behind_ms // 1000} s: {cell.behind(member)} entries by now"
    return Refused("no-standby", lacks, "try again when it has them: `homing cluster status`")


async def _changed(log: PostgresLog, before: Cell, to: str, back_s: float) -> Change:
    """Once another process serves. ``before``: as it was until then. ``back_s``: for how long whoever led is waited for."""
    led, process = before.standing.node, before.standing.process

    def another_serves(cell: Cell) -> bool:
        return cell.standing.epoch > before.standing.epoch and cell.led_s is not None

    def stands_by(cell: Cell) -> bool:
        return any(each.node == led and each.process not in ("", process) for each in cell.members)

    cell = await _look_until(log, another_serves, _CHANGED_S)
    leads, epoch = cell.standing.node or None, cell.standing.epoch
    if not another_serves(cell):
        raise Refused("no-leader", f"no other node has led within {_CHANGED_S:.0f} s", "`homing cluster status` shows who does")
    if to not in ("", leads):
        fix = "its log says why; `homing cluster status` shows who leads"
        raise Refused("not-taken", f"node {to} did not take the lead in time: {leads} leads", fix)
    back = stands_by(await _look_until(log, stands_by, back_s))
    return {"leader": leads, "before": led or None, "epoch": epoch, "gap_ms": cell.gap_ms, "stands_by": back}


async def _look_until(log: PostgresLog, done: Callable[[Cell], bool], for_s: float) -> Cell:
    end_s = time.monotonic() + for_s
    while not done(cell := await log.describe()) and time.monotonic() < end_s:  # noqa: ASYNC110 - other processes do it
        await asyncio.sleep(_LOOK_S)
    return cell
