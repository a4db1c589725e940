"""``scripts/check-faults [--rounds 50] [--seed N] [--paged] [--keep DIR]``: the kill loop at length, with a summary.

Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.kill_loop.accounting import Account
from tests.faults.kill_loop.checker import Kind
from tests.faults.kill_loop.fanning import Fanning
from tests.faults.kill_loop.loop import KillLoop, Options, Result
from tests.faults.kill_loop.stomping import Stomping

_MOST_SHOWN: Final = 40
#: For so many brokers killed at random moments one is killed in the middle of a fan-out.
_FANNING_PART: Final = 5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/check-faults", description="Kill brokers under working clients and see what they kept.")
    parser.add_argument("--rounds", type=int, default=50, help="how many brokers are killed (50)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the same decisions (processes keep their own time, though)")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second of each producer (100)")
    parser.add_argument("--least-ms", type=int, default=50, help="the shortest life of a broker (50)")
    parser.add_argument("--most-ms", type=int, default=1500, help="the longest (1500)")
    parser.add_argument("--paged", action="store_true", help="windows so small that every queue is read back from disk all the time")
    parser.add_argument("--keep", type=Path, default=None, help="keep logs, journal and export in this directory; it must not exist")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    console = Console()
    options = Options(
        rounds=arguments.rounds,
        seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        producers=arguments.producers,
        consumers=arguments.consumers,
        rate_per_s=arguments.rate,
        least_ms=arguments.least_ms,
        most_ms=arguments.most_ms,
        paged=arguments.paged,
    )
    # Also when a run ends by an exception it can be repeated and looked into.
    console.print(f"[bold]seed {options.seed}[/]  " + "  ".join(f"{name}={value}" for name, value in asdict(options).items()))
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="homing-faults-"))
    directory.mkdir(parents=True, exist_ok=arguments.keep is None)
    console.print(f"logs, journal and export in {directory}", markup=False)
    result = _run(directory, options, console)
    _show(result, console)
    fanning = Fanning(directory / "fanning", options.seed)
    fanning.run(max(1, options.rounds // _FANNING_PART))
    console.print(f"{fanning.kills} more were killed handing messages to {fanning.queues} queues, {fanning.within} of them halfway")
    stomping = Stomping(directory / "stomping", options.seed)
    stomping.run(max(1, options.rounds // _FANNING_PART))
    console.print(f"{stomping.kills} more were killed under a STOMP client, to whom {len(stomping.confirmed)} receipts of messages came")
    for text in [*fanning.violations, *stomping.violations][:_MOST_SHOWN]:
        console.print(f"  {text}", markup=False)
    broken = len(result.violations) + len(fanning.violations) + len(stomping.violations)
    if broken:
        console.print(f"[red]{broken} promises were broken[/]; see {directory}")
    elif arguments.keep is None:
        shutil.rmtree(directory)
    return 1 if broken else 0


def _run(directory: Path, options: Options, console: Console) -> Result:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("rounds", total=options.rounds)
        return KillLoop(directory, options, lambda step, done: progress.update(task, description=step, completed=done)).run()


def _show(result: Result, console: Console) -> None:
    figures = Table(title="What happened", show_header=False)
    figures.add_row("brokers killed", str(result.options.rounds))
    for name, value in result.figures.items():
        figures.add_row(name, str(value))
    console.print(figures)
    if result.account is not None:
        console.print(_sums("The account", result.account))
    if result.moment is not None:
        console.print(_sums(f"The export under load ({result.moment.facts} rows say when it was)", result.moment.account))
    promises = Table("broken promise", "times", title="The referee")
    for kind in Kind:
        count = sum(violation.kind is kind for violation in result.violations)
        promises.add_row(str(kind), f"[red]{count}[/]" if count else "0")
    console.print(promises)
    for violation in result.violations[:_MOST_SHOWN]:
        console.print(f"  {violation}", markup=False)
    if len(result.violations) > _MOST_SHOWN:
        console.print(f"  … and {len(result.violations) - _MOST_SHOWN} more")


def _sums(title: str, account: Account) -> Table:
    sums = Table("", "export", "clients", title=title)
    for word, counted in account.counted.items():
        sums.add_row(word.replace("_", " "), str(account.exported[word]), str(counted))
    sums.add_row("redriven", str(account.exported["redriven"]), "")
    return sums


if __name__ == "__main__":
    sys.exit(main())
