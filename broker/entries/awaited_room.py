"""Room that is waited for: full queues, and what is parked elsewhere until something leaves them."""

from __future__ import annotations

from collections.abc import Callable

from ..core.message import MessageReference
from ..core.queue import Queue


class AwaitedRoom:
    """``wake``: there is to be a turn, in which what was waited for is used."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: By the queue that is full, what waits for room in it, in order.
        self.waiting: dict[Queue, dict[MessageReference, None]] = {}
        #: Queues that have some now.
        self.found: dict[Queue, None] = {}

    def made(self, queue: Queue) -> None:
        """Something that was ready in it is no more. Hot paths save the call where nothing is ``waiting`` at all."""
        if queue in self.waiting:
            self.found[queue] = None
            self._wake()
