"""Frames that are not whole yet: what they hold is their connection's, and large ones are gathered as many at a time as there is room.

Who waits is not read meanwhile. Who has kept others waiting for too long, or holds most of what there is for all connections together, is
notified and ended: the one whose frame began first, for frames that are going to be whole are whole soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ..core.memory import Kind, Memory, Owner
from ..errors import Refused

#: What is to come of a frame or a message in no more bytes than this is just taken.
_SMALL_BYTES: Final = 64 * 1024
#: Of memory-limit, for all large frames at a time; one is always gathered.
_PART: Final = 4
#: How long a frame may take while others wait for theirs.
PATIENCE_S: Final = 30.0


class Guest(Protocol):
    """A socket."""

    def wait_for_room(self) -> None:
        """It is not read until ``go_on``."""

    def go_on(self) -> None: ...

    def give_way(self, refusal: Refused) -> None: ...


class Gathering:
    def __init__(self, memory: Memory, now_s: Callable[[], float]) -> None:
        self._memory = memory
        self._now_s = now_s
        #: Everybody of whom part of a frame is here, since when; the oldest first.
        self._partial: dict[Guest, float] = {}
        #: Who may gather a large one, and how much that will be; who waits for that, and how much it would be.
        self._large: dict[Guest, int] = {}
        self._line: dict[Guest, int] = {}

    def most(self, largest: int, most: int | None) -> int:
        """What one connection may have half sent, where one message may be so large, and nothing else is said."""
        return max(largest, self._memory.limit // _PART if most is None else most)

    @property
    def short(self) -> bool:
        """There is no room for anything but messages."""
        return self._memory.room() < 0

    def owner(self) -> Owner:
        """Another connection's."""
        return Owner(self._memory, Kind.CONNECTIONS)

    def note(self, guest: Guest, partial: int, wanted: int, whole: bool) -> None:
        """Something came: of frames that are not whole ``partial`` bytes are here, of ``wanted``. ``whole``: others before them are."""
        if whole or not partial:
            self.forget(guest)
        if not partial:
            return
        self._partial.setdefault(guest, self._now_s())
        if wanted > _SMALL_BYTES and guest not in self._line:
            if guest in self._large or self._fits(wanted):
                self._large[guest] = wanted
            else:
                self._line[guest] = wanted
                guest.wait_for_room()
        while self._memory.room() < 0 and self._partial:
            self._end(next(iter(self._partial)), "what connections hold has come to half of memory-limit")

    def _fits(self, wanted: int) -> bool:
        return not self._large or sum(self._large.values()) + wanted <= self._memory.limit // _PART

    def forget(self, guest: Guest) -> None:
        """Nothing of a frame is here for it, or it is gone."""
        if self._partial.pop(guest, None) is None:
            return
        self._line.pop(guest, None)
        if self._large.pop(guest, None) is not None:
            self._let_in()

    def _let_in(self) -> None:
        for guest, wanted in list(self._line.items()):
            if not self._fits(wanted):
                return
            del self._line[guest]
            self._large[guest] = wanted
            guest.go_on()

    def look(self) -> None:
        """Now and then: nobody waits for ever for what somebody else does not finish."""
        if self._line:
            since_s, guest = min((self._partial[guest], id(guest), guest) for guest in self._large)[::2]
            if self._now_s() - since_s >= PATIENCE_S:
                self._end(guest, f"others have waited {PATIENCE_S:.0f} s for this connection's frame to be whole")

    def _end(self, guest: Guest, why: str) -> None:
        self.forget(guest)
        guest.give_way(Refused("memory-limit", f"{why}, and its frame is not whole", "send less at once, or raise broker.memory-limit"))
