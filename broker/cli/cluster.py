"""``homing cluster …``: the database that keeps a replicated journal's log, and who leads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..core.settings.units import counted, format_duration_ms
from .output import CommandError, ExitCode, Json, Yes, confirm, escape, note, print_json, stdout
from .settings import load_config

if TYPE_CHECKING:
    from homing.journal.replication.cell import Cell
    from homing.journal.replication.postgresql import PostgresLog

    from ..process.cluster.handing_over import Change

app = typer.Typer(
    help="A journal that several machines have. Commands ask the database that the configuration of any node names (journal.replication).",
    no_args_is_help=True,
)

_AGAIN: Final = "see to it, and to journal.replication.url"

#: A node that lacks something for less time has only not said so yet.
_BEHIND_MS: Final = 3_000

ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="The configuration file.", show_default="broker.yaml")]


@app.command()
def init(
    config: ConfigFile = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the SQL for whoever may make tables, and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Make the cell that journal.replication names, once: its tables, and a log without entries. What a broker kept in the data directory
    is what it begins with: stop that broker first, then start it as the first node. All other nodes begin with empty directories.
    """
    from ..process.cluster import beginning

    section, loaded = _section(config), load_config(config)
    if only_print:
        typer.echo(beginning.statements(loaded.data_directory, section.cell), nl=False)
        return
    broker_id, number = _ask(config, lambda log: beginning.begin(log, loaded.data_directory, loaded.journal.keep_before_migration))
    if as_json:
        print_json({"cell": section.cell, "broker_id": broker_id, "entries": number})
        return
    stdout.print(f"The cell {escape(section.cell)} is made, and waits for its nodes: homing serve on each.")
    if number:
        stdout.print(f"It begins with the journal in {escape(str(loaded.data_directory))}: start that node first.")


@app.command()
def status(config: ConfigFile = None, as_json: Json = False) -> None:
    """Who leads, who led before and why no longer, and how far each node is: also where no node runs.

    A node is leading, standby, rebuilding (made anew from another's copy), stopped, away (not seen for 5 s), or log-lost (it has more than
    the log: [bold]homing cluster reseed[/]).
    """
    from ..process.cluster.handing_over import HINDRANCES

    found = _described(_ask(config, lambda log: log.describe()))
    if as_json:
        print_json(found)
        return
    led = f"{found['leader']} leads" if found["leader"] else "nobody leads"
    since = "" if found["since_ms"] is None else f" for {_age(found['since_ms'])}"
    stdout.print(f"{escape(led)}, epoch {found['epoch']}{since}, entry {found['entries']:,}")
    if found["last_change"] is not None:
        stdout.print(f"  {_changed(found['last_change'])}", highlight=False)
    for each in found["nodes"]:
        lag = f", {each['behind']:,} entries and {_age(each['behind_ms'])} behind" if each["behind_ms"] >= _BEHIND_MS else ""
        hindrance = "" if each["hindrance"] is None else f", {HINDRANCES[each['hindrance']]}"
        said = f"{each['state']}, has entry {each['applied']:,}{lag}{hindrance}, seen {_age(each['seen_ms'])} ago, Homing {each['version']}"
        stdout.print(f"  {escape(each['node'])}  {escape(said)}", highlight=False)


@app.command("switch-over")
def switch_over(
    to: Annotated[str, typer.Option("--to", help="The node that is to lead.", show_default="the one that has most")] = "",
    origin: Annotated[str, typer.Option("--from", help="Only where this node leads; else nothing is done.", show_default=False)] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Have another node lead. The leader answers what it was asked for, keeps what an orderly stop keeps, and stands by. Nothing is lost;
    programs connect again. Returns when both nodes are there. Refused where no standby is there that has nearly all.
    """
    from ..process.cluster import handing_over

    _show(_ask(config, lambda log: handing_over.switch_over(log, to, origin)), as_json)


@app.command("take-over")
def take_over(
    force: Annotated[bool, typer.Option("--force", help="Whoever leads is fenced, and asked for nothing.")] = False,
    to: Annotated[str, typer.Option("--to", help="The node that is to lead.", show_default="the one that has most")] = "",
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Have a node take the lead from one that cannot be asked for it, or where nobody leads.

    Whoever leads confirms nothing more, and ends with exit code 72; started again, it stands by. Nothing confirmed is lost. What is not
    durable goes with it.
    """
    from ..process.cluster import handing_over

    if not force:
        fix = "`homing cluster switch-over` asks it first; else say --force"
        raise CommandError(ExitCode.USAGE, "take-over ends a leader in the middle of what it does", fix, code="not-confirmed")
    begun = _ask(config, lambda log: handing_over.look(log, to))
    confirm(begun.said(), yes)
    _show(_ask(config, lambda log: handing_over.take_over(log, begun)), as_json)


@app.command()
def remove(
    node: Annotated[str, typer.Argument(help="A node that will not come back.", show_default=False)],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Forget a node that will not come back: what it had on disk counts no longer among journal.replication.copies.

    One that runs is not removed. One that comes back is a node again.
    """
    from ..process.cluster import handing_over

    left, copies = _ask(config, lambda log: handing_over.remove(log, node)), _section(config).copies
    if as_json:
        print_json({"removed": node, "nodes": left})
        return
    stdout.print(f"{escape(node)} is no node of the cell any more")
    if len(left) < copies:
        note(f"{counted(len(left), 'node')} left, and journal.replication.copies is {copies}: the log keeps all until another node has it.")


@app.command()
def reseed(
    origin: Annotated[str, typer.Option("--from", help="The node that has most, by `homing cluster status`.", show_default=False)],
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Begin the log anew behind what a node has, where the database lost what nodes have (exit code 73). All other nodes are made anew from
    that one, and keep aside what they had.
    """
    from ..process.cluster import reseeding

    seed = _ask(config, lambda log: reseeding.look(log, origin))
    confirm(seed.said(), yes)
    _ask(config, lambda log: reseeding.reseed(log, seed))
    if as_json:
        print_json({"node": seed.node, "entries": seed.at.number, "epoch": seed.epoch})
    else:
        stdout.print(f"The log goes on behind entry {seed.at.number:,}: start {escape(seed.node)}, then the other nodes.")


def _show(change: Change, as_json: bool) -> None:
    if as_json:
        print_json(change)
        return
    leader, before = change["leader"], change["before"]
    if change["gap_ms"] is None:
        stdout.print(f"{escape(leader or 'nobody')} leads, and nothing was changed")
        return
    instead = "" if before is None else f", in place of {escape(before)}"
    stdout.print(f"{escape(leader or 'nobody')} leads{instead}; nobody was served for {format_duration_ms(change['gap_ms'] or 0)}")
    if before is not None:
        stdout.print(f"{escape(before)} {'stands by' if change['stands_by'] else 'stands by once it is started again'}")


def _described(cell: Cell) -> dict[str, Any]:
    """``since_ms``: for how long who leads has served; None: it does not yet. ``last_change``: who led before, why no longer, and for how
    long nobody was served."""
    members = [
        {
            "node": each.node,
            "state": cell.state(each),
            "version": each.version,
            "applied": each.applied,
            "behind": cell.behind(each),
            "behind_ms": each.behind_ms,
            "hindrance": each.hindrance or None,
            "on_disk": each.durable,
            "seen_ms": round(each.seen_s * 1000),
            "addresses": json.loads(each.addresses),
        }
        for each in cell.members
    ]
    standing = cell.standing
    return {
        "broker_id": cell.broker_id,
        "leader": standing.node or None,
        "epoch": standing.epoch,
        "since_ms": None if cell.led_s is None else round(cell.led_s * 1000),
        "successor": standing.successor or None,
        "last_change": {"before": cell.before, "why": cell.why, "gap_ms": cell.gap_ms} if cell.why else None,
        "entries": standing.last,
        "log_bytes": cell.log_bytes,
        "fail_overs": cell.fail_overs,
        "nodes": members,
    }


def _changed(change: dict[str, Any]) -> str:
    gap = "" if change["gap_ms"] is None else f"; nobody was served for {format_duration_ms(change['gap_ms'])}"
    return f"before it {escape(change['before'])} led, and {change['why']}{gap}"


def _age(age_ms: int) -> str:
    return format_duration_ms(age_ms // 1000 * 1000) if age_ms >= 1000 else "0s"


def _section(config: Path | None) -> Any:
    section = load_config(config).journal.replication
    if section is None:
        fix = "see journal.replication in docs/cluster.md"
        raise CommandError(ExitCode.CONFIG, "the configuration says of no cluster", fix, code="no-cluster")
    return section


def _ask(config: Path | None, question: Callable[[PostgresLog], Awaitable[Any]]) -> Any:
    from homing.journal.replication.log import LogAway
    from homing.journal.replication.postgresql import Member, refusal

    from ..process.cluster.node import log_of

    section = _section(config)

    async def ask() -> Any:
        async with log_of(section, load_config(config).directory, Member(section.node)) as log:
            return await question(log)

    try:
        return asyncio.run(ask())
    except LogAway as away:
        no_answer = CommandError(ExitCode.FAILED, f"the database does not answer: {away}", _AGAIN, code="log-away")
        raise refusal(away) or no_answer from away
