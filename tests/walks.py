"""How far an operation walks in a broker that serves: its calls from one file of the broker into another, by ``sys.setprofile``.

Left out are codecs, transports and comprehensions, and how a record is made of a message (at a small commit on the loop, else on a
thread). The journal counts as one file, and a call into it as one call, whatever it does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
BROKER, JOURNAL = (f"{ROOT / 'homing' / name}/" for name in ("broker", "journal"))
#: What only carries bytes or measures, and what tests ask beside the broker (tests/transitions.py).
_LEFT_OUT = re.compile(
    r"/core/lifecycle\.py|/step_times\.py|/recording/mapping\.py|/codec\w*\.py|/\w*transport\.py"
    r"|/protocols/(output|turns|gathering)\.py|/long_work\.py|/process/long_work_turns\.py"
    r"|:<(?!lambda)|:Server\.busy$|:Histogram\.add$"
)
_TURN = "Server._turn"


@dataclass
class Walk:
    """``names``: the functions, in order; ``moves``: how often one of another file was called."""

    names: list[str] = field(default_factory=list)
    moves: int = 0


class Walker:
    """What was called on this thread: outside the turns of the loop, and within them."""

    def __init__(self) -> None:
        self.walk, self.turns = Walk(), Walk()
        #: Of each frame that is under way: its file, and the walk that it is a part of.
        self._frames: list[tuple[str, Walk] | None] = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return" and self._frames:
            self._frames.pop()

    def _enter(self, frame: FrameType) -> None:
        before, path, name = self._frames[-1] if self._frames else None, frame.f_code.co_filename, frame.f_code.co_qualname
        file = "journal" if path.startswith(JOURNAL) else path
        if not path.startswith((BROKER, JOURNAL)) or _LEFT_OUT.search(f"{path}:{name.rpartition('.<locals>.')[2]}"):
            self._frames.append(before)
            return
        walk = self.turns if name == _TURN else self.walk if before is None else before[1]
        if file != "journal" or (before is not None and before[0] != file):
            walk.names.append(name)
            walk.moves += before is not None and before[0] != file and name != _TURN
        self._frames.append((file, walk))


async def walked(operation: Callable[[], Awaitable[object]]) -> Walker:
    """What is walked on this thread until the operation is over."""
    walker = Walker()
    sys.setprofile(walker.note)
    try:
        await operation()
    finally:
        sys.setprofile(None)
    return walker
