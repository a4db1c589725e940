"""A node of a cluster (journal.replication): it follows, and hands connections on to whoever leads, until it leads itself."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from homing.journal.errors import JournalError
from homing.journal.follower import Follower
from homing.journal.journal import Journal
from homing.journal.options import JournalOptions
from homing.journal.rebuild import rebuild
from homing.journal.replication.leader import AGAIN_S, Leader
from homing.journal.replication.leadership import Hindrance, Watch, follow_until_leading
from homing.journal.replication.log import LogAway, Standing
from homing.journal.replication.postgresql import Access, Member, PostgresLog

from .. import __version__
from ..clock import BrokerClock
from ..config.config import Config
from ..config.models import ReplicationSection
from ..core.cluster import ClusterFigures
from ..core.event import FAILED_OVER, LOG_AWAY, STANDBY_BEHIND
from ..core.settings.units import format_duration_ms
from ..http.health import Health, State
from ..tls.certificate import Certificate
from .passing import Passing, places
from .rebuilding import Giving, fetch

log = logging.getLogger("homing")

#: How often a node says how far it is.
_REPORT_S: Final = 1.0
#: A clock that differs by more makes waits and expiries other ones.
_CLOCK_OFF_MS: Final = 300_000
#: A name is free when so long nothing was heard of whoever had it.
_FREED_S: Final = 8.0
#: What a node's copy is made anew for.
_ANEW: Final = ("journal-copy-damaged", "journal-damaged", "journal-left-behind", "journal-other-past")
_UNUSABLE_S: Final = 5.0
#: Whoever is no further behind than so many entries needs no more of the log than any other.
_NEAR: Final = 256
#: In the data directory: a copy that is made for another node.
_GIVEN: Final = "given"


def log_of(section: ReplicationSection, directory: Path, member: Member, on_away: Callable[[str], None] = lambda why: None) -> PostgresLog:
    """``directory``: what the section's files are relative to."""
    files = (section.password_file, section.ca, section.certificate, section.key)
    beside = [None if file is None else directory / file for file in files]
    return PostgresLog(Access(section.url, section.cell, *beside), member, on_away)


class Far(NamedTuple):
    """The last entries that a node has applied, and has on disk; and whether there is little room left for more."""

    applied: int
    on_disk: int
    space_low: bool


def _fixed(far: Far) -> Callable[[], Awaitable[Far]]:
    async def found() -> Far:
        return far

    return found


class Lag:
    """For how long a node has lacked something that it saw. Times in seconds, of one clock."""

    def __init__(self, now_s: float) -> None:
        self._last, self._seen_s, self._whole_s = 0, now_s, now_s

    def saw(self, last: int, applied: int, now_s: float) -> None:
        if applied >= self._last:
            self._whole_s = self._seen_s
            self._last, self._seen_s = last, now_s
        if applied >= last:
            self._whole_s = now_s

    def ms(self, now_s: float) -> int:
        return round(1000 * (now_s - self._whole_s))


class Cluster:
    """This node of it, from its start to its end."""

    def __init__(self, config: Config, section: ReplicationSection, health: Health, certificate: Certificate | None) -> None:
        self._config = config
        self._section = section
        self._health = health
        process = secrets.token_hex(8)
        #: As the log names it where it leads.
        self._me = f"{section.node} {process}"
        member = Member(section.node, process, json.dumps({**places(config), **section.advertise}), __version__)
        self._log = log_of(section, config.directory, member, self._away)
        self._passing = Passing(config, certificate)
        self._began_s = time.monotonic()
        self._lag = Lag(self._began_s)
        self._watch = Watch(section.node, section.fail_over_after_ms / 1000)
        self._clock_off_ms = 0
        self._lost = False
        self._other = asyncio.Event()
        self.figures = ClusterFigures(section.cell, section.node, section.log_limit_bytes)
        #: What makes an event: its name, the node, and what it is made of. There is nobody yet who keeps one.
        self.event: Callable[..., object] = lambda name, node, **fields: None
        self._attending: asyncio.Task[None] | None = None
        #: By it the leader knows who passes connections on.
        self.secret = b""
        self._far = _fixed(Far(0, 0, False))
        self._state: State = "standby"
        #: It was given a copy, and has to go on with the log from there.
        self._given = False
        #: Set once this node leads.
        self.leader: Leader | None = None

    async def follow(self, options: JournalOptions, stop: asyncio.Event, stands_by: Callable[[dict[str, str]], None]) -> None:
        """Until this node leads, or ``stop`` comes. ``stands_by`` is called with where it listens meanwhile.

        Raises Refused, and JournalError as PostgresLog.begin and report, Follower.open and follow_until_leading.
        """
        stopping = asyncio.create_task(stop.wait())
        following = asyncio.create_task(self._follow(options, stands_by))
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        following.cancel()
        with suppress(asyncio.CancelledError):
            self.leader = await following

    async def _follow(self, options: JournalOptions, stands_by: Callable[[dict[str, str]], None]) -> Leader:
        broker_id = await self._begin()
        leading = asyncio.create_task(self._until_leading(options, broker_id))
        attending = asyncio.create_task(self._attend(lambda: self._far()))
        passing = asyncio.create_task(self._passing.open(self._other, self.secret, stands_by))
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
        log.info("leading: node %s leads the cell %s", self._section.node, self._section.cell)
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
        follower = await Follower.open(self._config.data_directory, options, BrokerClock().now_ms, broker_id)
        lost = False

        async def far() -> Far:
            await follower.look()
            return Far(follower.at.number, follower.durable, follower.space_low)

        self._far = far
        self._consider(follower.space_low)
        try:
            return await follow_until_leading(self._log, follower, self._me, self._watch, time.monotonic)
        except JournalError as error:
            lost = error.code == "journal-log-lost"
            raise
        finally:
            self._far = _fixed(Far(follower.at.number, follower.durable, follower.space_low))
            await follower.close()
            if lost:
                # For `homing cluster reseed`.
                with suppress(LogAway):
                    await self._log.tell_lost(follower.at)

    async def _rebuild(self, broker_id: str) -> None:
        """Until it is done: another node has to lead for that."""
        self._far, self._state, self._given = _fixed(Far(0, 0, False)), "rebuilding", True
        while self._state == "rebuilding":
            try:
                await rebuild(self._config.data_directory, broker_id, lambda path: fetch(self._log.copies, path))
                self._state = "standby"
            except JournalError as error:
                if error.code != "journal-unusable":
                    raise
                log.error("not-rebuilt: %s", error)
                await asyncio.sleep(_UNUSABLE_S)
        log.info("rebuilt: this node has another one's copy, and follows from there")

    async def _begin(self) -> str:
        while True:
            try:
                broker_id = await self._log.begin(self._section.storage_is_replicated)
                self.secret = await self._log.secret()
                await self._compare_clocks()
                return broker_id
            except LogAway:
                await asyncio.sleep(AGAIN_S)

    def attend(self, journal: Journal) -> None:
        """While this node leads."""
        leader = self.leader
        assert leader is not None
        leader.on_append = self.figures.appends.add

        place = self._config.data_directory / _GIVEN
        giving = Giving(self._log.copies, journal.backups, place, lambda: journal.durable)

        async def far() -> Far:
            return Far(leader.at.number, journal.durable, journal.space_low)

        async def attend() -> None:
            try:
                await asyncio.gather(self._attend(far, leader), giving.run())
            except Exception as error:
                if not journal.failed.done():
                    journal.failed.set_exception(error)

        self._attending = asyncio.create_task(attend())

    async def serves(self) -> None:
        """From here on this node serves, and so says."""
        assert self.leader is not None
        with suppress(LogAway):
            await self._log.serves(self.leader.epoch)
            change = describe(await self._log.describe())["last_change"]
            if change is not None and change["why"] == "died":
                self.event(FAILED_OVER, self._section.node, before=change["before"], gap_s=round(change["gap_ms"] / 1000, 1))

    async def _attend(self, far: Callable[[], Awaitable[Far]], leader: Leader | None = None) -> None:
        while True:
            with suppress(LogAway):
                await self._compare_clocks()
                seen, here = await self._log.look(), await far()
                self._consider(here.space_low)
                # Before it says of itself that it stands by.
                await self._report(here)
                self.figures.take(await self._log.describe(), leader is not None)
                if leader is None:
                    await self._see(seen, here.applied)
                else:
                    self._tell(self._section.node, 0)
                    self._lag.saw(0, 0, time.monotonic())
                    await self._came_near(0)
                    await self._look_for_successor(leader, seen)
                    self._look_at_standbys()
                    leader.read_by(self.figures.read)
                    await self._log.trim(leader.epoch, self._section.copies, self.figures.log_is_full)
            await asyncio.sleep(_REPORT_S)

    def _look_at_standbys(self) -> None:
        for each in self.figures.newly_behind():
            log.warning("standby-behind: node %s is behind by %d entries, and has been for %.0f s", each.name, each.behind, each.behind_s)
            self.event(STANDBY_BEHIND, each.name, behind=each.behind, behind_s=round(each.behind_s))

    async def _compare_clocks(self) -> None:
        asked_ms = BrokerClock().now_ms()
        there_ms = await self._log.clock_ms()
        self._clock_off_ms = clock_off_ms(asked_ms, there_ms, BrokerClock().now_ms())

    def _consider(self, space_low: bool) -> None:
        """Whether this node had better not lead, and a line where that changes."""
        off = self._clock_off_ms
        hindrance = Hindrance.CLOCK if abs(off) > _CLOCK_OFF_MS else Hindrance.DISK if space_low else Hindrance.NONE
        if self._state == "rebuilding":
            hindrance = Hindrance.COPY
        if hindrance is self._watch.hindrance:
            return
        self._watch.hindrance = hindrance
        if hindrance is Hindrance.CLOCK:
            way = "behind" if off < 0 else "ahead of"
            log.error("clock-off: the clock is %s %s the database's: this node does not lead until it is set", _said(abs(off)), way)
        elif hindrance is Hindrance.DISK:
            log.warning("disk-short: there is little room on the data directory's file system: this node leads only where no other can")
        elif hindrance is Hindrance.NONE:
            log.info("may-lead: nothing is wrong any more: this node may lead")

    async def _look_for_successor(self, leader: Leader, seen: Standing) -> None:
        """One is named by whoever wants this node to lead no longer, as by itself."""
        successor = seen.successor if seen.epoch == leader.epoch else ""
        if self._watch.hindrance and not successor:
            successor = await self._log.name_successor(leader.epoch)
        if successor and not leader.hands_over.is_set():
            log.info("handing-over: node %s is to lead: nothing more is handed out, what was asked for is answered", successor)
            leader.hand_over()

    async def _report(self, far: Far) -> None:
        try:
            await self._log.report(far.applied, far.on_disk, self._lag.ms(time.monotonic()), self._watch.hindrance)
        except JournalError:
            # Whoever had the name before this start was killed a moment ago, or is there still.
            if time.monotonic() > self._began_s + _FREED_S:
                raise

    async def _see(self, seen: Standing, applied: int) -> None:
        node = seen.leader.rpartition(" ")[0]
        if seen.lost and not self._lost:
            log.error("log-lost: the log lacks what its leader had, and nobody leads until it begins anew: homing cluster reseed")
        self._lost = seen.lost
        self._lag.saw(seen.last, applied, time.monotonic())
        self._tell(node, seen.last - applied)
        has_a_copy = applied > 0 or not seen.last
        self._health.state = self._state if has_a_copy or self._state == "rebuilding" else "recovering"
        if self._state == "standby":
            await self._came_near(seen.last - applied)
        # Whoever had this node's name before this start is gone, and connections are not passed on to itself.
        others = node not in ("", self._section.node)
        self._passing.lead_by(json.loads(await self._log.address(node) or "{}") if others else {})
        if others:
            self._other.set()

    async def _came_near(self, behind: int) -> None:
        if self._given and behind <= _NEAR:
            await self._log.copies.end()
            self._given = False

    def _tell(self, leader: str, behind: int) -> None:
        behind_ms = self._lag.ms(time.monotonic()) if behind else 0
        hindrance = self._watch.hindrance or None
        self._health.cluster = {"leader": leader or None, "behind": behind, "behind_ms": behind_ms, "hindrance": hindrance}

    def _away(self, why: str) -> None:
        self._health.log_away = self.figures.log_away = bool(why)
        if why:
            self.event(LOG_AWAY, self._section.node, why=why)
            log.error("log-away: the replicated log does not answer, and nothing is confirmed until it does: %s", why)
        else:
            log.info("log-back: the replicated log answers")

    async def close(self) -> None:
        if self._attending is not None:
            self._attending.cancel()
        with suppress(LogAway):
            await self._log.leave()
        self._log.cut()


def describe(found: dict[str, Any]) -> dict[str, Any]:
    """What PostgresLog.describe told, for people: who leads, and how far each member is. ``since_ms``: for how long it has served; None: it
    does not yet. ``last_change``: who led before, why no longer, and for how long nobody was served."""
    leader, _, process = str(found["leader"]).rpartition(" ")
    members = [
        {
            "node": each["node"],
            "state": _state(each, process),
            "version": each["version"],
            "applied": each["applied"],
            "behind": max(0, found["last"] - each["applied"]),
            "behind_ms": each["behind_ms"],
            "hindrance": each["hindrance"] or None,
            "on_disk": each["durable"],
            "seen_ms": round(each["seen_s"] * 1000),
            "addresses": json.loads(each["addresses"]),
        }
        for each in found["members"]
    ]
    return {
        "broker_id": found["broker_id"],
        "leader": leader or None,
        "epoch": found["epoch"],
        "since_ms": _ms(found["led_s"]),
        "successor": found["successor"] or None,
        "last_change": {"before": found["before"], "why": found["why"], "gap_ms": _ms(found["gap_s"])} if found["why"] else None,
        "entries": found["last"],
        "log_bytes": found["log_bytes"],
        "fail_overs": found["fail_overs"],
        "nodes": members,
    }


def clock_off_ms(asked_ms: int, there_ms: int, answered_ms: int) -> int:
    """By how much this clock is ahead of (or behind: less than 0) one that showed ``there_ms`` at some moment between the two."""
    return max(0, asked_ms - there_ms) + min(0, answered_ms - there_ms)


def _said(duration_ms: int) -> str:
    return format_duration_ms(duration_ms // 1000 * 1000)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _state(member: dict[str, Any], leads: str) -> str:
    if member["lost"] is not None:
        return "log-lost"
    if not member["process"]:
        return "stopped"
    if member["seen_s"] > 5:
        return "away"
    if member["hindrance"] == Hindrance.COPY:
        return "rebuilding"
    return "leading" if member["process"] == leads else "standby"
