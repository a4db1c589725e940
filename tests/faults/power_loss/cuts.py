"""Power cuts at places of a record: build what the disk would hold, open it with the real journal, and hold it to the claims."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from homing.journal.commit.packed_commits import there_are
from homing.journal.contract import Recovered
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.check import check
from homing.journal.store.directory import LAST_COMMIT_NAME
from tests.faults.power_loss.claims import Account, Fact
from tests.faults.power_loss.disk import Disk, Loss
from tests.faults.power_loss.recording import Record, Recording

DATABASE = "homing.db"
#: What is read back; the lock and the reserve hold nothing.
_KEPT = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-journal", LAST_COMMIT_NAME)
_OPTIONS = JournalOptions(disk_reserve_bytes=0, id_block=64)


class Cut(NamedTuple):
    """The power fails when ``place`` records have happened."""

    place: int
    loss: Loss


@dataclass(slots=True)
class Summary:
    images: int = 0
    by_loss: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    #: Confirmed operations, added up over all images.
    promises: int = 0
    #: Images without any journal in them: cut before anything was on disk.
    empty: int = 0
    #: Images with small commits that stand packed.
    packed: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, cut: Cut, promises: int, problems: list[str]) -> None:
        self.images += 1
        self.by_loss[cut.loss.value] += 1
        self.promises += promises
        self.problems += [f"cut at {cut.place}, {cut.loss.value}: {problem}" for problem in problems]

    def add(self, other: Summary) -> None:
        self.images += other.images
        self.by_loss += other.by_loss
        self.messages += other.messages
        self.promises += other.promises
        self.empty += other.empty
        self.packed += other.packed
        self.problems += other.problems


def boundaries(records: Sequence[Record]) -> list[int]:
    """Places right before, within and right after each sync, and one step further on either side."""
    syncs = [place for place, record in enumerate(records) if record.kind in "se"]
    return sorted({place + step for place in syncs for step in (-1, 0, 1, 2) if 0 <= place + step <= len(records)})


def draw(records: Sequence[Record], count: int, chance: Random) -> list[Cut]:
    """``count`` cuts: half at sync boundaries, half anywhere."""
    near = boundaries(records)
    places = [chance.choice(near) if number % 2 else chance.randint(0, len(records)) for number in range(count)]
    losses = list(Loss)
    return [Cut(place, losses[number % len(losses)]) for number, place in enumerate(sorted(places))]


class Cutter:
    """Plays cuts of one record in the order of their places; what it found adds up in ``summary``.

    ``directory`` is where images are opened; an image with a problem stays there. ``disk`` and ``account``: how things stood
    before the record began, if anything did.
    """

    def __init__(
        self, recording: Recording, directory: Path, chance: Random, disk: Disk | None = None, account: Account | None = None
    ) -> None:
        self.records = recording.read()
        self.summary = Summary()
        self._disk = disk or Disk(recording.root_inode)
        self._account = account or Account()
        self._directory = directory
        self._chance = chance
        self._played = 0

    def play(self, cuts: Iterable[Cut], advance: Callable[[], None] = lambda: None) -> Summary:
        for cut in sorted(cuts, key=lambda cut: cut.place):
            image = self._directory / f"image-{self.summary.images:05}"
            problems = _judge(image, self.files(cut), self._account, self.summary, self._chance)
            self.summary.count(cut, len(self._account.confirmed), [f"{problem} [{image}]" for problem in problems])
            if not problems and image.exists():
                shutil.rmtree(image)
            advance()
        return self.summary

    def files(self, cut: Cut) -> dict[str, bytes] | None:
        """What the disk holds after this cut. Never of a place before an earlier one."""
        for record in self.records[self._played : cut.place]:
            self._disk.apply(record)
            if record.kind == "m":
                self._account.apply(record.claim)
        self._played = cut.place
        return self._disk.after("data", cut.loss, self._chance)


def _judge(image: Path, files: dict[str, bytes] | None, account: Account, summary: Summary, chance: Random) -> list[str]:
    if files is None or DATABASE not in files:
        summary.empty += 1
        return [f"the journal is not there, and {len(account.confirmed)} operations were confirmed"] if account.confirmed else []
    summary.packed += _packed(image, files)
    image.mkdir(mode=0o700)
    write_image(image, files)
    if chance.random() < 0.5:
        # What the last run left of SQLite's shared memory is worth nothing after a crash, whatever it says.
        (image / f"{DATABASE}-shm").write_bytes(chance.randbytes(32_768))
    # An operator may look before the broker starts; half of the time nobody does.
    problems = []
    try:
        if account.confirmed and chance.random() < 0.5:
            problems += _checked(image)
        problems += asyncio.run(_opened(image, account, summary))
        problems += _checked(image)
    except JournalError as error:
        problems.append(f"it does not open: {error}")
    return problems


def _packed(image: Path, files: dict[str, bytes]) -> bool:
    """Looked up in a copy, as whoever opens a journal may change its files."""
    image.mkdir(mode=0o700)
    write_image(image, files)
    with closing(sqlite3.connect(image / DATABASE)) as connection:
        found = there_are(connection)
    shutil.rmtree(image)
    return found


def write_image(image: Path, files: dict[str, bytes]) -> None:
    for name in _KEPT:
        if name in files:
            (image / name).write_bytes(files[name])


def _checked(image: Path) -> list[str]:
    return [f"journal check says: {problem}" for problem in check(image).problems]


async def _opened(image: Path, account: Account, summary: Summary) -> list[str]:
    journal, recovered = await Journal.open(image, _OPTIONS, 0)
    try:
        facts = facts_of(recovered)
        summary.messages += len(facts)
        problems = account.judge(facts, recovered.committed, journal.next_id())
    finally:
        await journal.close()
    return problems


def facts_of(recovered: Recovered) -> list[Fact]:
    found = []
    names = {queue.queue_id: queue.name for queue in recovered.queues}
    for reference in recovered.references:
        queue = names[reference.queue_id]
        key = reference.message.body.partition(b"|")[0].decode()
        # One message in several queues from the start is one key for each of them.
        found.append(Fact(f"{key}@{queue}" if key.startswith("fan") else key, queue, reference.delivery_count))
    return found
