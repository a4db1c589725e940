"""When exports were taken, and how much of a broker's history is in them together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_MINUTE_US = 60_000_000


class Taken(NamedTuple):
    """When an export was taken, and since when all is in it (None: always), in microseconds since 1970."""

    broker_id: str
    at_us: int
    from_us: int | None = None
    #: Some dead letters, which tell nothing of any time.
    is_archive: bool = False


def latest_of(exports: Iterable[Taken]) -> dict[str, int]:
    """Broker -> when its latest export was taken; of archives only where there is nothing else."""
    return {each.broker_id: each.at_us for each in sorted(exports, key=lambda each: (not each.is_archive, each.at_us))}


def covered_from(exports: Iterable[Taken]) -> dict[str, int]:
    """Broker -> from when on, without a gap, all of its history is in its exports. A broker of which nothing is gone is not in it."""
    begins: dict[str, int | None] = {}
    for broker_id, at_us, from_us, _ in sorted((each for each in exports if not each.is_archive), key=lambda each: -each.at_us):
        if broker_id not in begins:
            begins[broker_id] = from_us
        else:
            begin = begins[broker_id]
            if begin is not None and at_us >= begin:
                begins[broker_id] = None if from_us is None else min(begin, from_us)
    # Counts are by the minute.
    return {broker_id: -(-begin // _MINUTE_US) * _MINUTE_US for broker_id, begin in begins.items() if begin is not None}
