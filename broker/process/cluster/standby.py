"""A node that follows: it has what others commit, and hands connections on to whoever leads, until it leads itself."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from homing.journal.errors import JournalError
from homing.journal.follower import Follower
from homing.journal.options import JournalOptions
from homing.journal.rebuild import rebuild
from homing.journal.replication.cell import Cell
from homing.journal.replication.leader import Leader
from homing.journal.replication.leadership import Hindrance, follow_until_leading
from homing.journal.replication.log import LogAway

from ...clock import BrokerClock
from ...http.health import Health
from .node import REPORT_S, Far, Node
from .passing import Passing
from .rebuilding import fetch

log = logging.getLogger("homing")

#: What a node's copy is made anew for.
_ANEW: Final = ("journal-copy-damaged", "journal-damaged", "journal-left-behind", "journal-other-past")
_UNUSABLE_S: Final = 5.0


class Standby:
    """``directory``: of its journal."""

    def __init__(self, node: Node, directory: Path, health: Health, passing: Passing) -> None:
        self._node = node
        self._directory = directory
        self._health = health
        self._passing = passing
        self._follower: Follower | None = None
        #: Where nobody follows: as far as it was.
        self._far = Far()

    async def follow(self, options: JournalOptions, stop: asyncio.Event, stands_by: Callable[[dict[str, str]], None]) -> Leader | None:
        """Until this node leads, or ``stop`` comes. ``stands_by`` is called with where it listens meanwhile.

        Raises Refused, and JournalError as Node.begin and report, Follower.open and follow_until_leading.
        """
        stopping = asyncio.create_task(stop.wait())
        following = asyncio.create_task(self._follow(options, stands_by))
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        following.cancel()
        with suppress(asyncio.CancelledError):
            return await following
        return None

    async def _follow(self, options: JournalOptions, stands_by: Callable[[dict[str, str]], None]) -> Leader:
        broker_id = await self._node.begin()
        leading = asyncio.create_task(self._until_leading(options, broker_id))
        attending = asyncio.create_task(self._attend())
        passing = asyncio.create_task(self._passing.open(self._node.secret, stands_by))
        tasks = {leading, attending, passing}
        try:
            while not leading.done():
                ended, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for each in ended:
                    each.result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._health.state = "recovering"
            self._passing.close()
        log.info("leading: node %s leads the cell %s", self._node.name, self._node.view.name)
        return leading.result()

    async def _until_leading(self, options: JournalOptions, broker_id: str) -> Leader:
        """Follows; and where this node's copy cannot go on, it is made anew."""
        while True:
            try:
                return await self._follow_log(options, broker_id)
            except JournalError as error:
                if error.code not in _ANEW:
                    raise
                log.error("rebuilding: %s", error)
            await self._rebuild(broker_id)

    async def _follow_log(self, options: JournalOptions, broker_id: str) -> Leader:
        node, lost = self._node, False
        self._follower = follower = await Follower.open(self._directory, options, BrokerClock().now_ms, broker_id)
        node.consider(_far(follower).hindrance)
        try:
            return await follow_until_leading(node.log, follower, node.me, node.watch, time.monotonic)
        except JournalError as error:
            lost = error.code == "journal-log-lost"
            raise
        finally:
            self._follower, self._far = None, _far(follower)
            await follower.close()
            if lost:
                # For `homing cluster reseed`.
                with suppress(LogAway):
                    await node.log.tell_lost(follower.at)

    async def _rebuild(self, broker_id: str) -> None:
        """Until it is done: another node has to lead for that."""
        node = self._node
        self._far, node.given = Far(hindrance=Hindrance.COPY), False
        while not node.given:
            try:
                await rebuild(self._directory, broker_id, lambda path: fetch(node.log.copies, path))
                self._far, node.given = Far(), True
            except JournalError as error:
                if error.code != "journal-unusable":
                    raise
                log.error("not-rebuilt: %s", error)
                await asyncio.sleep(_UNUSABLE_S)
        log.info("rebuilt: this node has another one's copy, and follows from there")

    async def _attend(self) -> None:
        while True:
            with suppress(LogAway):
                was_lost, far = self._node.view.cell.standing.lost, await self._look()
                cell = await self._node.report(far)
                if cell.standing.lost and not was_lost:
                    log.error("log-lost: the log lacks what its leader had, and nobody leads until it begins anew: homing cluster reseed")
                self._stand(cell, far)
            await asyncio.sleep(REPORT_S)

    async def _look(self) -> Far:
        follower = self._follower
        if follower is None:
            return self._far
        await follower.look()
        return _far(follower)

    def _stand(self, cell: Cell, far: Far) -> None:
        """Here the database knows how far this node is, and others may."""
        if far.hindrance is Hindrance.COPY:
            self._health.state = "rebuilding"
        else:
            self._health.state = "standby" if far.applied > 0 or not cell.standing.last else "recovering"
        leader = cell.member(cell.standing.node)
        # Whoever had this node's name before this start is gone, and connections are not passed on to itself.
        self._passing.lead_by(None if leader is None or leader.node == self._node.name else json.loads(leader.addresses))


def _far(follower: Follower) -> Far:
    return Far.of(follower.at.number, follower.durable, follower.space_low)
