"""Broker time: the monotonic clock anchored to wall time, so that it never runs backwards (semantics, section 3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: A persisted time this far ahead of the wall clock is taken for a clock that was wrong, not for a step backwards.
BELIEVED_AHEAD_MS: Final = 5 * 60_000


class BrokerClock:
    """``now_ms()`` is milliseconds since 1970 UTC. Forward steps of the wall clock are adopted, backward ones ignored.

    ``last_ms`` is the latest time the journal saw; ``behind_ms`` says how far the wall clock was behind it when that was
    too far to be believed (0 otherwise): the caller warns.
    """

    def __init__(
        self,
        last_ms: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        wall_ms = int(wall() * 1000)
        self.behind_ms = last_ms - wall_ms if last_ms - wall_ms > BELIEVED_AHEAD_MS else 0
        self._anchor_ms = wall_ms if self.behind_ms else max(wall_ms, last_ms)
        self._anchor = monotonic()

    def now_ms(self) -> int:
        return self._anchor_ms + int((self._monotonic() - self._anchor) * 1000)

    def adopt(self) -> None:
        """Looks at the wall clock and follows it forward; called about once a second."""
        wall_ms = int(self._wall() * 1000)
        if wall_ms > self.now_ms():
            self._anchor_ms = wall_ms
            self._anchor = self._monotonic()
