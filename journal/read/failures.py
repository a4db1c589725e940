"""Failures on record, the latest first, a page at a time: what policies would have made of them."""

from __future__ import annotations

import sqlite3
from typing import cast

from ..contract import Failed, PolicyInForce
from ..store.packing import Damaged, unpack, unpack_attempt

_PAGE = 500
_FAILURES = (
    "SELECT at_ms, failure_id, name, address, json_array_length(stays), failure_blob FROM failure JOIN queue USING (queue_id)"
    f" WHERE at_ms >= ? AND (at_ms, failure_id) < (?, ?) ORDER BY at_ms DESC, failure_id DESC LIMIT {_PAGE}"
)
_POLICY = "SELECT policy_blob FROM policy WHERE policy = ?"

#: Where the next page begins.
Cursor = tuple[int, int]
FIRST: Cursor = ((1 << 63) - 1, 0)


def policy(connection: sqlite3.Connection, name: str) -> PolicyInForce:
    """Empty where it is kept no longer."""
    row = connection.execute(_POLICY, (name,)).fetchone()
    return PolicyInForce() if row is None else cast(PolicyInForce, unpack(row[0]))


def page(
    connection: sqlite3.Connection, since_ms: int, before: Cursor, policies: dict[str, PolicyInForce]
) -> tuple[list[Failed], Cursor | None]:
    """Those before that cursor, and where to go on; None: there are no more. ``policies``: known so far."""
    found: list[Failed] = []
    rows = connection.execute(_FAILURES, (since_ms, *before)).fetchall()
    for _, failure_id, queue, address, number, blob in rows:
        detail = unpack_attempt(blob)
        if number is None:
            raise Damaged(f"row {failure_id} of table failure is not a packed attempt")
        name = detail.policy
        if name not in policies:
            policies[name] = policy(connection, name)
        found.append(Failed(queue, address, number, detail, policies[name]))
    return found, rows[-1][:2] if len(rows) == _PAGE else None
