"""A node's copy that is made anew from another's: what is on its way, what takes whose place, and a death anywhere between."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from homing.broker.process.cluster import rebuilding
from homing.broker.process.cluster.rebuilding import Giving, fetch
from homing.journal.backup.backup import Backups, make_of_directory, restore
from homing.journal.errors import JournalError
from homing.journal.follower import Follower
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.pages import Wanted as Reading
from homing.journal.rebuild import put_in_place, rebuild
from homing.journal.replication.copies import Part, Wanted
from homing.journal.replication.leader import Leader
from homing.journal.replication.log import LogAway
from homing.journal.store.directory import sync_names
from tests.model.log_in_memory import NOWHERE, LogInMemory
from tests.unit.journal_inside import opened_inside
from tests.unit.journal_support import NOW_MS, OPTIONS, change, query, queue, send, sequences

_OPTIONS = JournalOptions(**OPTIONS)


async def copy_with(directory: Path, *numbers: int) -> Path:
    """A node's directory, with these messages in it."""
    log = LogInMemory(Random(4))
    await (await follower(directory)).close()
    journal, _ = await Journal.open(directory, _OPTIONS, NOW_MS, Leader(log, 0, NOWHERE))
    journal.batch.queue(queue())
    for number in numbers:
        send(journal, number)
    await journal.flush()
    await journal.close()
    return directory


async def follower(directory: Path) -> Follower:
    return await Follower.open(directory, _OPTIONS, lambda: NOW_MS, "cell")


def kept(directory: Path) -> Path:
    """What was there before."""
    (found,) = directory.glob("before-rebuild-*")
    return found


async def test_another_nodes_copy_takes_the_place_of_what_is_kept_aside(tmp_path: Path) -> None:
    mine, other = await copy_with(tmp_path / "mine", 1, 2), await copy_with(tmp_path / "other", 3)
    make_of_directory(other, tmp_path, "backup")

    async def give(path: Path) -> None:
        shutil.copyfile(tmp_path / "backup" / "homing.db", path)

    async def give_half(path: Path) -> None:
        await give(path)
        os.truncate(path, 3 << 14)

    for wrong, broker_id in ((give_half, "cell"), (give, "another")):
        with pytest.raises(JournalError, match="journal-unusable"):
            await rebuild(mine, broker_id, wrong)
        assert sequences(mine) == [1, 2]
    await rebuild(mine, "cell", give)
    await (await follower(mine)).close()
    assert sequences(mine) == [3]
    restore(kept(mine), tmp_path / "restored")
    assert sequences(tmp_path / "restored") == [1, 2]
    os.utime(kept(mine), (0, 0))
    await (await follower(mine)).close()
    assert set(os.listdir(mine)) == {"homing.db", "homing.db-commits", "homing.lock", "homing.reserve"}


async def test_after_a_death_at_any_step_the_next_start_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await copy_with(tmp_path / "mine", 1, 2)
    await copy_with(tmp_path / "other", 3)
    steps = 0

    def dying(function: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise KeyboardInterrupt
            return function(*arguments, **named)

        return step

    for name in ("rename", "utime"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree))
    monkeypatch.setattr("homing.journal.rebuild.sync_names", dying(sync_names))
    monkeypatch.setattr(Path, "mkdir", dying(Path.mkdir))
    for death in range(1, 100):
        place = Path(shutil.copytree(tmp_path / "mine", tmp_path / "node" / str(death)))
        (place / "homing.damaged").touch()
        shutil.copytree(tmp_path / "other", place / "rebuilt", ignore=lambda _, names: [name for name in names if name != "homing.db"])
        steps = death
        with suppress(KeyboardInterrupt):
            put_in_place(place)
        ended, steps = steps, 0
        put_in_place(place)
        assert sequences(place) == [3]
        assert "rebuilt" not in os.listdir(place)
        assert set(os.listdir(kept(place))) == {"homing.db", "homing.db-commits", "homing.damaged"}
        assert sequences(kept(place)) == [1, 2]
        if ended > 0:
            break
    assert death > 8


async def test_a_leader_whose_copy_is_damaged_does_not_go_on_with_it_after_its_end(tmp_path: Path) -> None:
    await copy_with(tmp_path, 1, 2)
    with closing(sqlite3.connect(tmp_path / "homing.db")) as connection:
        connection.execute("UPDATE reference SET message_blob = x'00' WHERE sequence = 1")
        connection.commit()
    await (await follower(tmp_path)).close()
    quarantining = JournalOptions(**OPTIONS, on_damage="quarantine")
    with pytest.raises(JournalError, match="journal-copy-damaged") as raised:
        await Journal.open(tmp_path, quarantining, NOW_MS, Leader(LogInMemory(Random(1)), 0, NOWHERE))
    assert raised.value.exit_code == 74
    with pytest.raises(JournalError, match=r"journal-copy-damaged: .* before this start"):
        await follower(tmp_path)


async def test_a_leader_that_reads_a_damaged_row_ends_and_sets_nothing_aside(tmp_path: Path) -> None:
    await copy_with(tmp_path, 1, 2)
    quarantining = JournalOptions(**OPTIONS, on_damage="quarantine", load_limit=1)
    journal, _ = await Journal.open(tmp_path, quarantining, NOW_MS, Leader(LogInMemory(Random(1)), 0, NOWHERE))
    change(tmp_path, "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 2")
    journal.read(Reading(1, "ready", 4), lambda found: None, lambda error: None)
    with pytest.raises(JournalError, match="journal-copy-damaged"):
        await journal.failed
    await journal.close()
    assert query(tmp_path, "SELECT * FROM quarantine") == []


class CopiesInMemory:
    """One for all; as ``me``. It answers late or not at all, and forgets everything at times."""

    rows: dict[str, dict[str, Any]]

    def __init__(self, rng: Random, me: str = "") -> None:
        self.rng, self.me, self.rows = rng, me, {}
        self.trouble = 0.1

    def of(self, node: str) -> CopiesInMemory:
        other = CopiesInMemory(self.rng, node)
        other.rows = self.rows
        return other

    async def _turns(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)
        if self.rng.random() < self.trouble:
            raise LogAway
        if self.rng.random() < self.trouble / 10:
            self.rows.clear()

    async def want(self, place: int) -> None:
        row = self.rows.setdefault(self.me, {"holds": None})
        row |= {"place": place, "part": None}
        await self._turns()

    async def part(self, place: int) -> Part | None:
        await self._turns()
        row = self.rows.get(self.me)
        return None if row is None or row["place"] != place else row["part"]

    async def end(self) -> None:
        self.rows.pop(self.me, None)

    async def wanted(self) -> list[Wanted]:
        await self._turns()
        return [Wanted(node, "1", row["place"], row["part"] is None) for node, row in self.rows.items()]

    async def hold(self, to: Wanted, number: int) -> None:
        await self._turns()
        if to.node in self.rows:
            self.rows[to.node]["holds"] = number

    async def give(self, to: Wanted, part: Part, number: int) -> None:
        await self._turns()
        row = self.rows.get(to.node)
        if row is not None and row["place"] == to.place:
            row |= {"part": part, "holds": number}
        await self._turns()


async def test_a_copy_arrives_whole_whatever_becomes_of_its_parts_and_of_whoever_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes ask; who leads ends at times, and the next one's journal is another."""
    monkeypatch.setattr(rebuilding, "_PART_BYTES", 1000)
    loop, rng, lives = asyncio.get_running_loop(), Random(20261128), 0
    copies = CopiesInMemory(rng)
    made: list[bytes] = []

    class InMemory(Backups):
        def copy(self, target: Path) -> asyncio.Task[dict[str, Any]]:
            return loop.create_task(self._write(target))

        async def _write(self, target: Path) -> dict[str, Any]:
            if rng.random() < 0.2:
                raise JournalError("backup-running", "Another backup is being made.", "Wait.")
            os.mkdir(target)
            made.append(rng.randbytes(rng.randrange(8_000, 20_000)))
            (target / "homing.db").write_bytes(made[-1])
            return {"bytes": len(made[-1])}

    async def pause(_: float) -> None:
        for _ in range(rng.randrange(1, 5)):
            await asyncio.sleep(0)

    async def node(name: str) -> bytes:
        await fetch(copies.of(name), tmp_path / name, pause)
        assert copies.rows.get(name) is None or copies.rows[name]["holds"] == 7
        return (tmp_path / name).read_bytes()

    for _ in range(20):
        given = len(made)
        fetching = [asyncio.create_task(node(name)) for name in "bc"]
        while not all(each.done() for each in fetching):
            lives += 1
            backups = InMemory.__new__(InMemory)
            giving = asyncio.create_task(Giving(copies.of("a"), backups, tmp_path / f"given{lives}", lambda: 7, pause).run())
            await asyncio.wait({*fetching, giving}, timeout=rng.uniform(0.001, 0.05), return_when=asyncio.ALL_COMPLETED)
            giving.cancel()
            with suppress(asyncio.CancelledError):
                await giving
            assert not (tmp_path / f"given{lives}").exists()
        for each in fetching:
            assert each.result() in made[given:]
        copies.rows.clear()
    assert lives > 20


async def test_a_backup_that_would_fill_the_disk_is_not_begun(tmp_path: Path) -> None:
    async with opened_inside(tmp_path / "data", disk_reserve_bytes=0) as (_, inside):
        place = tmp_path / "data" / "backups"
        with pytest.raises(JournalError, match="backup-no-room"):
            await Backups(tmp_path / "data", place, inside.store.run, inside.writer.backup, 1 << 60).make("one")
        assert not list((tmp_path / "data" / "backups").iterdir())
