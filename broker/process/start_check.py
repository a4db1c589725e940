"""After an unclean stop: is the journal whole? Looked at in a thread beside the running broker, which serves meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from homing.journal.errors import JournalError
from homing.journal.read.check import Stop, check

log = logging.getLogger("homing")

#: Rests so many times as long as it worked: reading rows needs the interpreter's lock, which belongs to the messages.
_REST: Final = 20.0


class StartCheck:
    """``start()``, and at the latest when the broker stops ``close()``, which ends it half way. Logs one line, none when all is whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stop = Stop()
        self._worked_since_s = 0.0
        self._thread = threading.Thread(target=self._run, name="start check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave_off(self, why: str) -> None:
        """There is no room to look now. Whatever runs ends; once ended it says nothing more."""
        began, runs = self._thread.ident is not None, self._thread.is_alive()
        if (runs or not began) and not self._stop.is_set():
            self._stop.set()
            log.warning(
                "journal-unchecked: %s: the journal is not checked after the unclean stop; `homing journal check` does it later", why
            )

    def close(self) -> None:
        """Before the journal is closed: whoever reads it keeps it from emptying its write-ahead log."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._worked_since_s = time.monotonic()
        try:
            report = check(self._directory, self._rest, quick=True, stop=self._stop)
        except JournalError as error:
            log.error("journal-check-failed: after the last, unclean stop the journal could not be checked: %s", error)
            return
        if report.problems:
            log.error(
                "journal-damaged: after the last, unclean stop the journal is not whole, %d finding(s), the first: %s Run"
                " `homing journal check` for all.",
                len(report.problems),
                report.problems[0],
            )

    def _rest(self, step: str, done: int, total: int) -> None:
        self._stop.wait((time.monotonic() - self._worked_since_s) * _REST)
        self._worked_since_s = time.monotonic()
