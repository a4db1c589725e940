"""One flipped bit anywhere in a journal: a start serves exactly what was confirmed, or refuses, or sets aside and says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from homing.journal.contract import ReferenceRecord
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.check import check
from homing.journal.read.pages import Wanted, read_page
from homing.journal.store.packing import Damaged, check_counts, counts_checksum
from homing.journal.store.sqlite import PAGE_BYTES
from homing.journal.upkeep import tombstones
from tests.unit.journal_support import NOW_MS, OPTIONS, counted, message, opened, query, queue, send, settle, stored
from tests.unit.test_journal_paging import page

#: How many copies with one flipped bit are opened, of each kind.
FLIPS = int(os.environ.get("HOMING_FLIPS", "40"))
SEED = int(os.environ.get("HOMING_SEED", "1"))
NUMBER = 120
NAMES = ("homing.db", "homing.db-wal", "homing.db-commits")
Expected = list[ReferenceRecord]


async def fill(journal: Journal) -> None:
    """Messages that failed, alone and together, that are due later or never expire, and tombstones between them."""
    journal.batch.queue(queue())
    for n in range(1, NUMBER + 1):
        send(journal, n, of=message(n, body=b"%03d" % n * 40), expires_at_ms=NOW_MS + 9_000 + n if n % 5 == 0 else None)
        if n % 10 == 0:
            await journal.flush()
    journal.batch.change(range(1, 40), counted())
    journal.batch.change([50, 53, 56], counted(delivery_count=3, failed=2, due_at_ms=None))
    await journal.flush()
    with patch.object(tombstones, "far_apart", lambda ordered, gap=1: bool(ordered)):
        for n in range(3, NUMBER, 7):
            settle(journal, n)
        await journal.flush()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Expected]]:
    """A journal as a clean stop and as a kill leave it, and what is in it; in the one that a kill left small commits stand packed, in
    pages of the database where another program has folded the log into it."""
    return asyncio.run(_make(tmp_path_factory.mktemp("journals")))


async def _make(place: Path) -> dict[str, tuple[Path, Expected]]:
    async with opened(place / "stopped") as (journal, _):
        await fill(journal)
        with patch("homing.journal.journal._PACKED_S", 3600.0):
            for n in (1, 2, 4, 5):
                journal.batch.change([n], counted(delivery_count=n, failed=n))
                await stored(journal)
        for kind in ("killed", "folded"):
            (place / kind).mkdir()
            for name in NAMES:
                shutil.copy(place / "stopped" / name, place / kind / name)
    sqlite3.connect(place / "folded" / "homing.db").execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    assert query(place / "folded", "SELECT count(*) FROM packed_commit") == [(4,)]
    found = {}
    for name in ("stopped", "killed", "folded"):
        shutil.copytree(place / name, place / "read" / name)
        async with opened(place / "read" / name) as (_, recovered):
            found[name] = (place / name, recovered.references)
    assert found["stopped"][1] == found["killed"][1] == found["folded"][1]
    assert len(found["killed"][1]) == NUMBER - len(range(3, NUMBER, 7))
    return found


@pytest.mark.parametrize("kind", ["stopped", "killed", "folded"])
async def test_a_flipped_bit_is_found_or_does_no_harm(sources: dict[str, tuple[Path, Expected]], tmp_path: Path, kind: str) -> None:
    source, expected = sources[kind]
    chance = Random(f"{SEED}/{kind}")
    files = {name: (source / name).read_bytes() for name in NAMES if (source / name).exists() and (source / name).stat().st_size}
    # Where something stands: most of a small journal is empty.
    places = {name: [place for place, byte in enumerate(content) if byte] for name, content in files.items()}
    if kind == "folded":
        ((number,),) = query(source, "SELECT rootpage FROM sqlite_schema WHERE name = 'packed_commit'")
        places = {"homing.db": [place for place in places["homing.db"] if place // PAGE_BYTES == number - 1]}
    refused = 0
    for number in range(FLIPS):
        name = chance.choice(list(places))
        place, bit = chance.choice(places[name]), chance.randrange(8)
        directory = tmp_path / str(number)
        directory.mkdir(0o700)
        for each, content in files.items():
            (directory / each).write_bytes(content)
        with (directory / name).open("r+b") as file:
            file.seek(place)
            file.write(bytes([files[name][place] ^ 1 << bit]))
        found = await served(directory)
        assert found in (expected, "journal-damaged", "journal-foreign", "journal-newer"), (kind, number, name, place, bit)
        refused += found != expected
        shutil.rmtree(directory)
    assert refused > FLIPS // 20, "hardly any flip was found: is anything checked?"


async def served(directory: Path) -> Expected | str:
    """What a broker would serve, or the code by which the journal is refused. Since when a message is in its queue is only told."""
    try:
        async with opened(directory) as (_, recovered):
            return [reference._replace(entered_at_ms=NOW_MS) for reference in recovered.references]
    except JournalError as error:
        return error.code


COLUMNS = ("delivery_count", "failed", "assigned", "state", "due_at_ms", "expires_at_ms", "counts_checksum")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("sequence", [2, 50, 60, 61], ids=["failed-together", "failed-alone", "expires", "fresh"])
async def test_counts_and_times_that_changed_on_disk_are_found(
    sources: dict[str, tuple[Path, Expected]], tmp_path: Path, column: str, sequence: int
) -> None:
    """By a start that reads all, by a page, by the check, by the history; and one that may sets the row aside."""
    shutil.copytree(sources["stopped"][0], tmp_path / "data")
    ((value,),) = query(tmp_path / "data", f"SELECT {column} FROM reference WHERE sequence = ?", sequence)
    other = 1 if value is None else value ^ (1 << Random(f"{SEED}/{column}/{sequence}").randrange(40))
    with closing(sqlite3.connect(tmp_path / "data" / "homing.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE reference SET {column} = ? WHERE sequence = ?", (other, sequence))
    (problem, *_) = check(tmp_path / "data").problems
    assert f"row {sequence} of table reference" in problem
    with pytest.raises(JournalError, match=f"row {sequence} of table reference"):
        await Journal.open(tmp_path / "data", JournalOptions(**OPTIONS), NOW_MS)
    if column != "state":  # of many messages a start reads what stands apart
        async with opened(tmp_path / "data", load_limit=0):
            with (
                closing(sqlite3.connect(tmp_path / "data" / "homing.db")) as connection,
                pytest.raises(JournalError, match=f"row {sequence} of table reference"),
            ):
                read_page(connection, Wanted(1, "all", 4, after=sequence - 1))
    async with opened(tmp_path / "data", on_damage="quarantine") as (journal, recovered):
        assert sequence not in [record.sequence for record in recovered.references]
        assert len(recovered.references) == len(sources["stopped"][1]) - 1
        assert f"row {sequence} of table reference" in recovered.quarantined[0]
        assert (await page(journal, Wanted(1, "all", 4))).set_aside == []


@pytest.mark.parametrize("column", ["block", "bits", "checksum"])
async def test_what_is_gone_is_not_believed_when_it_changed_on_disk(
    sources: dict[str, tuple[Path, Expected]], tmp_path: Path, column: str
) -> None:
    directory = tmp_path / "data"
    shutil.copytree(sources["stopped"][0], directory)
    with closing(sqlite3.connect(directory / "homing.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE gone SET {column} = {column} + 16 WHERE block = 1")
    assert "gone fails its checksum" in check(directory).problems[0]
    with pytest.raises(JournalError, match="gone") as refused:
        await Journal.open(directory, JournalOptions(**OPTIONS), NOW_MS)
    assert refused.value.code == "journal-damaged"
    async with opened(directory, on_damage="quarantine") as (_, recovered):
        left = [record.sequence for record in recovered.references]
    if column != "block":
        assert left == [record.sequence for record in sources["stopped"][1] if record.sequence >> 5 != 1]
        assert len(recovered.quarantined) == 32


@pytest.mark.parametrize("changed", [None, 1.5, "1", b"1", 1 << 70, -1])
@pytest.mark.parametrize("place", range(3, 9))
@pytest.mark.parametrize("counts", [(0, 0, 0, 0, None, None), (2, 1, 2, 0, NOW_MS, None)], ids=["fresh", "changed"])
def test_what_is_no_number_any_more_fails_its_checksum(counts: tuple[int | None, ...], place: int, changed: object) -> None:
    checksum = counts_checksum(1, 4, 7, 2, 1, 2, 0, NOW_MS, None) if counts[0] else None
    row: list[object] = [1, 4, 7, *counts, checksum]
    check_counts(*row)
    if row[place] is not changed:
        row[place] = changed
        with pytest.raises(Damaged):
            check_counts(*row)
