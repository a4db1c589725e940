"""The model is only worth something if it finds faults: nodes and logs with a planted one are played until it does.

Faults in PostgreSQL's own statements: tests/integration/test_replicated_log.py.
"""

from __future__ import annotations

import asyncio

import pytest

from homing.journal.commit.packed_batch import OLDEST
from homing.journal.errors import JournalError
from homing.journal.replication import leadership
from homing.journal.replication.entry import Position, after
from homing.journal.replication.leader import AGAIN_S, Leader
from homing.journal.replication.log import LogAway, Standing
from tests.model.log_in_memory import LogInMemory
from tests.model.test_leadership import Node, play_all


class Hasty(Leader):
    """Answers before the append returned."""

    async def append(self, batch: bytes, version: int = OLDEST) -> Position:
        before = self.at
        entry, self.at = after(before, self.epoch, batch)
        late = asyncio.ensure_future(self._send(before, self.at, entry))
        late.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
        return self.at

    async def _send(self, before: Position, at: Position, entry: bytes) -> None:
        while True:
            try:
                if await self._log.append(before, at, entry) or (await self._where([at]))[1]:
                    return
            except LogAway:
                await self._pause(AGAIN_S)


class Trusting(Leader):
    """Takes an entry that it finds in the log for one that stays there."""

    async def append(self, batch: bytes, version: int = OLDEST) -> Position:
        while True:
            entry, at = after(self.at, self.epoch, batch)
            try:
                done = await self._log.append(self.at, at, entry)
            except LogAway:
                done = False
            if done or (await self._where([at]))[1]:
                self.at = at
                return at


class FencesBlindly(LogInMemory):
    """Begins the epoch behind the one that was seen, whatever stands there by now."""

    async def fence(self, seen: Standing, leader: str, silent_s: float = 0.0) -> bool:
        await self._turns()
        self.standing = self.standing._replace(epoch=seen.epoch + 1, leader=leader, successor="")
        return True


class FencesWithoutTheEpoch(LogInMemory):
    """Another leads, and it is the same epoch as before."""

    async def fence(self, seen: Standing, leader: str, silent_s: float = 0.0) -> bool:
        done = await super().fence(seen, leader, silent_s)
        if done:
            self.standing = self.standing._replace(epoch=seen.epoch)
        return done


class AppendsInAnyEpoch(LogInMemory):
    """Compares the last entry alone."""

    async def _append(self, before: Position, at: Position, entry: bytes) -> bool:
        self.standing, epoch = self.standing._replace(epoch=at.epoch), self.standing.epoch
        try:
            return await super()._append(before, at, entry)
        finally:
            self.standing = self.standing._replace(epoch=epoch)


@pytest.mark.parametrize("leader", [Hasty, Trusting])
async def test_a_leader_that_answers_too_soon_is_found(leader: type[Leader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "Leader", leader)
    with pytest.raises((AssertionError, JournalError)) as found:
        await play_all(LogInMemory, True)
    print(found.value)


@pytest.mark.parametrize("log", [FencesBlindly, FencesWithoutTheEpoch, AppendsInAnyEpoch])
async def test_a_log_that_fences_wrongly_is_found(log: type[LogInMemory]) -> None:
    with pytest.raises((AssertionError, JournalError)) as found:
        await play_all(log, False)
    print(found.value)


async def test_a_log_that_is_trimmed_of_what_is_not_on_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "reported", lambda node: node.at.number)
    with pytest.raises(AssertionError, match="nobody has the entries up to"):
        await play_all(LogInMemory, False)
