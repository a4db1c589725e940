"""After an unclean stop: is the journal whole? Looked at by a process of its own, while the broker serves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from homing.journal.read.check_apart import check_apart

log = logging.getLogger("homing")

#: After a start clients come back first.
_AFTER_S: Final = 5.0
#: Rests so many times as long as it worked: disk and processors are the messages' first.
_REST: Final = 9.0


class StartCheck:
    """``start()``, and at the latest when the broker stops ``close()``, which ends it half way. Logs one line, none when all is whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._task: asyncio.Task[None] | None = None
        self._left_off = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="start check")

    def leave_off(self, why: str) -> None:
        """There is no room to look now. Whatever runs ends; once ended it says nothing more."""
        if not self._left_off and (self._task is None or not self._task.done()):
            self.close()
            log.warning(
                "journal-unchecked: %s: the journal is not checked after the unclean stop; `homing journal check` does it later", why
            )

    def close(self) -> None:
        """Before the journal is closed: whoever reads it keeps it from emptying its write-ahead log."""
        self._left_off = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await asyncio.sleep(_AFTER_S)
        found = await check_apart(self._directory, _REST)
        if found.failed:
            log.error("journal-check-failed: after the last, unclean stop the journal could not be checked: %s", found.failed)
        elif found.findings:
            log.error(
                "journal-damaged: after the last, unclean stop the journal is not whole, %d finding(s), the first: %s Run"
                " `homing journal check` for all.",
                found.findings,
                found.first,
            )
