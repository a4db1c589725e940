"""A replicated log in memory that answers late or not at all, and that loses what nobody was told of, as a database and its standby do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from homing.journal.replication.entry import Position, beginning
from homing.journal.replication.log import LogAway, Standing

NOWHERE = beginning("cell")


class LogInMemory:
    """One for all nodes. ``trouble``: how often, from 0 to 1, the caller does not hear what became of what it asked for."""

    def __init__(self, rng: Random, trouble: float = 0.0) -> None:
        self.rng, self.trouble = rng, trouble
        self.standing = Standing(0, 0, NOWHERE.hash, "")
        self.entries: list[bytes] = []
        self.late: set[asyncio.Task[bool]] = set()
        #: What each node said that it has on disk; the entries up to this number are gone.
        self.durable: dict[str, int] = {}
        self.trimmed = 0
        #: What is on the standby, too: all up to the last thing that was answered.
        self._sure = (self.standing, 0, self.durable, 0)
        self.failed_over = 0
        #: Each time somebody took the lead: what stood before, who it was, and how long nobody had had the lead, where nobody had.
        self.taken: list[tuple[Standing, str, int]] = []
        self.turn: Callable[[], int] = lambda: 0
        self.released_turn = 0

    async def _turns(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)

    async def _lose(self) -> None:
        if self.rng.random() < self.trouble:
            raise LogAway

    def fail_over(self) -> None:
        """To a standby that has only what was answered."""
        self.standing, there, self.durable, self.trimmed = self._sure
        del self.entries[there:]
        self.failed_over += 1

    async def _answer(self, done: bool) -> bool:
        """As nothing awaits between a change and this, what it answers is still there."""
        await self._lose()
        if done:
            self._sure = (self.standing, len(self.entries), self.durable, self.trimmed)
        return done

    async def look(self) -> Standing:
        await self._turns()
        seen = self.standing
        await self._turns()
        await self._lose()
        return seen

    async def append(self, before: Position, at: Position, entry: bytes) -> bool:
        if self.rng.random() < self.trouble / 2:
            # The caller gives up; it may be taken yet, whatever else comes first.
            task = asyncio.get_running_loop().create_task(self._append(before, at, entry))
            self.late.add(task)
            raise LogAway
        return await self._answer(await self._append(before, at, entry))

    async def _append(self, before: Position, at: Position, entry: bytes) -> bool:
        await self._turns()
        there = self.standing
        if there.epoch != at.epoch or not there.ends_at(before):
            return False
        self.standing = there._replace(last=at.number, hash=at.hash)
        self.entries.append(entry)
        return True

    async def read(self, after: int) -> list[bytes]:
        await self._turns()
        await self._lose()
        first = max(after, self.trimmed)
        return self.entries[first : first + 3]

    async def fence(self, seen: Standing, leader: str, silent_s: float = 0.0) -> bool:
        await self._turns()
        done = self.standing[:3] == seen[:3]
        if done:
            self.taken.append((self.standing, leader, self.turn() - self.released_turn))
            self.standing = Standing(seen.epoch + 1, seen.last, seen.hash, leader)
        return await self._answer(done)

    async def trim(self, epoch: int, copies: int, at_once: bool = False) -> None:
        await self._turns()
        if self.standing.epoch == epoch and len(self.durable) >= copies:
            self.trimmed = max(self.trimmed, sorted(self.durable.values())[-copies])
        await self._answer(True)

    async def report(self, node: str, durable: int) -> None:
        await self._turns()
        self.durable = {**self.durable, node: durable}
        await self._answer(True)

    async def release(self, epoch: int, ended_s: float = 0.0) -> None:
        await self._turns()
        if self.standing.epoch == epoch:
            self.standing, self.released_turn = self.standing._replace(leader=""), self.turn()
        await self._lose()

    async def lose(self) -> None:
        raise AssertionError(f"what was confirmed is not in the log, which ends with {self.standing}")

    def depose(self, node: str) -> None:
        if self.standing.leader:
            self.released_turn = self.turn()
        self.standing = self.standing._replace(epoch=self.standing.epoch + 1, leader="", successor=node)

    def name_successor(self, node: str) -> None:
        if self.standing.leader:
            self.standing = self.standing._replace(successor=node)
