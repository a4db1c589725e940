"""How the demo looks on a terminal; on anything else the same without colours and motion."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from examples.demo.account import Check, ClientAccount, ExportAccount
from examples.demo.service import FilingService


def title(console: Console, messages: int) -> None:
    text = f"[bold]{messages} messages[/], handlers that really fail, a service that is down, a killed consumer, a killed broker.\n"
    console.print(Panel(text + "At the end every message must be accounted for.", title="[bold]Homing[/]", title_align="left", width=96))


def step(console: Console, what: str, reported: str) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=20, style="bold cyan", justify="right")
    grid.add_column(max_width=100)
    grid.add_row(what, escape(reported))
    console.print(grid)


def path(directory: Path) -> str:
    try:
        return str(directory.relative_to(Path.cwd()))
    except ValueError:
        return str(directory)


def progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def account(console: Console, clients: ClientAccount, export: ExportAccount, dead: dict[int, int], service: FilingService) -> None:
    console.rule("[bold]The account[/]", align="left", style="dim")
    table = Table(box=box.SIMPLE_HEAD, header_style="dim")
    table.add_column("")
    table.add_column("counted by the clients", justify="right")
    table.add_column("from the export alone", justify="right")
    table.add_row("sent and confirmed", f"{len(clients.sent):,}", f"{export.sent:,}", style="bold")
    table.add_row("succeeded", f"{len(clients.succeeded):,}", f"{export.succeeded:,}", style="green")
    table.add_row("dead-lettered", f"{len(dead):,}", f"{export.dead_lettered:,}", style="red")
    table.add_row("expired, dropped, still here", "–", f"{export.expired + export.dropped + export.still_here:,}", style="dim")
    console.print(table)
    modes = ", ".join(f"{mode} {len(lines)}" for mode, lines in sorted(clients.succeeded_by_mode.items()))
    failures = ", ".join(f"{kind} {count}" for kind, count in clients.failures.most_common())
    step(console, "succeeded by mode", modes)
    step(console, "deliveries", f"{clients.attempts:,} to consumers, {sum(clients.failures.values()):,} of which failed: {failures}")
    step(console, "the service", f"answered {service.answered:,} calls and turned away {service.turned_away:,}")
    step(console, "the killed consumer", f"held {len(clients.held_by_the_killed)} messages when it died")
    repeated = f"{len(clients.repeated)} handled again, because the broker died before their acknowledgement was confirmed"
    step(console, "at least once", repeated if clients.repeated else "no message was handled twice")
    console.print()


def checks(console: Console, found: list[Check]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in found:
        mark = "[bold green]✓[/]" if check.holds else "[bold red]✗[/]"
        table.add_row(f"  {mark}", check.what, f"[dim]{escape(check.found)}[/]" if check.holds else f"[red]{escape(check.found)}[/]")
    console.print(table)
