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


async def end(child: Process) -> None:
    """Whatever it is at."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())
