"""The answer to one request: a future, a step to take at once when it arrives, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .errors import HomingError

Answered = Callable[[Any], None]
Failed = Callable[[HomingError], None]


class Reply:
    """``answered`` and ``failed`` run inside frame handling, before any later frame is looked at: state must not wait for a task
    to be scheduled. The future is for the task that asked."""

    __slots__ = ("_answered", "_failed", "error_type", "future")

    def __init__(
        self,
        error_type: type[HomingError],
        future: asyncio.Future[Any] | None = None,
        answered: Answered | None = None,
        failed: Failed | None = None,
    ) -> None:
        self.error_type = error_type  # what a REFUSED becomes
        self.future = future
        self._answered = answered
        self._failed = failed

    def answer(self, value: Any) -> None:
        if self._answered is not None:
            self._answered(value)
        if self.future is not None and not self.future.done():
            self.future.set_result(value)

    def fail(self, error: HomingError) -> None:
        if self._failed is not None:
            self._failed(error)
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
