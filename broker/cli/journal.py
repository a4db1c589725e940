"""``homing journal …``: the journal as files, with or without a broker that runs on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..answers.parts import Properties
from ..core.settings.units import counted
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, escape, print_json, progress_bar, stdout, write_privately
from .settings import data_directory

if TYPE_CHECKING:
    from homing.journal.export.export import ExportSummary

app = typer.Typer(help="Look into the journal, live or stopped.", no_args_is_help=True)

Data = Annotated[Path | None, typer.Option("--data", help="The data directory.", show_default="broker.yaml's")]


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to make; appears when it is whole.")],
    data: Data = None,
    since: Annotated[
        Path | None, typer.Option("--since", metavar="LAST", help="An earlier export: write only what changed, to be read with that one.")
    ] = None,
    with_tracebacks: Annotated[bool, typer.Option("--with-tracebacks", help="Include tracebacks; they may contain secrets.")] = False,
    wal_budget_mib: Annotated[
        int, typer.Option("--wal-budget", help="MiB by which a busy broker's write-ahead log may grow meanwhile.")
    ] = 768,
    url: Annotated[str | None, typer.Option("--url", help="Have this broker make it, and fetch it from there.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Write one snapshot of the journal as Parquet, for Spark and others. docs/export-schema.md describes it."""
    write_privately()
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", str(out)):
        raise CommandError(
            ExitCode.USAGE, f"{out} is no directory of this machine", "export to one, and copy it to where analyze is to read it"
        )
    if url is not None and (data is not None or since is not None):
        raise CommandError(ExitCode.USAGE, "--url asks a broker, which exports all that it has", "leave out --data and --since, or --url")
    with progress_bar(counted=False) as progress:
        task = progress.add_task("exporting", total=None)

        def show(table: str, rows: int) -> None:
            progress.update(task, description=f"exporting {table} {rows:,}")

        if url is None:
            summary = _exported(data, out, since, with_tracebacks, wal_budget_mib << 20, show)
        else:
            from .fetched import fetched

            summary = fetched(url, out, with_tracebacks, show)
    if as_json:
        print_json({"out": str(summary.out), "broker_id": summary.broker_id, "rows": summary.rows, "bytes": summary.bytes_written})
        return
    stdout.print(f"exported to [bold]{escape(str(summary.out))}[/]  [dim]{summary.bytes_written:,} bytes[/]")
    for table, rows in summary.rows.items():
        stdout.print(f"  {rows:>10,}  {table}")


def _exported(
    data: Path | None, out: Path, since: Path | None, with_tracebacks: bool, wal_budget_bytes: int, show: Callable[[str, int], None]
) -> ExportSummary:
    from homing.journal.export.export import export as export_journal

    from ..core.amqp.origin import ids_in

    place = data_directory(data)
    return export_journal(
        place, out, since=since, with_tracebacks=with_tracebacks, wal_budget_bytes=wal_budget_bytes, ids=ids_in, progress=show
    )


@app.command()
def backup(
    name: Annotated[str, typer.Argument(help="What to call it: a directory of that name is made under journal.backup-directory.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="The data directory of a broker that is stopped, or of a node of a cluster.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Copy the journal while the broker goes on, or, with --data, that of a stopped one, or of a node that stands by; checked, and
    there when it is whole."""
    write_privately()
    if data is None:
        from .client import call

        made = call(url, "backup", name=name)
    else:
        from homing.journal.backup.backup import make_of_directory

        from .settings import load_config

        made = make_of_directory(data, data / load_config(None).journal.backup_directory, name)
    _made("backup", made, as_json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="The directory of a backup.")],
    data: Annotated[Path, typer.Option("--data", help="The new data directory.")],
    as_json: Json = False,
) -> None:
    """Make a new data directory from a backup, checked, under a broker id of its own."""
    from homing.journal.backup.backup import restore as restore_journal

    write_privately()
    _made("restored to", restore_journal(source, data), as_json)


def _made(what: str, made: Properties, as_json: bool) -> None:
    if as_json:
        print_json(made)
    else:
        stdout.print(
            f"{what} [bold]{escape(made['path'])}[/]  [dim]{counted(made['messages'], 'message')}, {counted(made['bytes'], 'byte')}[/]"
        )


@app.command()
def check(
    data: Data = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not compare indexes with their tables.")] = False,
    as_json: Json = False,
) -> None:
    """Read every page, row and checksum of the journal and say what is wrong. Changes nothing."""
    from homing.journal.read.check import check as check_journal

    with progress_bar() as progress:
        task = progress.add_task("checking the journal", total=None)

        def show(step: str, done: int, total: int) -> None:
            progress.update(task, description=f"checking {step}", completed=done, total=total or None)

        report = check_journal(data_directory(data), show, quick=quick)
    if as_json:
        print_json({"ok": report.ok, "version": report.version, "problems": report.problems, "rows": report.rows})
    else:
        for problem in report.problems:
            stdout.print(f"[red]damaged[/]  {escape(problem)}")
        counts = ", ".join(counted(rows, table) for table, rows in report.rows.items())
        stdout.print(f"{'[red]problems found[/]' if report.problems else '[green]the journal is whole[/]'}  [dim]{counts}[/]")
    if report.problems:
        raise typer.Exit(ExitCode.JOURNAL)
