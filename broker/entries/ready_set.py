"""The ready set: whatever can make a queue dispatchable puts it here; the loop drains it in one place, once a turn."""

from __future__ import annotations

from collections.abc import Callable

from ..core.consumer import SharedWindow
from ..core.queue import Queue


class ReadySet:
    """``wake``: there is to be a turn, in which they are looked at."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        #: Queues that may have something to dispatch, in the order they became so.
        self.queues: dict[Queue, None] = {}

    def mark(self, queue: Queue) -> None:
        """The queue may have become dispatchable; the loop will look."""
        if not self.queues:
            self.wake()
        self.queues[queue] = None

    def offer_room(self, window: SharedWindow) -> None:
        """The queues of those who share the window are looked at anew, whoever holds least first."""
        for consumer in window.by_least_held():
            self.queues.pop(consumer.queue, None)
            self.mark(consumer.queue)
