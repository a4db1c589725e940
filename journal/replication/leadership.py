"""Who follows, and when that one takes the lead.

Nothing here depends on time but how soon it happens. A leader that was only slow finds at its next entry that the epoch is another; whoever
takes the lead raises the epoch where epoch and last entry are as it saw them, and has every entry up to that one before it serves anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

from ..commit.packed_batch import BadEntry
from .entry import Entry, NewerEntry, Position
from .leader import AGAIN_S, Leader, Pause, ask
from .log import LogAway, ReplicatedLog, Standing, left_behind, log_newer, parted

#: Between two looks of a node that is named to lead next.
_NAMED_S: Final = 0.03
#: As often at least it was looked before a leader is taken for gone.
_LOOKS: Final = 3


class Copy(Protocol):
    """A node's own journal, as far as it came."""

    @property
    def at(self) -> Position: ...

    async def apply(self, entries: list[bytes]) -> None:
        """Writes the entries that follow. Raises BadEntry: they do not follow; JournalError: they were not written."""

    def opening(self) -> bytes:
        """The batch of the first entry, where this node begins to lead."""


class Hindrance(StrEnum):
    """Why a node had better not lead."""

    #: None of them.
    NONE = ""
    #: It differs from the database's: messages would wait, expire and come again at other times than before. Such a node never leads.
    CLOCK = "clock"
    #: Producers would wait at once. Such a node leads where it is named, or where no other has.
    DISK = "disk"
    #: Its copy is made anew: it has nothing to lead with.
    COPY = "copy"


class Watch:
    """Whether ``node`` is to take the lead: nobody has it, or nothing moved for so long, by looks that were answered. Where another node is
    named that one has as much time before."""

    def __init__(self, node: str, patience_s: float) -> None:
        self._node = node
        self._patience_s = patience_s
        self.hindrance = Hindrance.NONE
        self._seen: Standing | None = None
        self._since_s = 0.0
        self._looks = 0

    def saw(self, seen: Standing, now_s: float) -> bool:
        if seen != self._seen:
            self._seen, self._since_s, self._looks = seen, now_s, 0
        self._looks += 1
        if seen.lost or self.hindrance is Hindrance.CLOCK:
            return False
        short = self.hindrance is Hindrance.DISK
        free = not seen.leader and (seen.successor == self._node or not (seen.successor or short))
        patience_s = 2 * self._patience_s if short else self._patience_s
        return free or (self._looks >= _LOOKS and self.silent_s(now_s) >= patience_s)

    def may_come_back(self, seen: Standing, at: Position, now_s: float) -> bool:
        """Whether the log may yet have what this node has up to ``at``: it lost what was not proved, and whoever leads adds that again."""
        return seen.last < at.number and seen.leader != "" and not seen.lost and self.silent_s(now_s) < self._patience_s

    def again_s(self) -> float:
        """When to look again: clients wait for whoever is named."""
        return _NAMED_S if self._seen is not None and self._seen.successor == self._node else AGAIN_S

    def silent_s(self, now_s: float) -> float:
        """For how long nothing moved."""
        return now_s - self._since_s

    def forget(self) -> None:
        """The log was away: nobody could have moved it."""
        self._seen = None


async def follow_until_leading(
    log: ReplicatedLog, copy: Copy, me: str, watch: Watch, now_s: Callable[[], float], pause: Pause = asyncio.sleep
) -> Leader:
    """Applies what others append. Returns when this node leads, with an entry of its own in the log, and has everything.

    ``me``: this node's name, and what no other process of that name has. Raises JournalError: see Copy and Leader.append.
    """
    while True:
        try:
            seen = await log.look()
            silent = watch.saw(seen, now_s())
            if watch.may_come_back(seen, copy.at, now_s()):
                await pause(AGAIN_S)
                continue
            await _catch_up(log, copy, seen)
            if silent and await _take(log, seen, me, watch.silent_s(now_s())):
                leader = Leader(log, seen.epoch + 1, copy.at, pause)
                await leader.append(copy.opening())
                while copy.at.number < leader.at.number:
                    await _catch_up(log, copy, await ask(log.look, pause))
                return leader
        except LogAway:
            watch.forget()
        await pause(watch.again_s())


async def _catch_up(log: ReplicatedLog, copy: Copy, seen: Standing) -> None:
    """Everything up to what was seen, and what came since."""
    while copy.at.number < seen.last:
        entries = await log.read(copy.at.number)
        if not entries and await log.read(0):
            raise LogAway("it went back meanwhile")
        try:
            first = Entry.unpack(entries[0]).number if entries else seen.last + 1
            if first > copy.at.number + 1:
                raise left_behind(first, copy.at)
            await copy.apply(entries[: seen.last - copy.at.number])
        except NewerEntry as newer:
            raise log_newer(newer, copy.at) from newer
        except BadEntry as other:
            raise parted(seen, copy.at) from other
    if not seen.ends_at(copy.at):
        raise parted(seen, copy.at)


async def _take(log: ReplicatedLog, seen: Standing, me: str, silent_s: float) -> bool:
    try:
        return await log.fence(seen, me, silent_s)
    except LogAway:
        # It may have been taken and the answer lost: in that epoch nobody else writes, and by the next look it can be seen.
        now = await log.look()
        return now == Standing(seen.epoch + 1, seen.last, seen.hash, me)
