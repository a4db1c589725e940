"""High watermarks of producers that are gone: the highest number that each had stored, and when it was used last.

Very many may be kept for very long, among messages that come and go. An object for each would take ten times as much, and would keep the
memory of those messages from going back to the system; so a client's are numbers in one array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container
from typing import Final

#: One in its client's array: the producer's number, which the array is sorted by, the high watermark, and when it was used last (ms).
_FIELDS: Final = 3


class HighWatermarks:
    """By client (its id, or the name of a connection without one) and number of the producer. ``count``: of all."""

    __slots__ = ("_clients", "count")

    def __init__(self) -> None:
        self._clients: dict[str, array[int]] = {}
        self.count = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def keep(self, client: str, number: int, high_watermark: int, used_ms: int) -> None:
        known = self._clients.setdefault(client, array("Q"))
        at = _place(known, number)
        new = known[at : at + 1] != array("Q", (number,))
        known[at : at if new else at + _FIELDS] = array("Q", (number, high_watermark, used_ms))
        self.count += new

    def of(self, client: str, number: int) -> int:
        """0: there is none."""
        known = self._clients.get(client, _NONE)
        at = _place(known, number)
        return known[at + 1] if at < len(known) and known[at] == number else 0

    def make_anew(self) -> None:
        """In memory that was not among messages: an array keeps a MiB of theirs from the system, and so does a name."""
        self._clients = {client.encode().decode(): known[:] for client, known in self._clients.items()}

    def forget(self, before_ms: int, still_open: Container[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those that were used last before then are gone, unless their producer is open: whose they were."""
        gone: list[tuple[str, int]] = []
        for client, known in list(self._clients.items()):
            if min(known[2::_FIELDS]) >= before_ms:
                continue
            kept = array("Q")
            for at in range(0, len(known), _FIELDS):
                whose = client, known[at]
                if known[at + 2] < before_ms and whose not in still_open:
                    gone.append(whose)
                else:
                    kept += known[at : at + _FIELDS]
            if kept:
                self._clients[client] = kept
            else:
                del self._clients[client]
        self.count -= len(gone)
        return gone


_NONE: Final = array("Q")


def _place(known: array[int], number: int) -> int:
    return _FIELDS * bisect_left(range(len(known) // _FIELDS), number, key=lambda at: known[_FIELDS * at])
