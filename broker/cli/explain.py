"""``homing explain`` (and ``homing policy explain``): what holds for an address, and what becomes of a message that fails there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ..core.amqp.vhost import split
from ..core.dead_letter import is_shortened
from ..core.settings.rules import DROP, REDELIVER, Lookup, ReportedFailure, Rule, first, fitting, key_of, with_bases
from ..core.settings.units import counted
from .output import DEFAULT_URL, Json, Url, escape, print_json, span, stderr, stdout
from .settings import load_config
from .tables import Column, Listing, Wide, print_table
from .values import property_given, value_text

if TYPE_CHECKING:
    from ..core.redelivery import Terms
    from ..core.settings.address_settings import AddressSettings, Origin

#: How many attempts are shown where there is no end.
SHOWN_ATTEMPTS: Final = 12
_MOST_ATTEMPTS: Final = 1000
#: What of it only a running broker knows, in the order of ``Explained``.
_OF_THE_BROKER: Final = ("dead_letter_exchange", "amqp_returns_at_once", "dead_letter_queues")


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
    #: Where its dead letters end, as far as that is known before.
    dead_letter_queues: Sequence[str] = ()


class Attempts(NamedTuple):
    """What becomes of a message that always fails."""

    settings: AddressSettings
    #: None: without end.
    allowed: int | None
    rows: list[Any]
    #: At least and at most, in ms; None: without end.
    life: tuple[int, int] | None
    warning: str | None
    #: The one that fits the failure that was asked about.
    rule: Rule | None = None
    #: The first attempt that it does not live to see; None: it lives long enough for those that are shown.
    expired_by: int | None = None


def explain(
    address: Annotated[str, typer.Argument(help="An address; it need not exist.")],
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Explain this file instead of a running broker.")] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=_MOST_ATTEMPTS, help="How many to show where there is no end.")
    ] = SHOWN_ATTEMPTS,
    error: Annotated[
        list[str] | None,
        typer.Option("--error", help="Of failures with this error type; again for each base class (Python's own are known)."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Of failures with this reason or text.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="Of messages with this header: NAME=TEXT, or NAME:=JSON. Repeatable.")
    ] = None,
    exit_status: Annotated[int | None, typer.Option("--exit-status", help="Of failures with this exit status of a program.")] = None,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Every setting of an address and where it came from; then each attempt of a message that always fails, and where it ends.

    With [bold]--error[/], or another thing that a failure tells, by the first of its rules that fits such a failure.
    """
    explained = _explained(address, config, url)
    asked = bool(error or reason is not None or header or exit_status is not None)
    failure = ReportedFailure(with_bases(error or ["nack"]), () if reason is None else (reason,), exit_status) if asked else None
    found = _attempts(explained, attempts, failure, dict(map(property_given, header or ())))
    if as_json:
        print_json(_as_json(explained, found))
        return
    _print_settings(explained, wide)
    _print_rules(found.settings.rules, wide)
    if config is None:
        stdout.print(f"\n{_whereabouts(address, explained.queues)}")
    stdout.print()
    if failure is not None:
        stdout.print(f"Such a failure fits rule [bold]{escape(found.rule.name)}[/]." if found.rule else "Such a failure fits no rule.")
    _print_attempts(address, found, wide)
    stdout.print(f"\n{_ending(found, explained)}")
    if any(map(is_shortened, explained.dead_letter_queues)):
        stdout.print("The queue's name is shortened, as AMQP knows none of more than 255 bytes; what follows ~ tells it from others.")
    if explained.amqp_returns_at_once:
        stdout.print("AMQP clients get it back at once, as no pattern other than # sets a delay; what native clients fail waits.")
    if found.warning:
        stderr.print(f"[yellow]warning[/]  {escape(found.warning)}")


def _explained(address: str, file: Path | None, url: str) -> Explained:
    from ..core.dead_letter import DELIVERY_LIMIT, target

    if file is not None:
        settings = load_config(file).address_settings
        to = target(settings.resolve(address), address, DELIVERY_LIMIT)
        queues = [to.queue] if to is not None and to.queue is not None else []
        return Explained(address, settings.explain(address), dead_letter_queues=queues)
    from .client import call

    return _answered(call(url, "explain", address=address))


def _answered(value: dict[str, Any]) -> Explained:
    from ..core.settings.address_settings import Origin

    origins = [Origin(**each) for each in value["settings"]]
    return Explained(value["address"], origins, value["queues"], *(value[name] for name in _OF_THE_BROKER))


def fate(value: dict[str, Any]) -> tuple[int | None, str]:
    """Of a message that always fails: how many attempts it has (None: without end), and what becomes of it, in a sentence for a terminal.

    ``value``: what the broker answers to ``explain``.
    """
    explained = _answered(value)
    found = _attempts(explained, SHOWN_ATTEMPTS, None, {})
    return found.allowed, _ending(found, explained)


def _attempts(explained: Explained, shown: int, failure: ReportedFailure | None, headers: dict[str, Any]) -> Attempts:
    from ..core.redelivery import attempts_allowed, lifetime_ms, lifetime_warning, schedule
    from ..core.time_to_live import expiry_warning, never_tried

    values = {origin.key: origin.value for origin in explained.origins}
    settings, _, rule = terms_for(values, failure, headers.get, explained.amqp_returns_at_once)
    allowed = attempts_allowed(settings, None)
    rows = schedule(settings, None, max(shown, allowed or 0) if (allowed or 0) <= _MOST_ATTEMPTS else shown)
    # Who says by a rule that it ends at once means it.
    warning = lifetime_warning(settings, None) if rule is None or rule.action == REDELIVER else None
    warning = expiry_warning(settings, len(rows)) or warning
    return Attempts(settings, allowed, rows, lifetime_ms(settings, None), warning, rule, never_tried(settings, rows))


def terms_for(values: dict[str, Any], failure: ReportedFailure | None, headers: Lookup, returned_at_once: bool = False) -> Terms:
    """What holds where an address has these settings: by the first rule for such a failure, where there is one."""
    from ..core.redelivery import Terms, at_once, under
    from ..core.settings.address_settings import AddressSettingsRepository

    settings = AddressSettingsRepository({"#": values}).resolve("any")
    if returned_at_once:
        settings = at_once(settings)
    rule = first(fitting(settings.rules, failure), headers) if failure is not None else None
    return Terms(settings, None) if rule is None else under(rule, settings, None)


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
        "expired_by_attempt": found.expired_by,
        "dead_letter_address": found.settings.dead_letter_address if exchange is None else None,
        "dead_letter_exchange": exchange,
        "dead_letter_queues": list(explained.dead_letter_queues),
        "amqp_returns_at_once": explained.amqp_returns_at_once,
        "rule": found.rule.name if found.rule else None,
        "warning": found.warning,
    }


def _print_settings(explained: Explained, wide: bool) -> None:
    title = f"Settings of {escape(explained.address)}"
    rows = []
    for origin in explained.origins:
        style = "dim" if origin.pattern == "default" else "bold"
        cells = (origin.key, escape(value_text(origin.key, origin.value)), escape(_where(origin)))
        rows.append([f"[{style}]{cell}[/]" for cell in cells])
    print_table(Listing([Column("setting"), Column("value"), Column("from")], rows, title), wide)
    if (exchange := explained.dead_letter_exchange) is not None:
        named = f"the exchange [bold]{escape(exchange)}[/]" if exchange else "the default exchange"
        stdout.print(f"\nIts dead letters go through {named} instead.")


def _print_rules(rules: tuple[Rule, ...], wide: bool) -> None:
    if not rules:
        return
    title = "Its rules, of which the first that fits a failure holds"
    rows = []
    for rule in rules:
        asks = {name: list(getattr(rule, name)) for name in ("error_type", "reason", "exit_status")}
        fits = [f"{key_of(name)} {' or '.join(map(str, value))}" for name, value in asks.items() if value]
        fits += [f"header {name}={value_text(name, value)}" for name, value in rule.header]
        then = [] if rule.action == REDELIVER else [rule.action]
        then += [f"{key_of(name)} {value_text(name, value)}" for name, value in rule.settings]
        rows.append([escape(rule.name), escape(", ".join(fits) or "everything"), escape(", ".join(then))])
    stdout.print()
    print_table(Listing([Column("rule"), Column("fits"), Column("then")], rows, title), wide)


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


def _print_attempts(address: str, found: Attempts, wide: bool) -> None:
    title = f"A message to {escape(address)} that always fails"
    rows = []
    for row in found.rows:
        wait, since = _range(row.min_delay_ms, row.max_delay_ms), _range(row.min_total_ms, row.max_total_ms)
        gone = ", [red]has expired[/]" if found.expired_by is not None and row.attempt >= found.expired_by else ""
        cells = (str(row.attempt), f"  {'–' if row.attempt == 1 else wait}", f"  {since}{gone}")
        rows.append([f"[bold]{cell}[/]" if row.last else cell for cell in cells])
    if found.allowed is None or found.rows[-1].attempt < found.allowed:
        rows.append(["[dim]…[/]", "", ""])
    print_table(Listing([Column("attempt", number=True), Column("  after waiting"), Column("  since the first")], rows, title), wide)


def _range(low_ms: int, high_ms: int) -> str:
    return span(low_ms) if low_ms == high_ms else f"{span(low_ms)} – {span(high_ms)}"


def _ending(found: Attempts, explained: Explained) -> str:
    settings, life, exchange = found.settings, found.life, explained.dead_letter_exchange
    ends = f"to {' and '.join(f'[bold]{escape(each)}[/]' for each in explained.dead_letter_queues)}"
    if found.expired_by is not None:
        to = settings.expiry_address
        where = f"goes to [bold]{escape(to)}[/]" if to else "is [bold red]removed[/] and counted: no expiry-address is set"
        return f"It expires before attempt {found.expired_by}, and {where}."
    if found.allowed is None or life is None:
        return "It is tried again [bold]without end[/] (max-delivery-attempts: -1)."
    times = counted(found.allowed, "attempt")
    total = "at once" if life[1] == 0 else f"after {_range(*life)}, not counting the time that the attempts take"
    if found.rule is not None and found.rule.action == DROP:
        return "It is [bold red]removed[/] at its first failure, and counted under the name of the rule."
    if found.rule is not None and (named := found.rule.dead_letter_address):
        return f"After {times}, {total}, it goes to [bold]{escape(named)}[/]."
    if exchange is not None:
        to = f" {ends}" if explained.dead_letter_queues else ""
        return f"After {times}, {total}, it goes through the exchange [bold]{escape(exchange) or '(default)'}[/]{to}."
    if settings.dead_letter_address is None:
        parked = settings.without_dead_letter_address == "park"
        fate = "stays [bold]parked[/] in its queue" if parked else "is [bold red]removed[/] and counted"
        return f"After {times}, {total}, it {fate}: no dead-letter-address is set."
    if explained.dead_letter_queues:
        return f"After {times}, {total}, it goes {ends}."
    if settings.dead_letter_address == split(explained.address)[1]:
        return f"After {times}, {total}, it stays [bold]parked[/] in its queue, which is on its own dead-letter address."
    return f"After {times}, {total}, it goes to the address [bold]{escape(settings.dead_letter_address)}[/], which has no queue for it yet."
