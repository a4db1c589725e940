"""Programs of ours that run beside the broker, in a process of their own: what would hold up its loop, or take its memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

#: Of one line that it may answer.
_LINE_BYTES: Final = 1 << 20


async def start(module: str, *arguments: str) -> Process:
    """Runs a module; lines go in and come out."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=PIPE,
        stdout=PIPE,
        limit=_LINE_BYTES,
        env={**os.environ, "PYTHONPATH": path},
        # Ctrl-C at the terminal is the broker's to act upon.
        start_new_session=True,
    )


def give_way() -> None:
    """Called by such a program: it works while the broker leaves a processor idle. Being nice is not enough for that: whoever is at work
    keeps the processor for some milliseconds, while a confirm waits."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(10)


async def end(child: Process) -> None:
    """Whatever it is at."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())
