"""A node of a cell, from its start to its end: each second it says to the log's database how far it is, and is told how all are."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from homing.journal.errors import JournalError
from homing.journal.replication.cell import Cell
from homing.journal.replication.leader import AGAIN_S
from homing.journal.replication.leadership import Hindrance, Watch
from homing.journal.replication.log import LogAway
from homing.journal.replication.postgresql import Access, Member, PostgresLog

from ... import __version__
from ...clock import BrokerClock
from ...config.config import Config
from ...config.models import ReplicationSection
from ...core.event import LOG_AWAY
from ...core.settings.units import format_duration_ms
from .passing import endpoints
from .view import View, clock_off_ms

log = logging.getLogger("homing")

#: How often a node says how far it is.
REPORT_S: Final = 1.0
#: A clock that differs by more makes waits and expiries other ones.
_CLOCK_OFF_MS: Final = 300_000
#: A name is free when so long nothing was heard of whoever had it.
_FREED_S: Final = 8.0
#: Whoever is no further behind than so many entries needs no more of the log than any other.
_NEAR: Final = 256


def log_of(section: ReplicationSection, directory: Path, member: Member, on_away: Callable[[str], None] = lambda why: None) -> PostgresLog:
    """``directory``: what the section's files are relative to."""
    files = (section.password_file, section.ca, section.certificate, section.key)
    beside = [None if file is None else directory / file for file in files]
    return PostgresLog(Access(section.url, section.cell, *beside), member, on_away)


class Far(NamedTuple):
    """The last entries that a node has applied, and has on disk; and why it had better not lead, as far as its copy and its disk go."""

    applied: int = 0
    on_disk: int = 0
    hindrance: Hindrance = Hindrance.NONE

    @classmethod
    def of(cls, applied: int, on_disk: int, space_low: bool) -> Far:
        return cls(applied, on_disk, Hindrance.DISK if space_low else Hindrance.NONE)


class Node:
    """Whether it follows or leads. ``view``: what it knows of the cell."""

    def __init__(self, config: Config, section: ReplicationSection) -> None:
        process = secrets.token_hex(8)
        self.name = section.node
        #: As the log names it where it leads.
        self.me = f"{section.node} {process}"
        self._storage_is_replicated = section.storage_is_replicated
        member = Member(section.node, process, json.dumps({**endpoints(config), **section.advertise}), __version__)
        self.log = log_of(section, config.directory, member, self._away)
        self._began_s = time.monotonic()
        self._clock_off_ms = 0
        self.view = View(section.cell, section.node, section.log_limit_bytes, time.monotonic)
        self.watch = Watch(section.node, section.fail_over_after_ms / 1000)
        #: It was given a copy, and has to go on with the log from there.
        self.given = False
        #: What makes an event: its name, the node, and what it is made of. There is nobody yet who keeps one.
        self.event: Callable[..., object] = lambda name, node, **fields: None
        #: By it the leader knows who passes connections on.
        self.secret = b""

    async def begin(self) -> str:
        """The cell's broker_id, as soon as the database answers. Raises JournalError as PostgresLog.begin."""
        while True:
            try:
                broker_id = await self.log.begin(self._storage_is_replicated)
                self.secret = await self.log.secret()
                await self._described()
                return broker_id
            except LogAway:
                await asyncio.sleep(AGAIN_S)

    async def report(self, far: Far) -> Cell:
        """What the database tells, once it knows of this. Raises LogAway, and JournalError as PostgresLog.report."""
        self.consider(far.hindrance)
        try:
            await self.log.report(far.applied, far.on_disk, self.view.behind_ms, self.view.hindrance)
        except JournalError:
            # Whoever had the name before this start was killed a moment ago, or is there still.
            if time.monotonic() > self._began_s + _FREED_S:
                raise
        cell = await self._described()
        self.view.take(cell, far.applied)
        if self.given and self.view.behind <= _NEAR:
            await self.log.copies.end()
            self.given = False
        return cell

    async def _described(self) -> Cell:
        asked_ms = BrokerClock().now_ms()
        cell = await self.log.describe()
        self._clock_off_ms = clock_off_ms(asked_ms, cell.clock_ms, BrokerClock().now_ms())
        return cell

    def consider(self, hindrance: Hindrance) -> None:
        """Whether this node had better not lead, for that reason or its clock's, and a line where that changes."""
        off = self._clock_off_ms
        if abs(off) > _CLOCK_OFF_MS and hindrance is not Hindrance.COPY:
            hindrance = Hindrance.CLOCK
        if hindrance is self.view.hindrance:
            return
        self.view.hindrance = self.watch.hindrance = hindrance
        if hindrance is Hindrance.CLOCK:
            way = "behind" if off < 0 else "ahead of"
            by = format_duration_ms(abs(off) // 1000 * 1000)
            log.error("clock-off: the clock is %s %s the database's: this node does not lead until it is set", by, way)
        elif hindrance is Hindrance.DISK:
            log.warning("disk-short: there is little room on the data directory's file system: this node leads only where no other can")
        elif hindrance is Hindrance.NONE:
            log.info("may-lead: nothing is wrong any more: this node may lead")

    def _away(self, why: str) -> None:
        self.view.log_away = bool(why)
        if why:
            self.event(LOG_AWAY, self.name, why=why)
            log.error("log-away: the replicated log does not answer, and nothing is confirmed until it does: %s", why)
        else:
            log.info("log-back: the replicated log answers")

    async def close(self) -> None:
        with suppress(LogAway):
            await self.log.leave()
        self.log.cut()
