"""The power fails again while the broker recovers from the first time: whatever the first start found, every later one must find.

``python -m tests.faults.power_loss.again DIRECTORY`` opens a journal, does nothing with it, and is gone without closing it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from homing.journal.journal import Journal, JournalOptions
from tests.faults.power_loss.claims import Account
from tests.faults.power_loss.cuts import Cut, Cutter, Summary, draw, facts_of, write_image
from tests.faults.power_loss.disk import Disk
from tests.faults.power_loss.recording import ROOT, Recording

_OPTIONS = JournalOptions(disk_reserve_bytes=0, id_block=64)


def cut_again(
    files: dict[str, bytes], directory: Path, recorder: Path, count: int, chance: Random, advance: Callable[[], None] = lambda: None
) -> Summary:
    """Open what the first cut left, under the recorder, and cut that ``count`` times."""
    recording = Recording(directory, recorder)
    recording.data.mkdir(mode=0o700)
    write_image(recording.data, files)
    there = {path.name: (path.stat().st_ino, path.read_bytes()) for path in recording.data.iterdir()}
    disk = Disk(recording.root_inode)
    disk.hold("data", recording.data.stat().st_ino, there)
    undisturbed = directory / "undisturbed"
    undisturbed.mkdir(mode=0o700)
    write_image(undisturbed, files)
    account = asyncio.run(_found(undisturbed))
    command = [sys.executable, "-m", __name__, str(recording.data)]
    subprocess.run(command, cwd=ROOT, env=recording.environment(), check=True, timeout=50)
    cutter = Cutter(recording, directory, chance, disk, account)
    cuts: list[Cut] = draw(cutter.records, count, chance)
    return cutter.play(cuts, advance)


async def _found(place: Path) -> Account:
    """What a start finds that nothing disturbs: from then on it is as good as confirmed."""
    journal, recovered = await Journal.open(place, _OPTIONS, 0)
    try:
        account = Account()
        for number, fact in enumerate(facts_of(recovered), 1):
            account.apply({"begin": number, "sends": [fact.key], "counts": {fact.key: fact.delivery_count}})
            account.apply({"done": number})
        return account
    finally:
        await journal.close()


async def _open(directory: Path) -> None:
    await Journal.open(directory, _OPTIONS, 0)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_open(Path(sys.argv[1])))
