"""How long requests keep everybody else: of each step of the loop, by the kind of what it was a step of.

Measured is the thread's own processor time, so that neither the disk nor whoever else uses the machine is taken for the broker's work.
Plain messages are not looked at: what comes at once of theirs is bounded by the size of a read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from .core.counts import Histogram
from .steps import Steps

T = TypeVar("T")

_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class StepTimes:
    def __init__(self) -> None:
        #: In seconds.
        self.by_kind: dict[str, Histogram] = {}

    def call(self, kind: str, act: Callable[[], T]) -> T:
        """It is one step."""
        began_s = time.thread_time()
        try:
            return act()
        finally:
            self._add(kind, time.thread_time() - began_s)

    def of(self, kind: str, steps: Steps[T]) -> Steps[T]:
        """The same steps, measured."""
        while True:
            began_s = time.thread_time()
            try:
                waits = next(steps)
            except StopIteration as done:
                value: T = done.value
                return value
            finally:
                self._add(kind, time.thread_time() - began_s)
            yield waits

    def _add(self, kind: str, seconds: float) -> None:
        if kind not in self.by_kind:
            self.by_kind[kind] = Histogram(_BOUNDS_S)
        self.by_kind[kind].add(seconds)
