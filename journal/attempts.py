"""Table failure: what ended badly together is one row. How its rows are cut, found by message, and told apart again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

#: Message ids in one row are no further apart, so that a look for one message passes over few that are of others.
NEAR: Final = 1023
#: A row for each attempt, with the columns of table failure. No view: a schema that is not trusted may not call JSON functions.
ATTEMPTS: Final = (
    "(SELECT json_extract(stay.value, '$[0]') AS message_id, json_extract(stay.value, '$[1]') AS sequence, failure.*"
    " FROM failure, json_each(failure.stays) AS stay)"
)
#: Those of message ?1. Without the bounds every row would be looked into.
OF_MESSAGE: Final = f"first_message BETWEEN ?1 - {NEAR} AND ?1 AND last_message >= ?1 AND message_id = ?1"


def close_together(stays: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Cuts pairs (message_id, sequence) where a message_id is below the first of its part, or more than NEAR above it."""
    part: list[tuple[int, int]] = []
    least = 0
    for stay in stays:
        if not part or not 0 <= stay[0] - least <= NEAR:
            if part:
                yield part
            part, least = [], stay[0]
        part.append(stay)
    if part:
        yield part
