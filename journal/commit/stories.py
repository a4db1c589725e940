"""Tries of one task that came each as a message of its own, of which the last are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from ..store.bulk_statements import run_keys, run_values

#: Of all queues.
KEPT: Final = 10_000
_FORGET: Final = "DELETE FROM story WHERE (queue, story) IN (VALUES {values})"
_SET: Final = "INSERT OR REPLACE INTO story (queue, story, message_id, failed) VALUES {values}"
_TRIM: Final = "DELETE FROM story WHERE story_id <= (SELECT max(story_id) FROM story) - ?"


def write_stories(connection: sqlite3.Connection, stories: Mapping[tuple[str, str], tuple[int, int] | None]) -> None:
    """See LastStates.stories."""
    run_keys(connection, _FORGET, 2, [key for key, told in stories.items() if told is None])
    flat: list[Any] = [value for key, told in stories.items() if told for value in (*key, *told)]
    run_values(connection, _SET, 4, flat)
    connection.execute(_TRIM, (KEPT,))
