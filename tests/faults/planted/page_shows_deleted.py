"""A broker with a planted fault: a page of a long queue begins at its first row, and shows also what a batch that is not on disk yet
deletes.
``python -m tests.faults.planted.page_shows_deleted serve …``
"""

from __future__ import annotations

from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.journal import Journal
from homing.journal.read.pages import read_page
from homing.journal.read.turns import Read


async def _read_page_as_it_is(journal: Journal, read: Read) -> bool:
    read.take(await journal._store.run(read_page, read.wanted._replace(after=0), None))
    return False


if __name__ == "__main__":
    with patch.object(Journal, "_read_page", _read_page_as_it_is):
        main()
