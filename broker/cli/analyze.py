"""``homing analyze``: the Spark report of an export."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from .output import Json, SparkMaster, SparkMemory, escape, note, print_json, progress_bar, stdout, write_privately


class OnDamage(Enum):
    REFUSE = "refuse"
    SKIP = "skip"


def analyze(
    dump: Annotated[list[str], typer.Argument(help="What homing journal export wrote, or directories of it; what overlaps counts once.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The directory for the report.")],
    master: SparkMaster = None,
    on_damage: Annotated[
        OnDamage, typer.Option("--on-damage", help="Damaged or foreign files: refuse, or skip and name them.")
    ] = OnDamage.REFUSE,
    store: Annotated[str | None, typer.Option("--store", help="Keep what was merged here; the next run reads only new exports.")] = None,
    memory: SparkMemory = None,
    compare: Annotated[bool, typer.Option("--compare", help="Of two periods: what got better, what worse.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's own pages, on loopback, while it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Attempts and time to success, dead letters by cause, retry load: as Parquet, CSV and one page to look at."""
    from homing.analytics.commands.analyze import analyze as run_analysis
    from homing.analytics.commands.compare import compare_periods

    write_privately()
    if compare:
        with progress_bar(counted=False) as waiting:
            waiting.add_task("comparing")
            compared = compare_periods(dump, out, master, skip=on_damage is OnDamage.SKIP, memory=memory)
        if as_json:
            print_json({"out": str(out), "report": compared})
        else:
            stdout.print(f"report: [bold]{escape(compared)}[/]")
        return
    with progress_bar() as progress:
        task = progress.add_task("starting Spark", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        summary = run_analysis(dump, out, master, ui=ui, progress=show, on_damage=on_damage.value, store=store, memory=memory)
    if as_json:
        skipped = [{"path": each.path, "code": each.code, "message": each.message} for each in summary.skipped]
        print_json({"out": summary.out, "report": summary.report, "rows": summary.rows, "skipped": skipped})
    else:
        for each in summary.skipped:
            note(f"left out: {each.path}: {each.message}")
        stdout.print(f"report: [bold]{escape(summary.report)}[/]")
