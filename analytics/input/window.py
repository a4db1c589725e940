"""The time that a report speaks of: one for all its figures, so that what is counted for ever is not held against what was forgotten.

A broker forgets attempts and outcomes with age, and keeps its counts. The window of a broker begins where its history does.
"""

from __future__ import annotations

from collections.abc import Iterable

_MINUTE_US = 60_000_000


def covered_from(exports: Iterable[tuple[str, int, int | None]]) -> dict[str, int]:
    """From (broker_id, exported_at_us, history_from_us) of exports: broker -> from when on, without a gap, all of its history is in one of
    them. A broker of which nothing is gone is not in it.
    """
    begins: dict[str, int | None] = {}
    for broker_id, at_us, from_us in sorted(exports, key=lambda each: -each[1]):
        if broker_id not in begins:
            begins[broker_id] = from_us
        else:
            begin = begins[broker_id]
            if begin is not None and at_us >= begin:
                begins[broker_id] = None if from_us is None else min(begin, from_us)
    # Counts are by the minute.
    return {broker_id: -(-begin // _MINUTE_US) * _MINUTE_US for broker_id, begin in begins.items() if begin is not None}
