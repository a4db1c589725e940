"""A broker with a planted fault: the cursor of a long queue passes over a message now and then, as if it were in memory.
``python -m tests.faults.planted.cursor_skips serve …``
"""

from __future__ import annotations

from itertools import count
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.broker.core.queue import Queue
from homing.broker.entries.pager import Pager
from homing.journal.read.pages import Page

EVERY = 7

_load = Pager._load
_pages = count(1)


def _load_most(pager: Pager, queue: Queue, priority: int, page: Page) -> None:
    skips = len(page.records) > 1 and next(_pages) % EVERY == 0
    _load(pager, queue, priority, page._replace(records=page.records[1:]) if skips else page)


if __name__ == "__main__":
    with patch.object(Pager, "_load", _load_most):
        main()
