"""``homing explain`` (and ``homing policy explain``): what holds for an address, and what becomes of a message that fails there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..answers.administration import Explained as Answer
from ..answers.parts import Properties
from ..core.dead_letter import is_shortened
from ..core.settings.rules import Action, ReportedFailure, Rule, key_of, with_bases
from ..words.attempts import MOST_ATTEMPTS, SHOWN_ATTEMPTS, Attempts, Explained, answered, attempts_of, ending, span_between
from ..words.settings import origin_text, value_text
from .output import DEFAULT_URL, Json, Url, escape, print_json, stderr, stdout
from .settings import load_config
from .tables import Column, Listing, Wide, print_table
from .values import property_given

if TYPE_CHECKING:
    pass


def explain(
    address: Annotated[str, typer.Argument(help="An address; it need not exist.")],
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Explain this file instead of a running broker.")] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=MOST_ATTEMPTS, help="How many to show where there is no end.")
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
    found = attempts_of(explained, attempts, failure, dict(map(property_given, header or ())))
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
    stdout.print(f"\n{escape(ending(found, explained))}")
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

    return answered(call(url, "explain", address=address))


def _as_json(explained: Explained, found: Attempts) -> Properties:
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
        cells = (origin.key, escape(value_text(origin.key, origin.value)), escape(origin_text(origin)))
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
        then = [] if rule.action is Action.REDELIVER else [rule.action.value]
        then += [f"{key_of(name)} {value_text(name, value)}" for name, value in rule.settings]
        rows.append([escape(rule.name), escape(", ".join(fits) or "everything"), escape(", ".join(then))])
    stdout.print()
    print_table(Listing([Column("rule"), Column("fits"), Column("then")], rows, title), wide)


def _whereabouts(address: str, queues: list[str] | None) -> str:
    """What there is for ``homing peek`` to look into."""
    if queues is None:
        return f"There is no address {escape(address)} yet."
    return f"Its queues: {escape(', '.join(queues))}." if queues else "It has no queue."


def _print_attempts(address: str, found: Attempts, wide: bool) -> None:
    title = f"A message to {escape(address)} that always fails"
    rows = []
    for row in found.rows:
        wait, since = span_between(row.min_delay_ms, row.max_delay_ms), span_between(row.min_total_ms, row.max_total_ms)
        gone = ", [red]has expired[/]" if found.expired_by is not None and row.attempt >= found.expired_by else ""
        cells = (str(row.attempt), f"  {'–' if row.attempt == 1 else wait}", f"  {since}{gone}")
        rows.append([f"[bold]{cell}[/]" if row.last else cell for cell in cells])
    if found.allowed is None or found.rows[-1].attempt < found.allowed:
        rows.append(["[dim]…[/]", "", ""])
    print_table(Listing([Column("attempt", number=True), Column("  after waiting"), Column("  since the first")], rows, title), wide)


def fate(value: Answer) -> tuple[int | None, str]:
    """Of a message that always fails: how many attempts it has (None: without end), and what becomes of it, in a sentence.

    ``value``: what the broker answers to ``explain``.
    """
    explained = answered(value)
    found = attempts_of(explained, SHOWN_ATTEMPTS, None, {})
    return found.allowed, ending(found, explained)
