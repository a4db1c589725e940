"""Counts, times and states that change while a reference stays where it is."""

from __future__ import annotations

import sqlite3
from typing import Final

from ..contract import ReferenceCounts
from ..store import returned
from ..store.bulk_statements import LONG_RUN, run_values, runs
from ..store.packing import checksum_of_counts, placed
from .writer_state import WriterState

# The comparison names v's columns by place: a VALUES table has no names of its own.
_CHANGE_REFERENCE: Final = (
    "UPDATE reference SET delivery_count = v.column2, failed = v.column3, assigned = v.column4, state = v.column5,"
    " due_at_ms = v.column6, expires_at_ms = v.column7, cause = v.column8, redrive = v.column9,"
    f" counts_checksum = {placed('v.column10')} FROM"
    " (VALUES {values}) AS v WHERE reference.sequence = v.column1"
)
_CHANGE_RUN: Final = (
    "UPDATE reference SET delivery_count = ?, failed = ?, assigned = ?, state = ?, due_at_ms = ?, expires_at_ms = ?,"
    f" cause = ?, redrive = ?, counts_checksum = {placed('?')}"
    " WHERE sequence BETWEEN ? AND ?"
)


def change_references(connection: sqlite3.Connection, changed: dict[int, ReferenceCounts], state: WriterState) -> int:
    """Consecutive rows that change alike, as those of messages that fail together, take one statement: a third of what single rows cost.
    Where only counts change their own rows are not touched (store/returned.py). Returns how many were found.
    """
    alike: dict[ReferenceCounts, list[int]] = {}
    before: ReferenceCounts | None = None
    sequences: list[int] = []
    for sequence, counts in changed.items():
        if counts is not before:  # those that changed together share one
            before, sequences = counts, alike.setdefault(counts, [])
        sequences.append(sequence)
    single: list[int | None] = []
    written, touched = 0, list[int]()
    for counts, sequences in alike.items():
        checksum = checksum_of_counts(*counts)
        for first, last in runs(sorted(sequences)):
            if last - first + 1 >= LONG_RUN:
                if returned.set_run(connection, first, last, counts):
                    written, state.returned = written + last - first + 1, True
                    continue
                written += connection.execute(_CHANGE_RUN, (*counts, checksum, first, last)).rowcount
            else:
                for sequence in range(first, last + 1):
                    single += (sequence, *counts, checksum)
            touched += range(first, last + 1)
    if touched and state.returned:
        returned.forget(connection, touched)
    return written + run_values(connection, _CHANGE_REFERENCE, 10, single)
