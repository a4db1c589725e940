"""``scripts/check-soak [--minutes 60]``: mixed load on a real broker, and whether anything of it grows that should not.

Exit code 1: a curve is not flat, the load failed, or the broker complained. Samples and a chart are kept in ``--out``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import homing
from tests.process import ROOT, Server
from tests.soak import load
from tests.soak.curves import Measure, Points, Verdict, judge, svg
from tests.soak.sampling import Sample, Sampler

_SAMPLES: Final = 120
_STOP_S: Final = 30.0


@dataclass
class Run:
    """What a soak saw: samples with their time in seconds since its begin, what the load did, what went wrong besides the curves."""

    samples: list[tuple[float, Sample]] = field(default_factory=list)
    load: str = ""
    problems: list[str] = field(default_factory=list)

    def curves(self) -> dict[Measure, Points]:
        measures = self.samples[0][1] if self.samples else {}
        return {measure: [(t, sample[measure]) for t, sample in self.samples] for measure in measures}

    def verdicts(self) -> list[Verdict]:
        return [judge(measure, points) for measure, points in self.curves().items()]


def soak(directory: Path, seconds: float, every_s: float, export_every_s: float) -> Run:
    """A broker of its own under load for so long, and until everything has happened once. Leaves its journal in ``directory``."""
    server = Server(directory / "broker", load.CONFIG)
    server.start()
    run = Run()
    arguments = [server.url, server.ready["amqp"].rpartition(":")[2], str(server.data), str(directory / "export"), str(export_every_s)]
    errors = (directory / "load.stderr").open("w+")
    command = [sys.executable, "-m", "tests.soak.load", *arguments]
    working = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        asyncio.run(_sample(run, server, working, seconds, every_s))
        run.load, _ = working.communicate(timeout=_STOP_S)
        if working.returncode:
            run.problems.append(f"the load failed:\n{(directory / 'load.stderr').read_text()[-3000:]}")
        if server.process is None or server.process.poll() is not None:
            run.problems.append("the broker ended by itself")
        elif code := server.stop():
            run.problems.append(f"the broker stopped with exit code {code}")
        log = server.log_path.read_text().splitlines()
        run.problems += [line for line in log if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]
    finally:
        if working.poll() is None:
            working.kill()
            working.communicate()
        errors.close()
        server.close()
    return run


async def _sample(run: Run, server: Server, working: subprocess.Popen[str], seconds: float, every_s: float) -> None:
    begin = time.monotonic()
    async with homing.connect(server.url) as connection:
        sampler = Sampler(server.pid, server.data, connection)
        happened = server.directory.with_name("each-has-happened")
        while ((now := time.monotonic() - begin) < seconds or not await asyncio.to_thread(happened.exists)) and working.poll() is None:
            run.samples.append((now, await sampler.take()))
            await asyncio.sleep(every_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/check-soak", description="Does anything grow under load that goes on and on?")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--out", type=Path, default=None, help="where samples.json and soak.svg go (a new temporary directory)")
    arguments = parser.parse_args()
    out = arguments.out or Path(tempfile.mkdtemp(prefix="homing-soak-"))
    out.mkdir(parents=True, exist_ok=True)
    seconds = arguments.minutes * 60
    run = soak(out, seconds, max(1.0, seconds / _SAMPLES), max(20.0, seconds / 20))
    console = Console()
    verdicts = run.verdicts() if len(run.samples) > 8 else []
    if not verdicts:
        run.problems.append(f"{len(run.samples)} samples say nothing")
    (out / "samples.json").write_text(json.dumps([{"t": t} | {m.name: value for m, value in sample.items()} for t, sample in run.samples]))
    if verdicts:
        (out / "soak.svg").write_text(svg(run.curves()))
    console.print(_table(verdicts))
    console.print(run.load.strip(), markup=False)
    found = [verdict.problem for verdict in verdicts if verdict.problem] + run.problems
    for problem in found:
        console.print(problem, style="red", markup=False)
    console.print(f"samples and chart in {out}", markup=False)
    return 1 if found else 0


def _table(verdicts: list[Verdict]) -> Table:
    table = Table(
        "measure", "first", "level", "last", "highest", "growth", "allowed", "", title="Is it flat? (growth over the second half)"
    )
    for verdict in verdicts:
        numbers = (verdict.first, verdict.level, verdict.last, verdict.highest, verdict.growth)
        allowed = "any" if verdict.measure.slack is None else f"{verdict.allowed:,.1f}"
        shown = [f"{number:,.1f}" for number in numbers]
        table.add_row(f"{verdict.measure.name} {verdict.measure.unit}", *shown, allowed, "[red]no[/]" if verdict.problem else "yes")
    return table


if __name__ == "__main__":
    sys.exit(main())
