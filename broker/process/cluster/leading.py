"""A node that leads: it gives copies, makes the log shorter, and hands over to whoever is named."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from homing.journal.journal import Journal
from homing.journal.replication.leader import Leader
from homing.journal.replication.log import LogAway, Standing

from ...core.event import FAILED_OVER, STANDBY_BEHIND
from .node import REPORT_S, Far, Node
from .rebuilding import Giving

log = logging.getLogger("homing")

#: In the data directory: a copy that is made for another node.
_GIVEN: Final = "given"


class Leading:
    """``copies``: what so many nodes have on disk may leave the log."""

    def __init__(self, node: Node, leader: Leader, copies: int) -> None:
        self.node = node
        self.leader = leader
        self._copies = copies
        leader.on_append = node.view.appends.add
        node.view.leads = True
        self._attending: asyncio.Task[None] | None = None
        self._serves = False

    def attend(self, journal: Journal, directory: Path) -> None:
        """``directory``: of the journal."""
        giving = Giving(self.node.log.copies, journal.backups, directory / _GIVEN, lambda: journal.durable)

        async def attend() -> None:
            try:
                await asyncio.gather(self._attend(journal), giving.run())
            except Exception as error:
                if not journal.failed.done():
                    journal.failed.set_exception(error)

        self._attending = asyncio.create_task(attend())

    async def serves(self) -> None:
        """From here on this node serves, and so says, as soon as the log answers."""
        self._serves = True
        with suppress(LogAway):
            await self._say_so()

    async def _say_so(self) -> None:
        node = self.node
        await node.log.serves(self.leader.epoch)
        cell = await node.log.describe()
        if cell.why == "died":
            node.event(FAILED_OVER, node.name, before=cell.before, gap_s=round(cell.gap_s or 0.0, 1))

    async def _attend(self, journal: Journal) -> None:
        node, leader = self.node, self.leader
        while True:
            with suppress(LogAway):
                cell = await node.report(Far.of(leader.at.number, journal.durable, journal.space_low))
                if self._serves and cell.led_s is None:
                    await self._say_so()
                await self._look_for_successor(cell.standing)
                self._look_at_standbys()
                leader.read_by(node.view.read_by())
                await node.log.trim(leader.epoch, self._copies, node.view.log_is_full)
            await asyncio.sleep(REPORT_S)

    async def _look_for_successor(self, seen: Standing) -> None:
        """One is named by whoever wants this node to lead no longer, as by itself."""
        leader = self.leader
        successor = seen.successor if seen.epoch == leader.epoch else ""
        if self.node.view.hindrance and not successor:
            successor = await self.node.log.name_successor(leader.epoch)
        if successor and not leader.hands_over.is_set():
            log.info("handing-over: node %s is to lead: nothing more is handed out, what was asked for is answered", successor)
            leader.hand_over()

    def _look_at_standbys(self) -> None:
        view = self.node.view
        for each in view.newly_behind():
            behind, behind_s = view.cell.behind(each), view.cell.behind_s(each)
            log.warning("standby-behind: node %s is behind by %d entries, and has been for %.0f s", each.node, behind, behind_s)
            self.node.event(STANDBY_BEHIND, each.node, behind=behind, behind_s=round(behind_s))

    def close(self) -> None:
        if self._attending is not None:
            self._attending.cancel()
