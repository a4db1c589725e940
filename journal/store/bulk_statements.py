"""Statements that take many rows at once, in few fixed sizes.

``sqlite3_step`` drops the interpreter's lock and must win it back, and does so for each statement: beside a busy loop,
``executemany`` managed 1,800 rows/s where one statement of 2,000 rows reached 80,000 to 156,000. Fixed sizes let the
statement cache hit, and none has more variables than SQLite's own limit.
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from .sqlite import MAX_VARIABLES

_MOST_ROWS = 2048
#: From this length on, consecutive keys go as one range.
LONG_RUN = 16


@lru_cache
def _most(width: int) -> int:
    """Rows of the largest statement. All sizes are powers of two."""
    return 1 << (min(_MOST_ROWS, MAX_VARIABLES // width).bit_length() - 1)


@lru_cache(maxsize=256)
def _statement(sql: str, width: int, rows: int, row: str | None = None) -> str:
    return sql.format(values=",".join([row or f"({','.join('?' * width)})"] * rows))


#: What sqlite3 remembers statements with, too.
_CACHE = type(_statement)


def run_values(connection: sqlite3.Connection, sql: str, width: int, flat: Sequence[Any], row: str | None = None) -> int:
    """Run ``sql`` over the rows of ``flat`` (width values each), with ``{values}`` replaced by row constructors: ``row``, or as many
    parameters as the width.

    Returns how many rows were written.
    """
    written, start, end = 0, 0, len(flat)
    while start < end:
        size = 1 << (min((end - start) // width, _most(width)).bit_length() - 1)
        stop = start + size * width
        written += connection.execute(_statement(sql, width, size, row), flat[start:stop]).rowcount
        start = stop
    return written


def run_keys(
    connection: sqlite3.Connection, sql: str, width: int, keys: Sequence[tuple[Any, ...]], nothing: tuple[Any, ...] | None = None
) -> int:
    """Run ``sql`` with ``{values}`` replaced by the keys, padded to a fixed size by ``nothing``, or by repeating the last one. Returns rows
    written."""
    written = 0
    most = _most(width)
    for start in range(0, len(keys), most):
        part = keys[start : start + most]
        size = 1 << (len(part) - 1).bit_length()
        flat = [value for key in part for value in key]
        flat.extend((nothing or part[-1]) * (size - len(part)))
        written += connection.execute(_statement(sql, width, size), flat).rowcount
    return written


def release_memory(connection: sqlite3.Connection) -> None:
    """Forget pages and statements of the connection: made one by one among messages, each keeps a MiB of theirs from the system."""
    connection.execute("PRAGMA shrink_memory")
    _statement.cache_clear()
    for held in gc.get_referents(connection):
        # The module has no other way to let go of statements.
        if isinstance(held, _CACHE):
            held.cache_clear()


def delete_integers(connection: sqlite3.Connection, table: str, column: str, keys: Iterable[int]) -> int:
    """Delete by an integer key: long runs as ranges, the rest by IN. Returns how many rows went."""
    single: list[tuple[int]] = []
    deleted = 0
    for first, last in runs(sorted(keys)):
        if last - first + 1 >= LONG_RUN:
            deleted += connection.execute(f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?", (first, last)).rowcount
        else:
            single.extend((key,) for key in range(first, last + 1))
    return deleted + run_keys(connection, f"DELETE FROM {table} WHERE {column} IN (VALUES {{values}})", 1, single)


def runs(keys: list[int]) -> Iterable[tuple[int, int]]:
    if not keys:
        return
    first = previous = keys[0]
    for key in keys[1:]:
        if key != previous + 1:
            yield first, previous
            first = key
        previous = key
    yield first, previous
