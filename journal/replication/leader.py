"""The one that appends. What it returns is in the log for good; what it cannot know it finds out before it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from ..commit.packed_batch import OLDEST, VERSION
from ..errors import JournalError
from .entry import Position, after
from .log import LogAway, ReplicatedLog, Standing, fenced, log_lost

#: Others see by its entries that a leader lives: one a second at least.
BEAT_S: Final = 1.0
#: Between two questions of whoever was not answered.
AGAIN_S: Final = 0.2

Pause = Callable[[float], Awaitable[object]]


class Leader:
    """Of one epoch. ``at``: the last entry of the log when it began; from then on the last that is there for good. Used on one loop."""

    def __init__(self, log: ReplicatedLog, epoch: int, at: Position, pause: Pause = asyncio.sleep) -> None:
        self.epoch = epoch
        self.at = at
        #: What batches are to be packed as: only rises, as what was written is read in order.
        self.version = OLDEST
        #: Called with why it leads no longer, where that came out while nothing was appended.
        self.on_end: Callable[[JournalError], None] = lambda error: None
        #: Called with how long an entry took until it was sure, in seconds.
        self.on_append: Callable[[float], None] = lambda seconds: None
        self._log = log
        self._pause = pause
        #: Set where this node is to lead no longer, and another one is named.
        self.hands_over = asyncio.Event()
        self._one = asyncio.Lock()
        self._moved_s = time.monotonic()
        self._ended_s: float | None = None
        #: Whether ``at`` is an entry of its own; whether the log lacks that one.
        self._proved, self._lost = False, False
        self._beating: asyncio.Task[None] | None = None

    def read_by(self, versions: Iterable[int]) -> None:
        """``versions``: up to which each node that is there reads entries. Who reads less than is written will not go on."""
        self.version = max(self.version, min([VERSION, *versions]))

    async def append(self, batch: bytes, version: int = OLDEST) -> Position:
        """Where the log stands with an entry that holds this batch, packed as of ``version``, once that is sure. Behind it there may be
        entries without any.

        Raises JournalError ``journal-fenced`` and ``journal-log-lost``: whether the entry is there, nobody knows then.
        """
        async with self._one:
            began_s, before = time.monotonic(), self.at
            sent_s = began_s
            #: What was asked of the log, in order, and how much of it is there.
            asked, there = [after(before, self.epoch, batch, version)], 0
            while there < len(asked):
                entry, at = asked[there]
                sent_s = time.monotonic()
                try:
                    if await self._log.append(before, at, entry):
                        before, there = at, there + 1
                        continue
                except LogAway:
                    await self._pause(AGAIN_S)
                before, there = await self._where([at for _, at in asked])
                if there == len(asked):
                    # It may be on one machine only. One behind it that was taken proves it.
                    asked.append(after(before, self.epoch, b""))
            # Whoever was paused meanwhile finds an old answer.
            self.at, self._proved, self._moved_s = before, True, sent_s
            self.on_append(time.monotonic() - began_s)
            return before

    async def _where(self, asked: list[Position]) -> tuple[Position, int]:
        """Where the log stands, and with how many of those entries. What was not proved it may have lost: those are the next again, and the
        same, as one that was asked for before may be added yet.

        Raises LogAway where it lost that this node leads, which was not proved either: nothing was written here by then.
        """
        seen = await ask(self._log.look, self._pause)
        if seen.epoch > self.epoch:
            raise fenced(seen)
        if seen.epoch == self.epoch:
            for there, at in enumerate([self.at, *asked]):
                if seen.ends_at(at):
                    return at, there
        elif not self._proved:
            raise LogAway("it went back before this node led")
        known = self.at
        self._lost = self._proved and (seen.last < known.number or (seen.last == known.number and not seen.ends_at(known)))
        raise log_lost(seen, known)

    def in_doubt(self, for_s: float) -> bool:
        """Whether others may have seen nothing of this leader for so long: who hands out then may do so beside another. It only keeps that
        seldom; what is confirmed never depends on it."""
        return time.monotonic() > self._moved_s + for_s

    def beat(self) -> None:
        """From here on something is appended each second."""
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="leader")

    async def _beat(self) -> None:
        while True:
            before = self.at
            await self._pause(BEAT_S)
            try:
                if self.at == before:
                    await self.append(b"")
            except JournalError as error:
                self.on_end(error)
                return

    def hand_over(self) -> None:
        """From here on nobody else is served; ``close`` lets the one that is named take the lead."""
        if not self.hands_over.is_set():
            self._ended_s = time.monotonic()
            self.hands_over.set()

    async def close(self) -> None:
        """Somebody else may lead at once. Where the log does not answer others find out by themselves."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        now_s = time.monotonic()
        with suppress(LogAway):
            if self._lost:
                # Whoever lags has all that is in the log, and would lead without what was confirmed.
                await self._log.lose()
                return
            await self._log.release(self.epoch, now_s - (self._ended_s or now_s))


async def ask(look: Callable[[], Awaitable[Standing]], pause: Pause) -> Standing:
    """As often as it takes."""
    while True:
        try:
            return await look()
        except LogAway:
            await pause(AGAIN_S)
