"""A broker with a planted fault: the cursor of a long queue passes over a message now and then, as if it were in memory.
``python -m tests.faults.planted.cursor_skips serve …``
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.journal import Journal
from homing.journal.read.pages import Page, Wanted

EVERY = 7

_read = Journal.read
_pages = count(1)


def _read_most(journal: Journal, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[Exception], None]) -> None:
    def take_most(page: Page) -> None:
        skips = len(page.records) > 1 and next(_pages) % EVERY == 0
        take(page._replace(records=page.records[1:]) if skips else page)

    _read(journal, wanted, take_most if wanted.kind == "ready" else take, failed)


if __name__ == "__main__":
    with patch.object(Journal, "read", _read_most):
        main()
