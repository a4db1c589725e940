"""A journal that a cluster's log is replayed into, from nothing: what each leader had when the next one began; at the end what all have."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from homing.journal.commit.packed_batch import unpack_batch
from homing.journal.follower import Follower
from homing.journal.options import JournalOptions
from homing.journal.read.queries import open_read_only
from homing.journal.replication.entry import Entry
from homing.journal.replication.postgresql import Access, Member, PostgresLog
from homing.journal.upkeep.tombstones import THERE
from tests.faults.kill_loop.events import Snapshot, now_ms
from tests.faults.kill_loop.snapshots import take_snapshot

#: Of meta each node has these for itself.
_OWN_META: Final = ("clean_stop", "commits", "created_at_ms", "reserved_up_to")
#: These are looked at otherwise, or not.
_APART: Final = ("meta", "gone")
_HISTORY: Final = ("failure", "outcome")
_HISTORY_META: Final = ("history_bytes", "history_from_ms")
Tables = dict[str, list[tuple[object, ...]]]


class Replay:
    """``entries``: how many it has; ``first``: the first of them that the log has yet; ``begun``: how often another leader began."""

    def __init__(self, directory: Path, database: str, ours: tuple[str, ...]) -> None:
        self.directory = directory
        self.entries = self.first = self.begun = 0
        self._database, self._ours = database, ours

    def go_on(self, name: str, **of_first: Any) -> list[Snapshot]:
        """All that is in the log; a snapshot of each leader's journal as the next one found it. ``of_first``: what else is known of the
        first, as events.Snapshot has it."""
        found = asyncio.run(self._go_on(name))
        return [replace(each, **of_first) if each is found[0] else each for each in found]

    async def _go_on(self, name: str) -> list[Snapshot]:
        found: list[Snapshot] = []
        async with PostgresLog(Access(self._database, "main"), Member("replay")) as log:
            follower = await self._open(self.directory, log)
            while entries := await log.read(follower.at.number):
                for packed in entries:
                    entry = Entry.unpack(packed)
                    if 0 < follower.at.epoch < entry.epoch:
                        await follower.close()
                        snapshot = take_snapshot(self.directory, f"{name}.{len(found)}", ours=self._ours)
                        found.append(replace(snapshot, t=_began_ms(entry)))
                        follower = await self._open(self.directory, log)
                    await follower.apply([packed])
            self.entries = follower.at.number
            await follower.close()
            await log.report(self.entries, self.entries)
            self.first = Entry.unpack((await log.read(0))[0]).number
        self.begun += len(found)
        return found

    async def _open(self, directory: Path, log: PostgresLog) -> Follower:
        options = JournalOptions(disk_reserve_bytes=1 << 20)
        return await Follower.open(directory, options, lambda: round(time.time() * 1000), await log.begin(True))

    def compare(self, copies: dict[str, Path], full: Collection[str] = ()) -> list[str]:
        """What differs between this journal and each node's, brought up to the last entry, once all have stopped. ``full``: whose disk was,
        on which no history is written: those, and who was given another's copy, may lack some."""
        found: list[str] = []
        for node, copy in copies.items():
            brought = self.directory.with_name(f"{self.directory.name}-{node}")
            shutil.copytree(copy, brought, ignore=shutil.ignore_patterns("*.lock", "backups"))
            asyncio.run(self._bring_up(brought))
            history = node not in full and not (full and any(copy.glob("before-rebuild-*")))
            ours, theirs = _tables(self.directory, history), _tables(brought, history)
            for name in ours.keys() | theirs.keys():
                if ours.get(name) != theirs.get(name):
                    found.append(f"table {name} of node {node} {_difference(ours.get(name, []), theirs.get(name, []))}")
        return found

    async def _bring_up(self, directory: Path) -> None:
        async with PostgresLog(Access(self._database, "main")) as log:
            follower = await self._open(directory, log)
            while entries := await log.read(follower.at.number):
                await follower.apply(entries)
            await follower.close()


def _began_ms(opening: Entry) -> float:
    """When a leader began, by the first entry of its epoch, in the monotonic time of this machine."""
    batch, _ = unpack_batch(opening.batch)
    return batch.begun_ms - time.time() * 1000 + now_ms()


def _tables(directory: Path, history: bool) -> Tables:
    """All rows but those that each node has for itself: what left stays until its place in the file is given back."""
    own, apart = (_OWN_META, _APART) if history else ((*_OWN_META, *_HISTORY_META), (*_APART, *_HISTORY))
    connection: sqlite3.Connection = open_read_only(directory)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name not in apart}
        found["reference"] = connection.execute(f"SELECT * FROM reference r WHERE {THERE}").fetchall()
        found["meta"] = connection.execute(f"SELECT * FROM meta WHERE key NOT IN {own}").fetchall()
        return found
    finally:
        connection.close()


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    only = {"lacks": [row for row in ours if row not in theirs], "has besides": [row for row in theirs if row not in ours]}
    return "; ".join(f"{word} {len(rows)} rows, as {str(rows[0])[:200]}" for word, rows in only.items() if rows) or "has another order"
