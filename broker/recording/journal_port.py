"""What the broker needs of a journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from homing.journal.commit.batch import WriteBatch
from homing.journal.read.pages import Page, Wanted


class JournalPort(Protocol):
    """The part of journal.Journal that the broker writes through; see there."""

    batch: WriteBatch
    #: Called on the loop after each commit, and after upkeep.
    on_commit: Callable[[int], None]
    #: Upkeep is due after a commit, or may be.
    tidying: bool

    def next_id(self) -> int: ...

    def next_ids(self, count: int) -> int: ...

    @property
    def ids_taken(self) -> int: ...

    @property
    def ids_reserved(self) -> bool: ...

    def when_safe(self, callback: Callable[[], None]) -> None: ...

    def when_readable(self, callback: Callable[[], None]) -> None: ...

    def when_stored(self, callback: Callable[[], None]) -> None: ...

    def busy(self, sends: bool = False) -> bool: ...

    @property
    def unwritten_bytes(self) -> int: ...

    @property
    def unwritten_references(self) -> int: ...

    @property
    def sync_ms(self) -> float | None: ...

    def read(self, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[Exception], None]) -> None: ...
