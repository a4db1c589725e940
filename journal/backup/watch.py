"""What a backup must know of checkpoints, and its word in them. On the store's thread, but for ``end``."""

from __future__ import annotations

import sqlite3
from typing import Final

from ..store.commits import counted
from ..store.sqlite import WalMeter

#: So few pages (32 MiB) are copied while checkpoints wait.
_FEW_PAGES: Final = 2_048


class BackupWatch:
    def __init__(self, meter: WalMeter) -> None:
        self._meter = meter
        #: Pages that checkpoints wrote into the database since they were asked for; None: nobody asks.
        self._written: set[int] | None = None
        #: Checkpoints wait.
        self.held = False
        #: One could not.
        self.interrupted = False

    def begin(self) -> None:
        self._written, self.held, self.interrupted = set(), False, False

    def end(self) -> None:
        self._written, self.held = None, False

    def before_checkpoint(self, must: bool) -> bool:
        """Whether it may run. ``must``: there is no room for waiting."""
        written = self._written
        if written is None:
            return True
        if self.held and not must:
            return False
        self.interrupted = self.interrupted or self.held
        written.update(self._meter.pending_pages())
        return True

    def take(self, last: bool, _: sqlite3.Connection) -> set[int]:
        """The pages to copy again; where they are few, or this is to be the last time, checkpoints wait from here on."""
        found, self._written = self._written or set(), set()
        self.held = last or len(found) <= _FEW_PAGES
        return found

    def position(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """How long the write-ahead log is, and the number of the last commit in it."""
        return self._meter.length_bytes(), counted(connection)
