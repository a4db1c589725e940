"""Who comes to wait for the disk while a step of work is written goes along with it.

A step is many messages that nobody waits for, as a page of a redrive is. Whoever sends something meanwhile would wait for the rest of it,
its sync, and then for a commit of his own; so the writer asks for what has gathered right before the step is committed, and both are one
commit. What joins comes after the step, and all of it is on disk or none, as with any two batches that wait (``WriteBatch.absorb``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from .batch import WriteBatch

#: So long the loop may take to answer, which is in its turn with something else; then the step goes alone.
_PATIENCE_S: Final = 0.002


class Joining:
    """Called on the store's thread while it writes. ``waits``: whether somebody does, by a look from there, which may be a moment late.
    ``give``: called on the loop, gives what is to go along, None where nothing is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waits: Callable[[], bool], give: Callable[[], WriteBatch | None]) -> None:
        self._loop = loop
        self._waits = waits
        self._give = give

    def __call__(self) -> WriteBatch | None:
        if not self._waits():
            return None
        answer: Future[WriteBatch | None] = Future()
        self._loop.call_soon_threadsafe(self._answer, answer)
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            # The loop takes no answer back: either it has not begun to give one, or it is here in a moment.
            return None if answer.cancel() else answer.result()

    def _answer(self, answer: Future[WriteBatch | None]) -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(self._give())
            except Exception as error:
                answer.set_exception(error)
