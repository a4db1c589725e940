"""For tests of what is short on purpose. A machine may stop for a while at any place, and then such things end by right."""

from __future__ import annotations

import functools
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import pytest

TRIES: Final = 3
#: What a heartbeat of 300 ms and a login of 1 s cannot do without. On an idle machine the longest is below 5 ms.
PAUSE_S: Final = 0.05
_TICK_S: Final = 0.01
#: An assertion, an exception, or an exception that was expected and did not come.
FAILED: Final = (Exception, pytest.fail.Exception)
Test = TypeVar("Test", bound=Callable[..., Any])

#: One line for each repetition in this process; tests/conftest.py takes them to the summary.
repetitions: list[str] = []


class _Pauses(threading.Thread):
    """Asks to be woken every 10 ms and notes by how much the machine was late."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while True:
            began = time.monotonic()
            if self._over.wait(_TICK_S):
                return
            self.longest_s = max(self.longest_s, time.monotonic() - began - _TICK_S)

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def _excused(name: str) -> Iterator[None]:
    """Swallows the failure of a test during which the machine paused, and nothing else."""
    pauses = _Pauses()
    pauses.start()
    try:
        yield
    except FAILED:
        pauses.end()
        if pauses.longest_s < PAUSE_S:
            raise
        traceback.print_exc()
        repetitions.append(f"{name}: the machine paused for {pauses.longest_s * 1000:.0f} ms")
    finally:
        pauses.end()


def tried_again(test: Test) -> Test:
    """Begins ``test`` anew where it failed while the machine paused, three times in all. For what a pause in the wrong place ends by right,
    and for nothing else: a message that lives for half a second, a connection with many heartbeats a second.

    ``test`` may be a part of one: whatever it needs fresh, it has to make itself."""
    name = f"{test.__module__}.{test.__qualname__}"
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def patient(*arguments: Any, **named: Any) -> Any:
            for _ in range(TRIES - 1):
                with _excused(name):
                    return await test(*arguments, **named)
            return await test(*arguments, **named)

        return cast(Test, patient)

    @functools.wraps(test)
    def again(*arguments: Any, **named: Any) -> Any:
        for _ in range(TRIES - 1):
            with _excused(name):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return cast(Test, again)
