"""What may be on its way to the journal."""

from __future__ import annotations

from typing import Any

INT64 = range(-(2**63), 2**63)


def check_batch(value: Any) -> None:
    """Every number on its way to the journal fits into 64 bits, every text can be written as UTF-8."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        assert value in INT64
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, each in value.items():
            check_batch(key)
            check_batch(each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_batch(each)
    elif type(value).__name__ == "WriteBatch":
        for name in (
            "added",
            "changed",
            "messages",
            "queues",
            "addresses",
            "declarations",
            "producers",
            "transactions",
            "outcomes",
            "queue_stats",
        ):
            check_batch(getattr(value, name))
