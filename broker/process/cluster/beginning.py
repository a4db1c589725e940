"""A cell begins: with nothing, or with what a single broker kept."""

from __future__ import annotations

from pathlib import Path

from homing.journal.errors import JournalError
from homing.journal.first_node import first_node
from homing.journal.replication.postgresql import PostgresLog, schema


def statements(directory: Path, cell: str) -> str:
    """The SQL that makes it, for whoever may make tables. Raises JournalError: see first_node."""
    with first_node(directory) as node:
        return schema(cell, node.broker_id, node.at)


async def begin(log: PostgresLog, directory: Path, keep_before_migration: bool) -> tuple[str, int]:
    """Returns its broker_id, and the number of the last entry that is there already: 0 of an empty one. A cell that was made for this
    journal before is no error.

    Raises LogAway, and JournalError as first_node and PostgresLog.make.
    """
    with first_node(directory) as node:
        try:
            await log.make(node.broker_id, node.at)
        except JournalError as error:
            if error.code != "log-cell-exists" or await log.begin(True) != node.broker_id or not (await log.look()).ends_at(node.at):
                raise
        node.begin(keep_before_migration)
    return node.broker_id, node.at.number
