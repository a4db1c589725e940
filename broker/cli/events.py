"""``homing events``: what happened that an operator wants to hear of, and what happens."""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..answers.administration import BrokerEvent
from ..core.event import KINDS
from ..core.reserved import EVENTS
from ..words.amounts import clock
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, escape, note, print_json, stdout
from .tables import Column, Listing, Wide, amount, print_table
from .times import time_given

if TYPE_CHECKING:
    import homing

#: A queue of an ``--follow`` that was ended goes after this.
_EXPIRES_MS: Final = 60_000
#: Its name: this, and something that no other has. A grant is for all of them.
_PREFIX: Final = "events."
_STYLES: Final = {"fault": "yellow", "consumer": "yellow", "redrive": "green"}

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Each event from now on, until Ctrl-C; JSON lines to a pipe or with --json.")]
Since = Annotated[
    int | None,
    typer.Option("--since", parser=time_given, metavar="TIME", help="Those at this time or later: 1h ago, 01:30, or 2026-11-23T09:00."),
]
KindOption = Annotated[
    list[str] | None, typer.Option("--kind", metavar="KIND", help="Those of this kind: queue.full, or 'dead-letters.*'. Repeatable.")
]


def events(
    since: Since = None, kind: KindOption = None, follow: Follow = False, wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Which events there are, and how many of each were made since the broker started. With [bold]--since[/] or [bold]--kind[/] those that
    happened, of which the last 200 of each kind are kept; with [bold]--follow[/] each as it happens.

    They are messages on the address homing.events, too: queues of any name may be bound to it.

    What happened is shown of queues that you may monitor. [bold]--follow[/] takes the rights to create on events.* and to consume on
    homing.events.
    """
    kinds = _kinds(kind or [])
    if follow and since is not None:
        raise typer.BadParameter("--follow shows what happens from now on; leave out one of the two", param_hint="--since")
    if follow:
        from .client import talk_on

        with suppress(KeyboardInterrupt):
            talk_on(url, lambda connection: _follow(connection, kinds, as_json or not stdout.is_terminal))
    elif since is None and not kinds:
        _list(url, as_json, wide)
    else:
        _list_kept(url, kinds, since or 0, as_json, wide)


def _kinds(patterns: list[str]) -> list[str]:
    """Those that are meant; empty: all."""
    for each in patterns:
        if not any(fnmatchcase(kind, each) for kind in KINDS):
            raise typer.BadParameter(f"there are no events {each!r}: there are {', '.join(KINDS)}", param_hint="--kind")
    return [kind for kind in KINDS if any(fnmatchcase(kind, each) for each in patterns)]


def _list_kept(url: str, kinds: list[str], since_ms: int, as_json: bool, wide: bool) -> None:
    from .client import seen, talk

    found = talk(url, lambda connection: seen(connection, "events", kinds=kinds, since_ms=since_ms))
    if found.left_out:
        note(found.left_out)
    if as_json:
        print_json(found)
        return
    if not found:
        stdout.print("[dim]nothing of that happened, of queues that you may monitor[/]")
        return
    columns = [Column("at", number=True), Column("event", whole=True), Column("what happened"), Column("what follows", 1, whole=True)]
    print_table(Listing(columns, map(_cells, found)), wide)


def _list(url: str, as_json: bool, wide: bool) -> None:
    from .client import call

    counts = call(url, "statistics")["events"]
    if as_json:
        print_json(counts)
        return
    rows = [(name, f"[dim]{kind.when}[/]", *(amount(counts[name][key]) for key in ("made", "left_out"))) for name, kind in KINDS.items()]
    columns = [Column("event"), Column("when"), Column("made", number=True), Column("left out", number=True)]
    print_table(Listing(columns, rows), wide)


async def _follow(connection: homing.Connection, kinds: list[str], as_json: bool) -> None:
    from homing import HomingError

    queue = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    options = {"routing_type": "multicast", "durable": False, "expires_ms": _EXPIRES_MS, "max_length": 1000}
    try:
        await connection.call("create-queue", queue=queue, address=EVENTS, **options)
    except HomingError as error:
        if error.code != "access-refused":
            raise
        # A grant on this queue would serve nobody: the next one has another name.
        said, fix = (text.replace(queue, f"{_PREFIX}*") for text in (error.message, error.fix))
        takes = f"it takes create on '{_PREFIX}*' and consume on {EVENTS}"
        raise CommandError(ExitCode.FAILED, said, f"{fix} ({takes})", code=error.code) from None
    async with connection.session() as session:
        async for message in session.consumer(queue):
            event = json.loads(message.body)
            if not kinds or event["event"] in kinds:
                _show(event, as_json)
                sys.stdout.flush()


def _show(event: BrokerEvent, as_json: bool) -> None:
    if as_json:
        print_json(event, line=True)
        return
    at, name, meaning, command = _cells(event)
    stdout.print(f"{at}  {name}  {meaning}\n    {command}")


def _cells(event: BrokerEvent) -> list[str]:
    style = _STYLES.get(event["event"].partition(".")[0], "red")
    at = clock(int(datetime.fromisoformat(event["time"]).timestamp() * 1000))
    return [f"[dim]{at}[/]", f"[{style}]{event['event']}[/]", escape(event["meaning"]), f"[dim]{escape(event['command'])}[/]"]
