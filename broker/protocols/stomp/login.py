"""What CONNECT settles: the version, and how often something is to be heard of either side."""

from __future__ import annotations

from typing import Final

from .codec import VERSIONS, StompError

_MOST_HEARTBEAT_MS: Final = 86_400_000


def spoken(accepted: str | None) -> str:
    """The latest that both understand; without a word STOMP 1.0. Raises StompError."""
    if accepted is None:
        return "1.0"
    theirs = [each.strip() for each in accepted.split(",")]
    found = next((each for each in VERSIONS if each in theirs), None)
    if found is None:
        raise StompError(f"none of the versions {accepted[:80]!r} is spoken here", f"use one of {', '.join(reversed(VERSIONS))}")
    return found


def heartbeats(said: str) -> tuple[int, int]:
    """How often the client can send something, and wants something, in ms; 0: not. Raises StompError."""
    numbers = [each.strip() for each in said.split(",")]
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() and len(each) <= 18 for each in numbers):
        raise StompError(f"heart-beat: {said[:32]!r} is not two whole numbers of milliseconds", "write heart-beat:10000,10000")
    first, second = (min(int(each), _MOST_HEARTBEAT_MS) for each in numbers)
    return first, second
