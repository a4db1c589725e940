"""A journal that a cluster's log is replayed into, from nothing: what each leader had when the next one began; at the end what all have."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from homing.journal.follower import Follower
from homing.journal.options import JournalOptions
from homing.journal.read.queries import open_read_only
from homing.journal.replication.entry import Entry, unpack_batch
from homing.journal.replication.postgresql import Access, Member, PostgresLog
from homing.journal.upkeep.tombstones import THERE
from tests.faults.kill_loop.events import Snapshot, now_ms
from tests.faults.kill_loop.snapshots import take_snapshot

#: Of meta each node has these for itself.
_OWN_META: Final = "('clean_stop', 'commits', 'created_at_ms', 'reserved_up_to')"
Tables = dict[str, list[tuple[object, ...]]]


class Replay:
    """``entries``: how many it has; ``first``: the first of them that the log has yet; ``begun``: how often another leader began."""

    def __init__(self, directory: Path, database: str, ours: tuple[str, ...]) -> None:
        self.directory = directory
        self.entries = self.first = self.begun = 0
        self._database, self._ours = database, ours

    def go_on(self, name: str, orderly: bool = False, stopping: bool = False) -> list[Snapshot]:
        """All that is in the log; a snapshot of each leader's journal as the next one found it. ``orderly``, ``stopping``: the first's, as
        events.Snapshot has them."""
        found = asyncio.run(self._go_on(name))
        return [replace(each, orderly=orderly and not place, stopping=stopping and not place) for place, each in enumerate(found)]

    async def _go_on(self, name: str) -> list[Snapshot]:
        found: list[Snapshot] = []
        log = PostgresLog(Access(self._database, "main"), Member("replay", "", "{}"))
        try:
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
        finally:
            log.cut()
        self.begun += len(found)
        return found

    async def _open(self, directory: Path, log: PostgresLog) -> Follower:
        options = JournalOptions(disk_reserve_bytes=1 << 20)
        return await Follower.open(directory, options, lambda: round(time.time() * 1000), await log.begin(True))

    def compare(self, copies: Iterable[Path]) -> list[str]:
        """What differs between this journal and those of the nodes, brought up to the last entry, once all have stopped."""
        ours = _tables(self.directory)
        found: list[str] = []
        for copy in copies:
            brought = self.directory.with_name(f"{self.directory.name}-{copy.parent.name}")
            shutil.copytree(copy, brought, ignore=shutil.ignore_patterns("*.lock", "backups"))
            asyncio.run(self._bring_up(brought))
            theirs = _tables(brought)
            for name in ours.keys() | theirs.keys():
                if ours.get(name) != theirs.get(name):
                    found.append(f"table {name} of node {copy.parent.name} {_difference(ours.get(name, []), theirs.get(name, []))}")
        return found

    async def _bring_up(self, directory: Path) -> None:
        log = PostgresLog(Access(self._database, "main"), Member("", "", "{}"))
        try:
            follower = await self._open(directory, log)
            while entries := await log.read(follower.at.number):
                await follower.apply(entries)
            await follower.close()
        finally:
            log.cut()


def _began_ms(opening: Entry) -> float:
    """When a leader began, by the first entry of its epoch, in the monotonic time of this machine."""
    batch, _ = unpack_batch(opening.batch)
    return batch.begun_ms - time.time() * 1000 + now_ms()


def _tables(directory: Path) -> Tables:
    """All rows but those that each node has for itself: what left stays until its place in the file is given back."""
    connection: sqlite3.Connection = open_read_only(directory)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name not in ("meta", "gone")}
        found["reference"] = connection.execute(f"SELECT * FROM reference r WHERE {THERE}").fetchall()
        found["meta"] = connection.execute(f"SELECT * FROM meta WHERE key NOT IN {_OWN_META}").fetchall()
        return found
    finally:
        connection.close()


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    only = {"lacks": [row for row in ours if row not in theirs], "has besides": [row for row in theirs if row not in ours]}
    return "; ".join(f"{word} {len(rows)} rows, as {str(rows[0])[:200]}" for word, rows in only.items() if rows) or "has another order"
