"""``homing explain`` (and ``homing policy explain``): what holds for an address, and what becomes of a message that fails there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.table import Table

from ..core.settings.units import counted
from .output import DEFAULT_URL, Json, Url, escape, print_json, span, stderr, stdout, wide
from .settings import load_config
from .values import value_text

if TYPE_CHECKING:
    from ..core.settings.address_settings import AddressSettings, Origin

#: How many attempts are shown where there is no end.
SHOWN_ATTEMPTS: Final = 12
_MOST_ATTEMPTS: Final = 1000


class Explained(NamedTuple):
    """What the broker's call answers, or as much of it as a file can tell."""

    address: str
    origins: list[Origin]
    #: Of a running broker: the address's queues; None where it has no such address.
    queues: list[str] | None = None
    #: Of the queue of that name, where it has one: where its dead letters go instead of a dead-letter address.
    dead_letter_exchange: str | None = None
    #: It was declared over AMQP, and no delay is meant for what AMQP clients return.
    amqp_returns_at_once: bool = False


class Attempts(NamedTuple):
    """What becomes of a message that always fails."""

    settings: AddressSettings
    #: None: without end.
    allowed: int | None
    rows: list[Any]
    #: At least and at most, in ms; None: without end.
    life: tuple[int, int] | None
    warning: str | None


def explain(
    address: Annotated[str, typer.Argument(help="An address; it need not exist.")],
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Explain this file instead of a running broker.")] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=_MOST_ATTEMPTS, help="How many to show where there is no end.")
    ] = SHOWN_ATTEMPTS,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Every setting of an address and where it came from; then each attempt of a message that always fails, and where it ends."""
    explained = _explained(address, config, url)
    found = _attempts(explained, attempts)
    if as_json:
        print_json(_as_json(explained, found))
        return
    _print_settings(explained)
    if config is None:
        stdout.print(f"\n{_whereabouts(address, explained.queues)}")
    stdout.print()
    _print_attempts(address, found)
    stdout.print(f"\n{_ending(found, explained.dead_letter_exchange)}")
    if explained.amqp_returns_at_once:
        stdout.print("AMQP clients get it back at once, as no pattern other than # sets a delay; what native clients fail waits.")
    if found.warning:
        stderr.print(f"[yellow]warning[/]  {escape(found.warning)}")


def _explained(address: str, file: Path | None, url: str) -> Explained:
    from ..core.settings.address_settings import Origin

    if file is not None:
        return Explained(address, load_config(file).address_settings.explain(address))
    from .client import call

    value = call(url, "explain", address=address)
    origins = [Origin(**each) for each in value["settings"]]
    return Explained(address, origins, value["queues"], value["dead_letter_exchange"], value["amqp_returns_at_once"])


def _attempts(explained: Explained, shown: int) -> Attempts:
    from ..core.redelivery import at_once, attempts_allowed, lifetime_ms, lifetime_warning, schedule
    from ..core.settings.address_settings import AddressSettingsRepository

    settings = AddressSettingsRepository({"#": {origin.key: origin.value for origin in explained.origins}}).resolve("any")
    if explained.amqp_returns_at_once:
        settings = at_once(settings)
    allowed = attempts_allowed(settings, None)
    rows = schedule(settings, None, max(shown, allowed or 0) if (allowed or 0) <= _MOST_ATTEMPTS else shown)
    return Attempts(settings, allowed, rows, lifetime_ms(settings, None), lifetime_warning(settings, None))


def _as_json(explained: Explained, found: Attempts) -> dict[str, Any]:
    exchange, life = explained.dead_letter_exchange, found.life
    return {
        "address": explained.address,
        "queues": explained.queues,
        "settings": [origin._asdict() for origin in explained.origins],
        "max_delivery_attempts": -1 if found.allowed is None else found.allowed,
        "attempts": [row._asdict() for row in found.rows],
        "min_total_ms": life[0] if life else None,
        "max_total_ms": life[1] if life else None,
        "dead_letter_address": found.settings.dead_letter_address if exchange is None else None,
        "dead_letter_exchange": exchange,
        "amqp_returns_at_once": explained.amqp_returns_at_once,
        "warning": found.warning,
    }


def _print_settings(explained: Explained) -> None:
    title = f"Settings of {escape(explained.address)}"
    table = Table("setting", "value", "from", title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for origin in explained.origins:
        style = "dim" if origin.pattern == "default" else "bold"
        table.add_row(origin.key, escape(value_text(origin.key, origin.value)), escape(_where(origin)), style=style)
    wide.print(table)
    if (exchange := explained.dead_letter_exchange) is not None:
        named = f"the exchange [bold]{escape(exchange)}[/]" if exchange else "the default exchange"
        stdout.print(f"\nIts dead letters go through {named} instead.")


def _where(origin: Origin) -> str:
    if origin.by_command:
        covers = origin.covers
        over = f" (over {value_text(origin.key, covers['value'])}, line {covers['line']})" if covers is not None else ""
        return f'"{origin.pattern}", homing settings{over}'
    return origin.pattern if origin.line is None else f'"{origin.pattern}", line {origin.line}'


def _whereabouts(address: str, queues: list[str] | None) -> str:
    """What there is for ``homing peek`` to look into."""
    if queues is None:
        return f"There is no address {escape(address)} yet."
    return f"Its queues: {escape(', '.join(queues))}." if queues else "It has no queue."


def _print_attempts(address: str, found: Attempts) -> None:
    title = f"A message to {escape(address)} that always fails"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column("attempt", justify="right")
    table.add_column("  after waiting")
    table.add_column("  since the first")
    for row in found.rows:
        wait, since = _range(row.min_delay_ms, row.max_delay_ms), _range(row.min_total_ms, row.max_total_ms)
        table.add_row(str(row.attempt), f"  {'–' if row.attempt == 1 else wait}", f"  {since}", style="bold" if row.last else "")
    if found.allowed is None or found.rows[-1].attempt < found.allowed:
        table.add_row("…", "", "", style="dim")
    wide.print(table)


def _range(low_ms: int, high_ms: int) -> str:
    return span(low_ms) if low_ms == high_ms else f"{span(low_ms)} – {span(high_ms)}"


def _ending(found: Attempts, exchange: str | None) -> str:
    settings, life = found.settings, found.life
    if found.allowed is None or life is None:
        return "It is tried again [bold]without end[/] (max-delivery-attempts: -1)."
    times = counted(found.allowed, "attempt")
    total = "at once" if life[1] == 0 else f"after {_range(*life)}, not counting the time that the attempts take"
    if exchange is not None:
        return f"After {times}, {total}, it goes through the exchange [bold]{escape(exchange) or '(default)'}[/]."
    if settings.dead_letter_address is None:
        parked = settings.without_dead_letter_address == "park"
        fate = "stays [bold]parked[/] in its queue" if parked else "is [bold red]removed[/] and counted"
        return f"After {times}, {total}, it {fate}: no dead-letter-address is set."
    return f"After {times}, {total}, it goes to [bold]{escape(settings.dead_letter_address)}[/]."
