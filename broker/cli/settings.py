"""What is configured, and what follows from it: ``explain``, ``policy explain``, ``config check``, ``user hash``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.table import Table

from ..core.settings.units import counted
from ..safe_text import safe
from .output import DEFAULT_URL, Json, Url, escape, print_json, span, stderr, stdout
from .values import value_text

if TYPE_CHECKING:
    from ..config.config import Config
    from ..core.settings.address_settings import AddressSettings, Origin

policy_app = typer.Typer(help="What becomes of messages that fail, and policies for queues and exchanges.", no_args_is_help=True)
config_app = typer.Typer(help="The configuration file.", no_args_is_help=True)
user_app = typer.Typer(help="Users.", no_args_is_help=True)

FromFile = Annotated[Path | None, typer.Option("--config", "-c", help="Explain this file instead of a running broker.")]
Address = Annotated[str, typer.Argument(help="An address; it need not exist.")]

DEFAULT_FILE: Final = Path("broker.yaml")
#: How many attempts of a policy without an end are shown.
SHOWN_ATTEMPTS: Final = 12


def load_config(path: Path | None, *, data: Path | None = None) -> Config:
    """The configuration in ``path``, or in ./broker.yaml, or without either the shipped defaults; ``data`` replaces its data directory."""
    from ..config.config import default_config, load

    config = load(path or DEFAULT_FILE) if path is not None or DEFAULT_FILE.is_file() else default_config(Path.cwd())
    return config.with_data(data) if data is not None else config


def data_directory(data: Path | None) -> Path:
    """Where the journal is: ``--data``, else what broker.yaml in this directory says, else its default."""
    return data if data is not None else load_config(None).data_directory


class Explained(NamedTuple):
    origins: list[Origin]
    #: Of the queue of that name, where it has one: where its dead letters go instead of a dead-letter address.
    dead_letter_exchange: str | None
    #: It was declared over AMQP, and no delay is meant for what AMQP clients return.
    amqp_returns_at_once: bool = False
    #: Of a running broker: the address's queues; None where it has no such address.
    queues: list[str] | None = None


def _explained(address: str, file: Path | None, url: str) -> Explained:
    from ..core.settings.address_settings import Origin

    if file is not None:
        return Explained(load_config(file).address_settings.explain(address), None, False)
    from .client import call

    value = call(url, "explain", address=address)
    origins = [Origin(**each) for each in value["settings"]]
    return Explained(origins, value.get("dead_letter_exchange"), value["amqp_returns_at_once"], value["queues"])


def explain(address: Address, config: FromFile = None, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Every setting of an address, with the pattern and line it came from."""
    origins, exchange, _, queues = _explained(address, config, url)
    if as_json:
        settings = [origin._asdict() for origin in origins]
        print_json({"address": address, "queues": queues, "settings": settings, "dead_letter_exchange": exchange})
        return
    table = Table(title=f"Settings of {escape(address)}", title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column("setting")
    table.add_column("value")
    table.add_column("from")
    for origin in origins:
        default = origin.pattern == "default"
        style = "dim" if default else "bold"
        table.add_row(origin.key, escape(value_text(origin.key, origin.value)), escape(_where(origin)), style=style)
    stdout.print(table)
    if exchange is not None:
        stdout.print(f"\n{_through(exchange)}")
    if config is None:
        stdout.print(f"\n{_whereabouts(address, queues)}")


def _whereabouts(address: str, queues: list[str] | None) -> str:
    """What there is for ``homing peek`` to look into."""
    if queues is None:
        return f"There is no address {escape(address)} yet."
    return f"Its queues: {escape(', '.join(queues))}." if queues else "It has no queue."


def _where(origin: Origin) -> str:
    if origin.by_command:
        where = f'"{origin.pattern}", homing settings'
        if origin.covers is not None:
            where += f" (over {value_text(origin.key, origin.covers['value'])}, line {origin.covers['line']})"
        return where
    return origin.pattern if origin.line is None else f'"{origin.pattern}", line {origin.line}'


def _through(exchange: str) -> str:
    named = "the default exchange" if not exchange else f"the exchange [bold]{escape(exchange)}[/]"
    return f"Its dead letters go through {named} instead."


def _settings_of(origins: Iterable[Origin]) -> AddressSettings:
    from ..core.settings.address_settings import AddressSettingsRepository

    return AddressSettingsRepository({"#": {origin.key: origin.value for origin in origins}}).resolve("any")


@policy_app.command("explain")
def policy_explain(
    address: Address,
    config: FromFile = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, max=1000, help="How many to show where there is no end.")] = SHOWN_ATTEMPTS,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """When a message that always fails is tried again, how long it lives in all, and where it ends."""
    from ..core.redelivery import at_once, attempts_allowed, lifetime_ms, lifetime_warning, schedule

    origins, exchange, amqp_returns_at_once, _ = _explained(address, config, url)
    settings = _settings_of(origins)
    if amqp_returns_at_once:
        settings = at_once(settings)
    allowed = attempts_allowed(settings, None)
    rows = schedule(settings, None, max(attempts, allowed or 0) if (allowed or 0) <= 1000 else attempts)
    life, warning = lifetime_ms(settings, None), lifetime_warning(settings, None)
    if as_json:
        print_json(
            {
                "address": address,
                "max_delivery_attempts": allowed if allowed is not None else -1,
                "attempts": [row._asdict() for row in rows],
                "min_total_ms": life[0] if life else None,
                "max_total_ms": life[1] if life else None,
                "dead_letter_address": settings.dead_letter_address if exchange is None else None,
                "dead_letter_exchange": exchange,
                "amqp_returns_at_once": amqp_returns_at_once,
                "warning": warning,
            }
        )
        return
    _print_schedule(address, rows, allowed)
    stdout.print(f"\n{_ending(settings, allowed, life, exchange)}")
    if amqp_returns_at_once:
        stdout.print("AMQP clients get it back at once, as no pattern other than # sets a delay; what native clients fail waits.")
    if warning:
        stderr.print(f"[yellow]warning[/]  {escape(warning)}")


def _print_schedule(address: str, rows: list[Any], allowed: int | None) -> None:
    table = Table(
        title=f"A message to {escape(address)} that always fails", title_justify="left", box=None, pad_edge=False, header_style="dim"
    )
    table.add_column("attempt", justify="right")
    table.add_column("  after waiting")
    table.add_column("  since the first")
    for row in rows:
        wait, since = _range(row.min_delay_ms, row.max_delay_ms), _range(row.min_total_ms, row.max_total_ms)
        table.add_row(str(row.attempt), f"  {'–' if row.attempt == 1 else wait}", f"  {since}", style="bold" if row.last else "")
    if allowed is None or rows[-1].attempt < allowed:
        table.add_row("…", "", "", style="dim")
    stdout.print(table)


def _range(low_ms: int, high_ms: int) -> str:
    return span(low_ms) if low_ms == high_ms else f"{span(low_ms)} – {span(high_ms)}"


def _ending(settings: AddressSettings, allowed: int | None, life: tuple[int, int] | None, exchange: str | None) -> str:
    if allowed is None or life is None:
        return "It is tried again [bold]without end[/] (max-delivery-attempts: -1)."
    times = counted(allowed, "attempt")
    total = "at once" if life[1] == 0 else f"after {_range(*life)}, not counting the time that the attempts take"
    if exchange is not None:
        return f"After {times}, {total}, it goes through the exchange [bold]{escape(exchange) or '(default)'}[/]."
    if settings.dead_letter_address is None:
        parked = settings.without_dead_letter_address == "park"
        fate = "stays [bold]parked[/] in its queue" if parked else "is [bold red]removed[/] and counted"
        return f"After {times}, {total}, it {fate}: no dead-letter-address is set."
    return f"After {times}, {total}, it goes to [bold]{escape(settings.dead_letter_address)}[/]."


def reload(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Have the running broker read its configuration file again: all of it takes effect, or nothing (exit code 5)."""
    from ..config.source import shown
    from .client import call

    changed: list[dict[str, Any]] = call(url, "reload")["changed"]
    if as_json:
        print_json(changed)
        return
    if not changed:
        stdout.print("nothing changed")
    for each in changed:
        later = "  [yellow]after a restart[/]" if each["needs_restart"] else ""
        stdout.print(f"{escape(each['path'])}  {escape(shown(each['before']))} → [bold]{escape(shown(each['after']))}[/]{later}")


@config_app.command("check")
def config_check(file: Annotated[Path, typer.Argument(help="The file to check.")] = Path("broker.yaml"), as_json: Json = False) -> None:
    """Read a configuration as the broker would: errors end it, warnings are about what you may not mean."""
    from ..config.config import check

    warnings = check(file)
    if as_json:
        print_json({"file": str(file), "valid": True, "warnings": warnings})
        return
    for warning in warnings:
        stdout.print(f"[yellow]warning[/]  {escape(warning)}")
    stdout.print(f"[green]{escape(str(file))} is valid[/]")


@config_app.command("export")
def config_export(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Write what is in force in a running broker as a broker.yaml, with what [bold]homing settings[/] has set.

    Users are not in it. Queues, virtual hosts and policies that clients and commands made are in the journal, which keeps them.

    [dim]homing config export > broker.yaml[/]
    """
    from ruamel.yaml import YAML

    from ..config.export import as_file
    from .client import call

    in_force = call(url, "settings")
    found = as_file(in_force)
    if as_json:
        print_json(found)
        return
    if in_force["users"]:
        print(f"# Users are not exported: {safe(', '.join(in_force['users']))}. Add users: with their hashes.")
    writer = YAML()
    writer.width = 1_000
    writer.dump(found, sys.stdout)


@user_app.command("hash")
def user_hash(
    source: Annotated[
        str | None, typer.Argument(metavar="-", help="-: read the password from standard input, up to its first line end.")
    ] = None,
    password: Annotated[
        str | None, typer.Option("--password", help="Asked for when not given; others may see it in the list of processes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The argon2 hash of a password, for users: in broker.yaml."""
    from argon2 import PasswordHasher

    if source is not None:
        if source != "-" or password is not None:
            raise typer.BadParameter("give -, which reads standard input, or --password, or neither")
        password = sys.stdin.readline().rstrip("\r\n")
    elif password is None:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    if not password:
        raise typer.BadParameter("the password is empty")
    hashed = PasswordHasher().hash(password)
    if as_json:
        print_json({"hash": hashed})
    else:
        stdout.print(hashed, markup=False)
