"""From one version of the tables to the next: ``0001_what.sql`` takes version 0 to 1, and so on, all in one transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib import resources

from ..errors import JournalError
from ..fingerprint import of_group
from ..store.commits import COUNT
from ..store.packing import counts_checksum
from ..store.sqlite import APPLICATION_ID

#: The version that schema.sql makes.
VERSION = 16


def bring_up(connection: sqlite3.Connection) -> int:
    """Create the tables in an empty file, or bring older ones up to VERSION. Returns the version found (VERSION for a new file).

    Raises ``journal-newer`` for a version of the future, before anything is changed.
    """
    found = version_of(connection)
    if found > VERSION:
        raise JournalError(
            "journal-newer",
            f"The journal has version {found} and this Homing knows versions up to {VERSION}.",
            "Run the Homing that wrote it, or a later one; going back needs a copy made before the upgrade.",
        )
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if empty:
        _run(connection, [(VERSION, resources.files("homing.journal").joinpath("schema.sql").read_text())])
        return VERSION
    if found < VERSION:
        connection.create_function("counts_checksum", 9, counts_checksum)
        connection.create_function("fingerprint_of_group", 3, of_group)
        _run(connection, [(version, text) for version, text in steps() if version > found])
    return found


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def steps() -> list[tuple[int, str]]:
    """(version it leads to, SQL), ascending."""
    found = []
    for file in resources.files("homing.journal.migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_\w+\.sql", file.name)
        if match:
            found.append((int(match[1]), file.read_text()))
    return sorted(found)


def _run(connection: sqlite3.Connection, scripts: list[tuple[int, str]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version, text in scripts:
            for statement in split(text):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(COUNT)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def split(script: str) -> Iterator[str]:
    """Statements of a script, one by one: ``executescript`` would commit first, and a half-made schema must not stay."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
