"""``homing history``: the life of one message, drawn as a timeline, and what would happen if it were sent back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..answers.lives import History, Source
from ..answers.parts import Properties
from ..core.amqp.origin import ids_in
from ..core.settings.units import counted
from ..words import timeline as cli_life
from ..words.amounts import clock
from ..words.prospects import chances, prospect, sources_of
from ..words.safe_text import safe
from . import message_filter as of
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, as_command_error, body_json, body_text, escape, note, print_json, stdout

if TYPE_CHECKING:
    import homing

#: What is known of a message; where it would be sent back to.
_Life = tuple[History, list[Source]]
#: Of one call.
_PAGE: Final = 20
Data = Annotated[Path | None, typer.Option("--data", help="Read the journal in this directory instead of asking a broker.")]


@of.filtered
def history(
    wanted: of.Filter,
    message_id: Annotated[int | None, typer.Argument(help="The message's number; receive, peek and queues show it.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Instead of one message: those of this queue that the filter takes.")] = None,
    after: of.After = None,
    data: Data = None,
    body: Annotated[bool, typer.Option("--body", help="Show the body too.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="Of a queue: at most this many.")] = 10,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the life of a message: sent, each attempt and why it failed, how long it waited, and where it is now."""
    if (message_id is None) == (queue is None) or ((wanted or after) and queue is None) or (data and queue):
        raise typer.BadParameter("name one message; or, of a running broker, --queue and which of its messages")
    if queue is not None:
        _of_queue(url, queue, wanted, after, count, lambda life: _show(life, as_json, body, line=True))
    elif message_id is not None:
        _show(_from_journal(data, message_id) if data is not None else _from_broker(url, message_id), as_json, body)


def _show(life: _Life, as_json: bool, body: bool, line: bool = False) -> None:
    found, prospects = life
    if as_json:
        kept = found["message"]
        shown = kept and {**kept, "body": body_json(kept["body"]), **ids_in(kept["properties"])._asdict()}
        print_json({**found, "message": shown, "if_sent_back": prospects}, line=line)
        return
    now_ms = time.time_ns() // 1_000_000
    stdout.print(_header(found))
    stdout.print(_timeline(cli_life.life(found, now_ms)))
    if body and found["message"]:
        stdout.print(Padding(Text(body_text(found["message"]["body"])), (1, 0, 0, 2)))
    for text in _outlook(found, prospects):
        stdout.print(f"\n  {text}")


def _from_journal(data: Path, message_id: int) -> _Life:
    from homing.journal.read.queries import JournalReader

    with JournalReader(data) as reader:
        found = cast("History | None", reader.history(message_id))
    if found is None:
        raise CommandError(
            ExitCode.NOT_FOUND,
            f"the journal knows nothing of a message {message_id}",
            "first-try successes and what stayed transient leave only counts, and history ends after history-retention; history: full keeps"
            " everything that is durable",
            code="no-such-message",
        )
    return found, sources_of(found)


def _from_broker(url: str, message_id: int) -> _Life:

    from .client import talk

    async def conversation(connection: homing.Connection) -> _Life:
        found = await connection.call("history", message_id=message_id)
        return found, await _explained(connection, found)

    return talk(url, conversation)


def _of_queue(url: str, queue: str, wanted: Properties, after: str | None, count: int, show: Callable[[_Life], None]) -> None:
    from .client import talk

    transient: list[bool] = []

    async def conversation(connection: homing.Connection) -> of.Scan:
        with of.Scan(connection, "histories", after, page=_PAGE, most=count, items="histories", queue=queue, filter=wanted) as scan:
            async for page in scan:
                for found in page["histories"]:
                    show((found, await _explained(connection, found)))
                    transient.append(any(each.get("transient") for each in found["references"]))
        return scan

    talk(url, conversation).show_rest(queue, wanted)
    if any(transient):
        note(f"{sum(transient):,} of these {len(transient):,} are transient: not on disk, and their attempts are counted, not kept")


async def _explained(connection: homing.Connection, found: History) -> list[Source]:
    """Where it would go back to, and how it would fare there."""
    import homing

    sources = sources_of(found)
    for at, source in enumerate(sources):
        try:
            sources[at] = prospect(source, await connection.call("explain", address=source["address"]), found)
        except homing.HomingError as error:
            if as_command_error(error) is None or error.connection_lost:
                raise
    return sources


def _header(found: History) -> Text:
    text = Text.assemble(("message ", "dim"), (str(found["message_id"]), "bold cyan"))
    sent_at_ms = cli_life.sent_at_ms(found)
    if sent_at_ms is not None:
        text.append(f"  {clock(sent_at_ms, date=True)}", "dim")
    message = found["message"]
    if message:
        parts = [counted(len(message["body"]), "byte"), f"priority {message['priority']}"]
        parts += [f"from {message['producer']}"] if message.get("producer") else []
        text.append("  " + safe(", ".join(parts)), "dim")
    text.append("\n")
    return text


def _timeline(events: list[cli_life.Event]) -> RenderableType:
    """One row an event: when, a mark on the line of its life, what; details under it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    day, width = None, max(40, stdout.width - 18)
    for number, event in enumerate(events):
        at = clock(event.at_ms, beside_ms=event.at_ms) if event.at_ms is not None else "now" if number == len(events) - 1 else ""
        today = " ".join(clock(event.at_ms, date=True).split()[::2]) if event.at_ms is not None else day  # the date and the zone
        if day is not None and today != day:
            grid.add_row(today, "│", "")
        day = today or day
        grid.add_row(f"  {at}", Text(event.mark, style=event.style), Text(safe(event.title), style=f"bold {event.style}"))
        last = number == len(events) - 1
        for line in (line for detail in event.details for line in wrap(safe(detail), width, subsequent_indent="  ")):
            grid.add_row("", "" if last else Text("│", style="dim"), Text(line))
        if not last:
            grid.add_row("", Text("│", style="dim"), "")
    return Group(grid)


def _outlook(found: History, prospects: list[Source]) -> list[str]:
    """What the past looks like, and what follows if it is sent back."""
    lines = []
    judged = cli_life.verdict(found) if prospects else None
    if judged:
        lines.append(escape(judged))
    for source in prospects:
        command = escape(f"homing redrive {source['lies_in']} --id {found['message_id']}")
        queue = escape(source["queue"])
        text = f"[bold]If it is sent back[/] ([cyan]{command}[/]) it goes to queue [bold]{queue}[/], its failures at 0 again"
        lines.append(text + escape(chances(source)))
    return lines
