"""Marks of producers that are gone: the highest number that each had stored, and when it was used last.

Very many may be kept for very long, among messages that come and go. An object for each would take ten times as much, and would keep the
memory of those messages from going back to the system; so a client's marks are numbers in one array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container
from typing import Final

#: A mark in its client's array: the producer's number, which the array is sorted by, the mark, and when it was used last (ms).
_FIELDS: Final = 3


class Marks:
    """By client (its id, or the name of a connection without one) and number of the producer. ``count``: of all."""

    __slots__ = ("_clients", "count")

    def __init__(self) -> None:
        self._clients: dict[str, array[int]] = {}
        self.count = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def keep(self, client: str, number: int, mark: int, used_ms: int) -> None:
        marks = self._clients.setdefault(client, array("Q"))
        at = _place(marks, number)
        new = marks[at : at + 1] != array("Q", (number,))
        marks[at : at if new else at + _FIELDS] = array("Q", (number, mark, used_ms))
        self.count += new

    def mark(self, client: str, number: int) -> int:
        """0: there is none."""
        marks = self._clients.get(client, _NONE)
        at = _place(marks, number)
        return marks[at + 1] if at < len(marks) and marks[at] == number else 0

    def forget(self, before_ms: int, still_open: Container[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those that were used last before then are gone, unless their producer is open: whose they were."""
        gone: list[tuple[str, int]] = []
        for client, marks in list(self._clients.items()):
            if min(marks[2::_FIELDS]) >= before_ms:
                continue
            kept = array("Q")
            for at in range(0, len(marks), _FIELDS):
                whose = client, marks[at]
                if marks[at + 2] < before_ms and whose not in still_open:
                    gone.append(whose)
                else:
                    kept += marks[at : at + _FIELDS]
            if kept:
                self._clients[client] = kept
            else:
                del self._clients[client]
        self.count -= len(gone)
        return gone


_NONE: Final = array("Q")


def _place(marks: array[int], number: int) -> int:
    return _FIELDS * bisect_left(range(len(marks) // _FIELDS), number, key=lambda at: marks[_FIELDS * at])
