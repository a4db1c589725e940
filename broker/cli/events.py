"""``homing events``: what happens that an operator wants to hear of, as it happens."""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..core.event import KINDS
from ..core.reserved import EVENTS
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, clock, escape, print_json, stdout
from .tables import Column, Listing, Wide, amount, print_table

if TYPE_CHECKING:
    import homing

#: A queue of an ``--follow`` that was ended goes after this.
_EXPIRES_MS: Final = 60_000
#: Its name: this, and something that no other has. A grant is for all of them.
_PREFIX: Final = "events."
_STYLES: Final = {"fault": "yellow", "dead-letters": "red", "queue": "red", "disk": "red", "redrive": "green"}

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Each event from now on, until Ctrl-C; JSON lines to a pipe or with --json.")]


def events(follow: Follow = False, wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Which events there are, and how many of each were sent since the broker started; or, with [bold]--follow[/], the events themselves.

    They are messages on the address homing.events: queues of any name may be bound to it. Nothing is sent, and counted, while none is.

    [bold]--follow[/] takes the rights to create on events.* and to consume on homing.events.
    """
    if not follow:
        _list(url, as_json, wide)
        return
    from .client import talk_on

    with suppress(KeyboardInterrupt):
        talk_on(url, lambda connection: _follow(connection, as_json or not stdout.is_terminal))


def _list(url: str, as_json: bool, wide: bool) -> None:
    from .client import call

    counts = call(url, "statistics")["events"]
    if as_json:
        print_json(counts)
        return
    rows = [(name, f"[dim]{kind.when}[/]", *(amount(counts[name][key]) for key in ("sent", "left_out"))) for name, kind in KINDS.items()]
    columns = [Column("event"), Column("when"), Column("sent", number=True), Column("left out", number=True)]
    print_table(Listing(columns, rows), wide)


async def _follow(connection: homing.Connection, as_json: bool) -> None:
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
            _show(json.loads(message.body), as_json)
            sys.stdout.flush()


def _show(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event, line=True)
        return
    style = _STYLES[event["event"].partition(".")[0]]
    at_ms = int(datetime.fromisoformat(event["time"]).timestamp() * 1000)
    stdout.print(f"[dim]{clock(at_ms)}[/]  [{style}]{event['event']}[/]  {escape(event['meaning'])}")
    stdout.print(f"    [dim]{escape(event['command'])}[/]")
