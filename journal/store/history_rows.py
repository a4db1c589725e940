"""Tables failure and outcome: what ended together and alike is one row. How rows are cut, found by message, and distinguished again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from ..contract import EndedEntry

#: (message_id, sequence, …)
_Entry = TypeVar("_Entry", bound=Sequence[Any])

#: Message ids in one row are no further apart, so that a look for one message passes over few that are of others.
NEAR: Final = 1023
_EACH: Final = (
    "(SELECT json_extract(entry.value, '$[0]') AS message_id, json_extract(entry.value, '$[1]') AS sequence, {1}{0}.*"
    " FROM {0}, json_each({0}.stays) AS entry)"
)
#: A row for each entry, with the columns of its table. No views: a schema that is not trusted may not call JSON functions.
ATTEMPTS: Final = _EACH.format("failure", "")
OUTCOMES: Final = _EACH.format(
    "outcome", "json_extract(entry.value, '$[2]') AS sent_at_ms, json_extract(entry.value, '$[3]') AS entered_at_ms, "
)
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


def outcome_rows(entries: list[EndedEntry]) -> Iterable[tuple[int, int, str]]:
    """``rows`` of outcomes, which have no order of their own."""
    if len(entries) == 1:
        return ((entries[0][0], entries[0][0], ended_as_json(entries)),)
    return [(near[0][0], near[-1][0], ended_as_json(near)) for near in close_together(sorted(entries))]


def one_as_json(message_id: int, sequence: int) -> str:
    """What ``as_json`` makes of one entry; most that fail at times of their own are alone."""
    return f"[[{message_id},{sequence}]]"


def _rows(entries: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    for near in close_together(entries):
        yield near[0][0], max(near)[0], as_json(near)


def as_json(entries: Sequence[Sequence[int]]) -> str:
    """Pairs of numbers need no encoder."""
    return "[" + ("[%d,%d]," * len(entries))[:-1] % tuple(chain.from_iterable(entries)) + "]"


def ended_as_json(entries: Sequence[EndedEntry]) -> str:
    """Likewise, where every time is known."""
    numbers = tuple(chain.from_iterable(entries))
    if None in numbers:
        return json.dumps(entries, separators=(",", ":"))
    return "[" + ("[%d,%d,%d,%d]," * len(entries))[:-1] % numbers + "]"


def close_together(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Cuts entries where a message_id is below the first of its part, or more than NEAR above it."""
    part: list[_Entry] = []
    least = 0
    for entry in entries:
        if not part or not 0 <= entry[0] - least <= NEAR:
            if part:
                yield part
            part, least = [], entry[0]
        part.append(entry)
    if part:
        yield part
