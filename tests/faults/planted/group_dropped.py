"""A broker with a planted fault: now and then the journal drops a group and says that it is on disk.
``python -m tests.faults.planted.group_dropped serve …``
"""

from __future__ import annotations

import sqlite3
from itertools import count
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.batch import Group
from homing.journal.commit.writer_thread import Committer, Standing

EVERY = 3

_commit = Committer.commit
_groups = count(1)


def _commit_most(committer: Committer, connection: sqlite3.Connection, group: Group, reserve_up_to: int | None) -> Standing | None:
    # Only what a restart would not trip over: messages, not the queues they are in.
    plain = bool(group.added) and not group.queues and not group.addresses and reserve_up_to is None
    if plain and next(_groups) % EVERY == 0:
        committer.on_disk(group)
        return committer.standing(connection)
    return _commit(committer, connection, group, reserve_up_to)


if __name__ == "__main__":
    with patch.object(Committer, "commit", _commit_most):
        main()
