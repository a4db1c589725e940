"""How much the broker does in one turn of the event loop that it shares with a test: lines of its own, by ``sys.settrace``.

Not measured by the clock, so that nothing else on the machine and no slower one changes it. A line that is a loop counts each time round.
What is left out: one call into C, however long, and threads.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_ROOT = Path(__file__).parent.parent
_OURS = tuple(f"{_ROOT / 'homing' / name}/" for name in ("broker", "journal"))


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._run_once = loop._run_once  # type: ignore[attr-defined]
        loop._run_once = self._turn  # type: ignore[attr-defined]
        self._watched = False
        #: What is called for each line of a function; None: it is not ours.
        self._watching: dict[CodeType, Callable[[FrameType, str, Any], Any] | None] = {}
        #: Lines by function: of this turn, and of the longest.
        self._lines = self._longest = Counter[str]()

    def begin(self) -> None:
        self._longest, self._watched = Counter(), True

    def end(self) -> tuple[int, list[tuple[str, int]]]:
        """Lines of the longest turn since ``begin``, and the functions that have most of them."""
        self._watched = False
        return self._longest.total(), self._longest.most_common(5)

    def _turn(self) -> None:
        if not self._watched:
            self._run_once()
            return
        self._lines = Counter()
        sys.settrace(self._enter)
        try:
            self._run_once()
        finally:
            sys.settrace(None)
        self._longest = max(self._longest, self._lines, key=Counter.total)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in self._watching:
            self._watching[code] = self._counting(code.co_qualname) if code.co_filename.startswith(_OURS) else None
        return self._watching[code]

    def _counting(self, name: str) -> Callable[[FrameType, str, Any], Any]:
        """Called for each line, of which there are millions."""

        def line(frame: FrameType, event: str, _: Any) -> Any:
            self._lines[name] += 1
            return line

        return line
