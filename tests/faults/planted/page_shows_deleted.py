"""A broker with a planted fault: a page of a long queue begins at its first row, and shows also what a batch that is not on disk yet
deletes.
``python -m tests.faults.planted.page_shows_deleted serve …``
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.journal import Journal
from homing.journal.read.pages import Page, Wanted, read_page
from homing.journal.store.directory import DATABASE_NAME


def _read_as_it_is(journal: Journal, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[Exception], None]) -> None:
    with closing(sqlite3.connect(journal.directory / DATABASE_NAME)) as connection:
        page = read_page(connection, wanted._replace(after=0), None)
    asyncio.get_running_loop().call_soon(take, page)


if __name__ == "__main__":
    with patch.object(Journal, "read", _read_as_it_is):
        main()
