"""``homing cluster …``: the database that keeps a replicated journal's log, and who leads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..core.settings.units import format_duration_ms
from .output import CommandError, ExitCode, Json, escape, print_json, stdout
from .settings import load_config

if TYPE_CHECKING:
    from homing.journal.replication.postgresql import PostgresLog

app = typer.Typer(help="A journal that several machines have.", no_args_is_help=True)

_AGAIN: Final = "see to it, and to journal.replication.url"

ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="The configuration file.", show_default="broker.yaml")]


@app.command()
def init(
    config: ConfigFile = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the SQL for whoever may make tables, and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Make the cell that journal.replication names, once: its tables, and a log without entries. Its nodes begin with empty directories."""
    from homing.journal.replication.postgresql import schema

    broker_id, section = str(uuid.uuid4()), _section(config)
    if only_print:
        typer.echo(schema(section.cell, broker_id), nl=False)
        return
    _ask(config, lambda log: log.make(broker_id))
    if as_json:
        print_json({"cell": section.cell, "broker_id": broker_id})
    else:
        stdout.print(f"The cell {escape(section.cell)} is made, and waits for its nodes: homing serve on each.")


@app.command()
def status(config: ConfigFile = None, as_json: Json = False) -> None:
    """Who leads, and how far each node is: from the database, also where no node runs."""
    from ..process.cluster import describe

    found = describe(_ask(config, lambda log: log.describe()))
    if as_json:
        print_json(found)
        return
    led = f"{found['leader']} leads" if found["leader"] else "nobody leads"
    stdout.print(f"{escape(led)}, epoch {found['epoch']} for {_age(found['since_ms'])}, entry {found['entries']:,}")
    for each in found["nodes"]:
        stdout.print(
            f"  {escape(each['node'])}  {each['state']}, has entry {each['applied']:,}, seen {_age(each['seen_ms'])} ago", highlight=False
        )


def _age(age_ms: int) -> str:
    return format_duration_ms(age_ms // 1000 * 1000)


def _section(config: Path | None) -> Any:
    section = load_config(config).journal.replication
    if section is None:
        fix = "see journal.replication in docs/cluster.md"
        raise CommandError(ExitCode.CONFIG, "the configuration says of no cluster", fix, code="no-cluster")
    return section


def _ask(config: Path | None, question: Callable[[PostgresLog], Awaitable[Any]]) -> Any:
    from homing.journal.replication.log import LogAway
    from homing.journal.replication.postgresql import Member

    from ..process.cluster import log_of

    section = _section(config)
    log = log_of(section, load_config(config).directory, Member(section.node, "", "{}"))

    async def ask() -> Any:
        try:
            return await question(log)
        finally:
            log.cut()

    try:
        return asyncio.run(ask())
    except LogAway as away:
        raise CommandError(ExitCode.FAILED, f"the database does not answer: {away}", _AGAIN, code="log-away") from away
