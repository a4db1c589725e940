"""How much disk messages may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class DiskRoom(NamedTuple):
    """``low``: whether free space is down to the reserve. ``store_limit``, in bytes: of durable messages, and of those that are not
    durable (asked each time, for it may follow the disk); None: no limit. ``log``: what the replicated log takes, and may take; None: there
    is none."""

    low: Callable[[], bool] = lambda: False
    store_limit: int | None = None
    temp_limit: Callable[[], int] | None = None
    log: Callable[[], tuple[int, int]] | None = None

    def may_keep(self, stored_bytes: int) -> bool:
        """Whether there is room for more that nobody waits for, where so much is stored."""
        return not self.low() and (self.store_limit is None or stored_bytes < self.store_limit)
