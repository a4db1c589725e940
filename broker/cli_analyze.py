"""``homing analyze``: the Spark report of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from broker.cli_output import Json, print_json, progress_bar, stdout


def analyze(
    dump: Annotated[Path, typer.Argument(help="What ``homing journal export`` wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory for the report.")],
    master: Annotated[str | None, typer.Option("--master", help="The Spark to use.", show_default="this machine")] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's own pages, on loopback, while it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Attempts and time to success, dead letters by cause, retry load: as Parquet, CSV and one page to look at."""
    from analytics.job import analyze as run_analysis

    with progress_bar() as progress:
        task = progress.add_task("starting Spark", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        summary = run_analysis(dump, out, master, ui=ui, progress=show)
    if as_json:
        print_json({"out": summary.out, "report": summary.report, "rows": summary.rows})
    else:
        stdout.print(f"report: [bold]{escape(summary.report)}[/]")
