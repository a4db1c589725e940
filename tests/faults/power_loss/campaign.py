"""Power cuts by the thousand: ``scripts/check-power-loss [--images N] [--seed N]``.

Rounds of a broker with clients and of a bare journal, each cut at places and with losses that the seed draws, half of the places
around syncs; and cuts during the recovery from a cut. Ends with 1 and keeps records and images where a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.power_loss import broker_workload, journal_workload
from tests.faults.power_loss.again import cut_again
from tests.faults.power_loss.cuts import Cut, Cutter, Summary, draw
from tests.faults.power_loss.disk import Loss
from tests.faults.power_loss.recording import Recording, build_recorder, compiler

_BROKER_IMAGES, _JOURNAL_IMAGES, _AGAIN_IMAGES = 100, 40, 10
_MESSAGES, _STEPS = 300, 80


class Campaign:
    def __init__(self, directory: Path, seed: int, images: int) -> None:
        self.summary = Summary()
        self.rounds = 0
        self._directory = directory
        self._recorder = build_recorder(directory)
        self._seed = seed
        self._images = images

    def run(self, advance: Callable[[], None]) -> None:
        while self.summary.images < self._images and not self.summary.problems:
            self.rounds += 1
            place = self._directory / f"round-{self.rounds:03}"
            chance = Random(f"{self._seed}/{self.rounds}")
            self._broker(place / "broker", chance, advance)
            self._journal(place, chance, advance)
            if not self.summary.problems:
                shutil.rmtree(place)

    def _left(self, count: int) -> int:
        return max(0, min(count, self._images - self.summary.images))

    def _broker(self, place: Path, chance: Random, advance: Callable[[], None]) -> None:
        recording = Recording(place, self._recorder)
        asyncio.run(broker_workload.run(place, recording, chance, _MESSAGES))
        cutter = Cutter(recording, place, chance)
        self.summary.add(cutter.play(draw(cutter.records, self._left(_BROKER_IMAGES), chance), advance))

    def _journal(self, place: Path, chance: Random, advance: Callable[[], None]) -> None:
        recording = Recording(place / "journal", self._recorder)
        journal_workload.record(recording, _STEPS, chance.getrandbits(32))
        cutter = Cutter(recording, place / "journal", chance)
        self.summary.add(cutter.play(draw(cutter.records, self._left(_JOURNAL_IMAGES), chance), advance))
        again = Cutter(recording, place, chance)
        files = again.files(Cut(chance.randint(len(again.records) // 4, len(again.records)), chance.choice([Loss.BLOCKS, Loss.TORN])))
        if files is None:
            self.summary.problems.append("the journal is not there, a quarter into its life")
            return
        self.summary.add(cut_again(files, place / "again", self._recorder, self._left(_AGAIN_IMAGES), chance, advance))


def _bar(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("power cuts"), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _report(console: Console, campaign: Campaign, elapsed_s: float, directory: Path) -> int:
    found = campaign.summary
    losses = ", ".join(f"{count} {loss}" for loss, count in sorted(found.by_loss.items()))
    console.print(f"{found.images} power cuts in {campaign.rounds} rounds, {elapsed_s:.0f} s: {losses}", highlight=False, soft_wrap=True)
    console.print(
        f"{found.promises:,} confirmed operations looked for, {found.messages:,} messages found;"
        f" {found.empty} cuts came before there was a journal, {found.packed} found commits packed",
        highlight=False,
        soft_wrap=True,
    )
    if not found.problems:
        shutil.rmtree(directory)
        console.print("Every promise was kept.", style="bold green")
        return 0
    console.print(f"{len(found.problems)} broken promises; records and images are kept in {directory}", style="bold red", soft_wrap=True)
    for problem in found.problems[:20]:
        console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="check-power-loss", description="Play power cuts over records of real runs.")
    parser.add_argument("--images", type=int, default=1500, help="how many cuts are played (default: 1500)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the draws of an earlier campaign")
    options = parser.parse_args()
    if compiler() is None:
        print("check-power-loss: no C compiler for the recorder of disk writes. Install gcc.", file=sys.stderr)
        return 2
    logging.disable(logging.ERROR)  # clients that tell of a lost broker, as they should
    seed = secrets.randbits(32) if options.seed is None else options.seed
    console = Console()
    console.print(f"seed {seed}", highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="homing-power-loss-"))
    campaign, started = Campaign(directory, seed, options.images), time.monotonic()
    with _bar(console) as bar:
        task = bar.add_task("", total=options.images)
        campaign.run(lambda: bar.advance(task))
    return _report(console, campaign, time.monotonic() - started, directory)


if __name__ == "__main__":
    sys.exit(main())
