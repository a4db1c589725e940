"""Another node leads, since somebody wants it: by what stands in the database, which every node looks at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypedDict

from homing.journal.replication.postgresql import PostgresLog

from ..errors import Refused
from .cluster import describe

#: A leader keeps what is not durable as long as broker.stop-timeout has it; and what is started again reads its journal.
_CHANGED_S: Final = 120.0
_BACK_S: Final = 30.0
_LOOK_S: Final = 0.05
HINDRANCES: Final = {
    "clock": "does not lead, as its clock is more than 5 minutes off the database's",
    "disk": "leads only where no other can, as there is little room on its disk",
    "copy": "is given a copy of the journal",
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
    told = await log.describe()
    found = describe(told)
    leader = found["leader"]
    if (origin and leader != origin) or (leader and leader == to):
        return {"leader": leader, "before": leader, "epoch": found["epoch"], "gap_ms": None, "stands_by": True}
    if leader is None:
        raise Refused("no-leader", "nobody leads", "start a node; `homing cluster take-over --force` names one that runs")
    if not await log.name_successor(found["epoch"], to):
        raise _not_able(found, to)
    return await _changed(log, told, to, _BACK_S)


class TakeOver(NamedTuple):
    """``told``: what the log told. ``node``: that is to lead."""

    told: dict[str, Any]
    node: str

    def said(self) -> str:
        """What it does, as sentences without the last full stop."""
        led, epoch = self.told["leader"].partition(" ")[0], self.told["epoch"]
        if not led:
            return f"Nobody leads. Node {self.node} takes the lead"
        lost = "Whoever waits for its answer gets none, and what is not durable is lost"
        return (
            f"Node {led} leads, in epoch {epoch}. It confirms nothing more from here on, and ends. {lost}. Node {self.node} takes the lead"
        )


async def look(log: PostgresLog, to: str = "") -> TakeOver:
    """``to``: "" for the node that has most. Raises Refused, LogAway."""
    told = await log.describe()
    found = describe(told)
    able = [each for each in found["nodes"] if each["state"] == "standby" and each["hindrance"] != "clock" and to in ("", each["node"])]
    if not able:
        raise _not_able(found, to)
    best = max(able, key=lambda each: (each["hindrance"] is None, each["applied"]))
    return TakeOver(told, best["node"])


async def take_over(log: PostgresLog, begun: TakeOver) -> Change:
    """Raises Refused, LogAway."""
    if not await log.depose(begun.told["epoch"], begun.node):
        raise Refused("lead-changed", "somebody else took the lead meanwhile", "`homing cluster status` shows who leads")
    return await _changed(log, begun.told, begun.node, 0.0)


async def remove(log: PostgresLog, node: str) -> list[str]:
    """The nodes that are left. Raises Refused, LogAway."""
    if not await log.remove(node):
        found = describe(await log.describe())
        state = {each["node"]: each["state"] for each in found["nodes"]}.get(node)
        if state is None:
            raise Refused("no-such-node", f"the cell has no node {node}", "`homing cluster status` lists them")
        raise Refused("node-runs", f"node {node} runs: it is {state}", "stop it, and wait 5 s; a node that comes back is a member again")
    return [each["node"] for each in describe(await log.describe())["nodes"]]


def _not_able(found: dict[str, Any], node: str) -> Refused:
    there = {each["node"]: each for each in found["nodes"]}
    if not node:
        return Refused(
            "no-standby", "no other node is there that can lead", "start one, and let it read what it lacks: `homing cluster status`"
        )
    if node not in there:
        return Refused("no-such-node", f"the cell has no node {node}", "`homing cluster status` lists them")
    member = there[node]
    if member["state"] in ("stopped", "away"):
        return Refused("no-standby", f"node {node} does not run", "start it: homing serve")
    if member["state"] == "leading":
        return Refused("leads-already", f"node {node} leads", "`homing cluster status` shows who leads")
    if member["hindrance"] is not None:
        return Refused("no-standby", f"node {node} {HINDRANCES[member['hindrance']]}", "see to that; its log says more")
    lacks = f"node {node} has lacked something for {member['behind_ms'] // 1000} s: {member['behind']} entries by now"
    return Refused("no-standby", lacks, "try again when it has them: `homing cluster status`")


async def _changed(log: PostgresLog, before: dict[str, Any], to: str, back_s: float) -> Change:
    """Once another process serves. ``before``: what the log told until then. ``back_s``: for how long whoever led is waited for."""
    led, _, process = before["leader"].rpartition(" ")

    def another_serves(told: dict[str, Any]) -> bool:
        return told["epoch"] > before["epoch"] and told["led_s"] is not None

    def stands_by(told: dict[str, Any]) -> bool:
        return any(each["node"] == led and each["process"] not in ("", process) for each in told["members"])

    told = await _look_until(log, another_serves, _CHANGED_S)
    if not another_serves(told):
        raise Refused("no-leader", f"no other node has led within {_CHANGED_S:.0f} s", "`homing cluster status` shows who does")
    found = describe(told)
    if to not in ("", found["leader"]):
        fix = "its log says why; `homing cluster status` shows who leads"
        raise Refused("not-taken", f"node {to} did not take the lead in time: {found['leader']} leads", fix)
    back = stands_by(await _look_until(log, stands_by, back_s))
    gap_ms = found["last_change"]["gap_ms"] if found["last_change"] else None
    return {"leader": found["leader"], "before": led or None, "epoch": found["epoch"], "gap_ms": gap_ms, "stands_by": back}


async def _look_until(log: PostgresLog, done: Callable[[dict[str, Any]], bool], for_s: float) -> dict[str, Any]:
    end_s = time.monotonic() + for_s
    while not done(told := await log.describe()) and time.monotonic() < end_s:  # noqa: ASYNC110 - other processes do it
        await asyncio.sleep(_LOOK_S)
    return told
