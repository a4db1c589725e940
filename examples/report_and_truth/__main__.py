"""``python -m examples.report_and_truth``: runs the workload, makes the report, and prints what the clients know beside what it says.

Leaves the page, and beside it ``truth.csv``: every figure of every table as the clients know it and as the report has it, in
``build/report-and-truth/report``. Exits 1 where any differs.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.report_and_truth.workload import MESSAGES, workload
from homing.analytics.commands.analyze import analyze
from homing.journal.export.export import export
from tests.truth.compared import Figure, compared
from tests.truth.play import Play

ROOT = Path(__file__).parents[2]
#: What is printed; everything is in truth.csv.
SHOWN = {
    "overview": ("sent", "succeeded", "first_try", "failed", "dead_lettered", "expired", "dropped", "came_home", "given_up", "waiting"),
    "time_to_success": ("messages", "p50_ms", "p90_ms", "max_ms"),
    "dead_letters": ("deaths", "remaining"),
    "consumers": ("deliveries", "failed"),
    "outages": ("failures", "messages"),
    "flow": ("messages",),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.report_and_truth", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "report-and-truth")
    given = parser.parse_args()
    out: Path = given.out
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    play = Play(workload(given.messages), out / "broker")
    try:
        asyncio.run(play.run())
        export(play.server.data, out / "export")
    finally:
        play.server.close()
    print(f"{len(play.account.ids):,} messages, {len(play.account.entries):,} queue entries, {time.monotonic() - began:.0f} s")
    report = out / "report"
    analyze(out / "export", report)
    figures = compared([play.account], [[out / "export"]], report)
    show(figures)
    with (report / "truth.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("table", "row", "figure", "clients", "report", "agree"))
        rows.writerows((each.table, each.row, each.name, each.true, each.reported, each.agrees) for each in figures)
    wrong = [each for each in figures if not each.agrees]
    print(f"{len(figures):,} figures compared, {len(wrong)} differ. The page: {report / 'report.html'}")
    for each in wrong:
        print(f"differs: {each}", file=sys.stderr)
    return 1 if wrong else 0


def show(figures: list[Figure]) -> None:
    console = Console(highlight=False)
    for name, columns in SHOWN.items():
        table = Table(title=name, title_justify="left")
        for heading in ("", "figure", "clients", "report"):
            table.add_column(heading)
        for each in figures:
            if each.table == name and each.name in columns:
                table.add_row(" ".join(str(part) for part in each.row if part is not None), each.name, str(each.true), str(each.reported))
        console.print(table)


sys.exit(main())
