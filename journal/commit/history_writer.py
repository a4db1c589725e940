"""Write what a batch has of history: attempts and outcomes, many alike in one row; attempts that are not to be kept go."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from ..contract import Outcomes
from ..store.bulk_statements import run_keys, run_values
from ..store.history_rows import NEAR, VALID_ENTRIES, as_json, close_together, one_as_json, outcome_rows, rows
from ..store.packing import outcome_map, packer
from .batch import WriteBatch
from .writer_state import WriterState

INSERT_FAILURE = "INSERT INTO failure (queue_id, attempt, at_ms, first_message, last_message, stays, failure_blob) VALUES {values}"
FAILURE_BYTES = "coalesce(sum(length(stays) + length(failure_blob)), 0)"
# Attempts that stand alone: (message_id, attempt, stays).
_ALONE = (
    "(VALUES {values}) AS v CROSS JOIN failure ON first_message = v.column1 AND last_message = v.column1 AND attempt = v.column2"
    " AND stays = v.column3"
)
SIZE_ALONE = f"SELECT count(*), {FAILURE_BYTES} FROM {_ALONE}"
DELETE_ALONE = f"DELETE FROM failure WHERE failure_id IN (SELECT failure_id FROM {_ALONE})"
# Rows of one attempt and several messages that hold some of :entries, whose message ids are from :least to :most.
_HOLDING = (
    f"attempt = :attempt AND last_message > first_message AND first_message BETWEEN :least - {NEAR} AND :most AND last_message >= :least"
    f" AND EXISTS (SELECT 1 FROM json_each({VALID_ENTRIES}) WHERE value IN (SELECT value FROM json_each(:entries)))"
)
HOLDING = f"SELECT failure_id, stays, length(failure_blob) FROM failure WHERE {_HOLDING}"
SET_ENTRIES = "UPDATE failure SET stays = ? WHERE failure_id = ?"
DELETE_FAILURE = "DELETE FROM failure WHERE failure_id = ?"
INSERT_OUTCOME = "INSERT INTO outcome (queue_id, at_ms, outcome, first_message, last_message, stays, outcome_blob) VALUES {values}"


def write_history(connection: sqlite3.Connection, batch: WriteBatch, state: WriterState, meta: list[Any]) -> None:
    if not (batch.attempts or batch.outcomes or batch.attempts_deleted):
        return
    before = state.history_bytes
    if batch.attempts_deleted:
        _delete_attempts(connection, batch.attempts_deleted, state)
    flat: list[Any] = []
    pack_one = packer()
    for number, (queue_id, attempt, at_ms, detail, entries) in enumerate(batch.attempts):
        blob = bytearray(pack_one(detail._asdict()))
        if batch.attempts_deleted:
            entries = [entry for entry in entries if batch.attempts_deleted.get((*entry, attempt), 0) <= number]
        for first, last, text in rows(entries):
            state.history_bytes += len(blob) + len(text)
            flat += (queue_id, attempt, at_ms, first, last, text, blob)
    run_values(connection, INSERT_FAILURE, 7, flat)
    write_outcomes(connection, batch.outcomes, state)
    if state.history_bytes != before:
        meta += ["history_bytes", state.history_bytes]


def write_outcomes(connection: sqlite3.Connection, outcomes: Iterable[Outcomes], state: WriterState) -> None:
    flat: list[Any] = []
    pack_one = packer()
    for queue_id, at_ms, outcome, detail, entries in outcomes:
        blob = bytearray(pack_one(outcome_map(detail)))
        for first, last, text in outcome_rows(entries):
            state.history_bytes += len(blob) + len(text)
            flat += (queue_id, at_ms, outcome, first, last, text, blob)
    run_values(connection, INSERT_OUTCOME, 7, flat)


def _delete_attempts(connection: sqlite3.Connection, leaving: Iterable[tuple[int, int, int]], state: WriterState) -> None:
    keys = [(message_id, attempt, one_as_json(message_id, sequence)) for message_id, sequence, attempt in leaving]
    alone = 0
    for start in range(0, len(keys), 2048):
        part = keys[start : start + 2048]
        places = ",".join(["(?,?,?)"] * len(part))
        found, size = connection.execute(SIZE_ALONE.format(values=places), [value for key in part for value in key]).fetchone()
        alone += found
        state.history_bytes -= size
    if alone:
        run_keys(connection, DELETE_ALONE, 3, keys)
    if alone < len(keys):
        _leave_out(connection, leaving, state)


def _leave_out(connection: sqlite3.Connection, leaving: Iterable[tuple[int, int, int]], state: WriterState) -> None:
    """Attempts that stand in a row with others."""
    by_attempt: dict[int, list[tuple[int, int]]] = {}
    for message_id, sequence, attempt in leaving:
        by_attempt.setdefault(attempt, []).append((message_id, sequence))
    for attempt, entries in by_attempt.items():
        for near in close_together(sorted(entries)):
            parting = list(map(list, near))
            wanted = {"attempt": attempt, "least": near[0][0], "most": near[-1][0], "entries": as_json(near)}
            for failure_id, text, size in connection.execute(HOLDING, wanted).fetchall():
                left = [entry for entry in json.loads(text) if entry not in parting]
                if left:
                    rest = as_json(left)
                    state.history_bytes -= len(text) - len(rest)
                    connection.execute(SET_ENTRIES, (rest, failure_id))
                else:
                    state.history_bytes -= len(text) + size
                    connection.execute(DELETE_FAILURE, (failure_id,))
