"""``homing analyze``: the Spark report of an export."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from .output import ExitCode, Json, SparkMaster, SparkMemory, escape, note, print_json, progress_bar, stdout, write_privately
from .times import in_utc

if TYPE_CHECKING:
    from homing.analytics.commands.analyze import AnalysisSummary


class OnDamage(Enum):
    REFUSE = "refuse"
    SKIP = "skip"


def analyze(
    dump: Annotated[list[str], typer.Argument(help="What homing journal export wrote, or directories of it; what overlaps counts once.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The directory for the report.")],
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this table, and no page; may be given again.")] = None,
    fail_if: Annotated[
        list[str] | None, typer.Option("--fail-if", help="Such as 'dead_letter_rate(orders) > 1%': exit code 7. May be given again.")
    ] = None,
    master: SparkMaster = None,
    on_damage: Annotated[
        OnDamage, typer.Option("--on-damage", help="Damaged or foreign files: refuse, or skip and name them.")
    ] = OnDamage.REFUSE,
    store: Annotated[str | None, typer.Option("--store", help="Keep what was merged here; the next run reads only new exports.")] = None,
    memory: SparkMemory = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only what happened since, such as 24h or 2026-11-21T08:30, UTC; of --compare the second period."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only what happened before; of --compare the first period.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Of two periods: what got better, what worse.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's own pages, on loopback, while it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Attempts and time to success, dead letters by cause, retry load: as Parquet, CSV and one page to look at."""
    from homing.analytics.commands.analyze import analyze as run_analysis
    from homing.analytics.commands.analyze import shown_progress
    from homing.analytics.commands.compare import compare_periods

    write_privately()
    since, until = (text and in_utc(text) for text in (since, until))
    if compare:
        with progress_bar(counted=False) as waiting:
            waiting.add_task("comparing")
            compared = compare_periods(dump, out, master, skip=on_damage is OnDamage.SKIP, memory=memory, since=since, until=until)
        if as_json:
            print_json({"out": str(out), "report": compared})
        else:
            stdout.print(f"report: [bold]{escape(compared)}[/]")
        return
    with shown_progress() as progress:
        summary = run_analysis(
            dump,
            out,
            master,
            ui=ui,
            progress=progress,
            on_damage=on_damage.value,
            store=store,
            memory=memory,
            only=only or (),
            fail_if=fail_if or (),
            since=since,
            until=until,
        )
    _show(summary, as_json)
    if summary.broken:
        raise typer.Exit(ExitCode.LIMIT)


def _show(summary: AnalysisSummary, as_json: bool) -> None:
    from homing.analytics.commands.analyze import limit_lines
    from homing.analytics.input.export import ADD_AN_EXPORT

    if as_json:
        skipped = [{"path": each.path, "code": each.code, "message": each.message} for each in summary.skipped]
        found = [each.as_json() for each in summary.findings]
        document = {
            "out": summary.out,
            "report": summary.report,
            "rows": summary.rows,
            "findings": found,
            "limits": [each.as_json() for each in summary.limits],
        }
        print_json(document | {"skipped": skipped, "archives_only": summary.archives_only})
    else:
        for each in summary.skipped:
            note(f"left out: {each.path}: {each.message}")
        if summary.archives_only:
            note(f"archives alone: they hold what was removed, and nothing else. {ADD_AN_EXPORT}")
        for line in limit_lines(summary):
            note(line)
        stdout.print(f"report: [bold]{escape(summary.report or summary.out)}[/]")
