"""Where a reference may go from where it stands: all there is. Whoever changes ``MessageReference.where`` keeps to this table, which is
looked at in tests only (tests/conftest.py); it is changed for every message.
"""

from __future__ import annotations

from typing import Final

from .message import Where

TRANSITIONS: Final[dict[Where, frozenset[Where]]] = {
    # Its change is on disk: it is enqueued. It never leaves for a consumer before.
    Where.IN_COMMIT: frozenset({Where.PENDING, Where.SCHEDULED, Where.PARKED, Where.GONE}),
    Where.PENDING: frozenset({Where.DELIVERING, Where.IN_COMMIT, Where.GONE}),
    # What comes back is settled first, in whatever way; nothing goes from one consumer to the next.
    Where.DELIVERING: frozenset({Where.IN_COMMIT, Where.GONE}),
    Where.SCHEDULED: frozenset({Where.IN_COMMIT, Where.GONE}),
    # It tries again to leave.
    Where.PARKED: frozenset({Where.IN_COMMIT, Where.GONE}),
    Where.GONE: frozenset(),
}


def check(before: Where, after: Where) -> None:
    """Raises ValueError for a transition that is not in the table; staying is none."""
    if after is not before and after not in TRANSITIONS[before]:
        raise ValueError(f"a reference that is {before.name} cannot become {after.name}")
