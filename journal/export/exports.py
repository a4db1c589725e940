"""An export that clients ask for: made beside the broker, by a process of its own, and kept as one file until it was downloaded.

There is one at a time. The next one takes its place; it also goes after a day, and with the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .. import apart
from ..errors import JournalError

log = logging.getLogger("homing.journal")

_NO_ROOM: Final = ("The disk is nearly full.", "Make room, or export a backup on another machine.")
_KEPT_S: Final = 86_400.0
_NONE_YET: Final = {"state": "none", "name": None, "started_ms": None, "ended_ms": None, "table": None, "rows": 0, "bytes": None}
_WELL: Final = {"why": None, "fix": None}


class Exports:
    """Of the journal in ``directory``. ``child``: the module that makes one, run with the directory, the file to make and, where they are
    meant, ``with-tracebacks``; it says in lines how far it is and what came of it. ``space_low``: the disk is nearly full; that ends it.
    """

    def __init__(self, directory: Path, child: str, now_ms: Callable[[], int], space_low: Callable[[], bool]) -> None:
        self._directory = directory
        self._child = child
        self._place = directory / "export-to-download"
        self._now_ms = now_ms
        self._space_low = space_low
        self._status: dict[str, Any] = _NONE_YET | _WELL
        self._task: asyncio.Task[None] | None = None
        self._removal: asyncio.TimerHandle | None = None
        # What a process before this one left.
        shutil.rmtree(self._place, ignore_errors=True)

    @property
    def status(self) -> dict[str, Any]:
        """``{state, name, started_ms, ended_ms, table, rows, bytes, why, fix}``; ``state``: none, running, done or failed; ``table`` and
        ``rows``: what it is at, and how many of it are written; ``bytes``: of the file."""
        return dict(self._status)

    def start(self, name: str, with_tracebacks: bool) -> None:
        """Raises JournalError: ``export-running``, ``disk-low``."""
        if self._task is not None and not self._task.done():
            raise JournalError("export-running", "An export is being made.", "Wait until it is done.")
        if self._space_low():
            raise JournalError("disk-low", *_NO_ROOM)
        self._forget()
        self._status = {**_NONE_YET, **_WELL, "state": "running", "name": name, "started_ms": self._now_ms()}
        self._task = asyncio.get_running_loop().create_task(self._make(name, with_tracebacks), name="export")

    async def _make(self, name: str, with_tracebacks: bool) -> None:
        child = await apart.start(
            self._child, str(self._directory), str(self._path(name)), *(["with-tracebacks"] if with_tracebacks else [])
        )
        try:
            came = await self._watch(child)
        finally:
            await apart.end(child)
        self._status |= {"state": "failed" if came["why"] else "done", "ended_ms": self._now_ms(), "table": None, **came}
        if came["why"]:
            log.error("export-failed: the export that was asked for is not made: %s %s", came["why"], came["fix"])
            shutil.rmtree(self._place, ignore_errors=True)
        else:
            self._removal = asyncio.get_running_loop().call_later(_KEPT_S, self._forget)

    async def _watch(self, child: asyncio.subprocess.Process) -> dict[str, Any]:
        """What came of it."""
        assert child.stdout is not None
        while (line := await child.stdout.readline()).endswith(b"\n"):
            told = json.loads(line)
            if "table" not in told:
                return {**_WELL, **told}
            self._status |= told
            if self._space_low():
                return dict(zip(("why", "fix"), _NO_ROOM, strict=True))
        return {"why": "The process that exports ended early.", "fix": "Look at the broker's log, then try again."}

    def file(self, name: str) -> Path | None:
        """Of the export of that name; None: there is none, or not any more."""
        return self._path(name) if (self._status["state"], self._status["name"]) == ("done", name) else None

    def _path(self, name: str) -> Path:
        return self._place / f"{name}.tar"

    def _forget(self) -> None:
        if self._removal is not None:
            self._removal.cancel()
        self._status = _NONE_YET | _WELL
        shutil.rmtree(self._place, ignore_errors=True)

    async def discard(self) -> None:
        """Ends it where it is being made, and removes its file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._forget()
