"""Tables failure and outcome: what ended together and alike is one row. How rows are cut, found by message, and distinguished again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

#: Message ids in one row are no further apart, so that a look for one message passes over few that are of others.
NEAR: Final = 1023
_EACH: Final = (
    "(SELECT json_extract(entry.value, '$[0]') AS message_id, json_extract(entry.value, '$[1]') AS sequence, {0}.*"
    " FROM {0}, json_each({0}.stays) AS entry)"
)
#: A row for each entry, with the columns of its table. No views: a schema that is not trusted may not call JSON functions.
ATTEMPTS: Final = _EACH.format("failure")
OUTCOMES: Final = _EACH.format("outcome")
#: Rows of table {0} that may be of message :message_id: of it alone, or of several. Without this every row would be looked into.
_MAY_BE: Final = (
    "{0}_id IN (SELECT {0}_id FROM {0} WHERE first_message = :message_id AND last_message = :message_id UNION ALL SELECT {0}_id FROM {0}"
    f" WHERE last_message > first_message AND first_message BETWEEN :message_id - {NEAR} AND :message_id AND last_message >= :message_id)"
)
FAILURES_OF_MESSAGE: Final = _MAY_BE.format("failure")
ATTEMPTS_OF_MESSAGE: Final = f"{FAILURES_OF_MESSAGE} AND message_id = :message_id"
OUTCOMES_OF_MESSAGE: Final = f"{_MAY_BE.format('outcome')} AND message_id = :message_id"
#: The stays of a row that is not what was written: none.
VALID_ENTRIES: Final = "iif(json_valid(stays), stays, '[]')"


def rows(entries: list[tuple[int, int]]) -> Iterable[tuple[int, int, str]]:
    """(first_message, last_message, stays) of the rows that entries which are alike take."""
    if len(entries) == 1:
        message_id, sequence = entries[0]
        return ((message_id, message_id, one_as_json(message_id, sequence)),)
    return _rows(entries)


def one_as_json(message_id: int, sequence: int) -> str:
    """What ``as_json`` makes of one entry; most that fail at times of their own are alone."""
    return f"[[{message_id},{sequence}]]"


def _rows(entries: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    for near in close_together(entries):
        yield near[0][0], max(near)[0], as_json(near)


def as_json(entries: Sequence[Sequence[int]]) -> str:
    """Pairs of numbers need no encoder."""
    return "[" + ("[%d,%d]," * len(entries))[:-1] % tuple(chain.from_iterable(entries)) + "]"


def close_together(entries: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Cuts pairs (message_id, sequence) where a message_id is below the first of its part, or more than NEAR above it."""
    part: list[tuple[int, int]] = []
    least = 0
    for entry in entries:
        if not part or not 0 <= entry[0] - least <= NEAR:
            if part:
                yield part
            part, least = [], entry[0]
        part.append(entry)
    if part:
        yield part
