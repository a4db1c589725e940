"""``homing queue …`` and ``homing peek``: what stands in a queue, and what is done with it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..answers.failures import Message
from ..answers.parts import Fields, Properties
from ..core.settings.units import counted
from ..words.amounts import clock
from ..words.deaths import Death, deaths_in
from . import message_filter as of
from .completion import queue_argument
from .output import DEFAULT_URL, Json, Url, Yes, body_json, body_text, confirm, escape, print_json, stdout
from .values import Settings, settings_given

if TYPE_CHECKING:
    import homing

app = typer.Typer(help="One queue: create, delete, purge, pause, resume.", no_args_is_help=True)

#: By which programs know a message.
_IDS: Final = {"amqp_message_id": "message-id", "app_id": "app-id"}
#: Messages of one answer.
_PAGE: Final = 100


@of.filtered
def peek(
    queue: Annotated[str, queue_argument("The queue to look into.")],
    wanted: of.Filter,
    after: of.After = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="At most this many.")] = 10,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Look at what waits in a queue, in order, without taking it; of a dead letter also why it is one.

    With [bold]--json[/], one JSON object a line.
    """
    from .client import talk

    verb = "peek-dead-letters" if wanted else "peek"
    more: Properties = {"filter": wanted} if wanted else {}

    async def conversation(connection: homing.Connection) -> of.Scan:
        with of.Scan(connection, verb, after, page=_PAGE, most=count, queue=queue, **more) as scan:
            async for page in scan:
                deaths = await deaths_in(connection, page)
                for message, death in zip(page["messages"], deaths, strict=True):
                    _show(message, death, as_json)
        return scan

    talk(url, conversation).show_rest(queue, wanted)


def _show(message: Message, death: Death | None, as_json: bool) -> None:
    """One waiting message: its number, how often it was tried, when it is due, its fault; then its body."""
    if as_json:
        of_death = {"dead_letter": death.shown()} if death is not None else {}
        print_json({**message, "body": body_json(message["body"]), **of_death}, line=True)
        return
    parts = [f"[bold cyan]{message['message_id']}[/]", escape(message["address"])]
    if message.get("failed"):
        parts.append(f"[yellow]failed {message['failed']} ×[/]")
    if message["due_at_ms"] is not None:
        parts.append(f"[magenta]due {clock(message['due_at_ms'])}[/]")
    if message["state"] not in ("ready", "pending"):
        parts.append(f"[dim]{escape(message['state'])}[/]")
    fault = death.fault if death is not None else message["fault"] and message["fault"]["fault"]
    if fault is not None:
        parts.append(f"[dim]fault[/] {escape(fault)}")
    ids: Fields = message
    for key, name in _IDS.items():
        if ids[key] is not None:
            parts.append(f"[dim]{name}[/] {escape(ids[key])}")
    if message["transient"]:
        parts.append("[yellow]transient[/]")
    stdout.print("  ".join(parts))
    if death is not None:
        stdout.print(f"  {escape(death.sentence())}", style="red")
    stdout.print(body_text(message["body"], limit=400), markup=False, style="dim")


Name = Annotated[str, queue_argument("The queue.")]


class RoutingType(StrEnum):
    """How an address deals out what it gets."""

    ANYCAST = "anycast"
    MULTICAST = "multicast"


@app.command()
def create(
    queue: Name,
    settings: Settings = None,
    address: Annotated[str | None, typer.Option("--address", help="What to bind it to.", show_default="one of the queue's name")] = None,
    routing_type: Annotated[
        RoutingType, typer.Option("--routing-type", help="One of its queues gets a message, or all.")
    ] = RoutingType.ANYCAST,
    selector: Annotated[str | None, typer.Option("--selector", "-s", help="Only messages it holds for: \"region = 'eu'\".")] = None,
    durable: Annotated[bool, typer.Option("--durable/--non-durable", help="It survives a restart, or not.")] = True,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="One connection at a time may consume.")] = False,
    max_consumers: Annotated[int | None, typer.Option("--max-consumers", min=1, help="No more consumers than this.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Create a queue that stays when it is empty. The same again is no error; another one of the name is."""
    from .client import call

    given = {"address": address, "selector": selector, "max_consumers": max_consumers, "exclusive": exclusive or None}
    declared = settings_given(settings)
    if None in declared.values():
        raise typer.BadParameter("a queue is not declared with null: take a setting away for its address (homing settings set)")
    options = {**declared, **{key: value for key, value in given.items() if value is not None}}
    made = call(url, "create-queue", queue=queue, routing_type=routing_type.value, durable=durable, **options)
    _said(made, f"[bold]{escape(queue)}[/] is there, on address [bold]{escape(made['address'])}[/]", as_json)


@app.command()
def delete(
    queue: Name,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if nothing is in it.")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only if nobody consumes from it.")] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Delete a queue with all that is in it; its consumers are notified."""
    from .client import call

    found = call(url, "queue", queue=queue)
    what = f"{counted(found['messages'], 'message')} and {counted(found['consumers'], 'consumer')}"
    confirm(f"Queue {found['name']} goes for good, with {what}", yes)
    gone = call(url, "delete-queue", queue=queue, if_empty=if_empty, if_unused=if_unused)
    _said(gone, f"[bold]{escape(queue)}[/] is gone, and with it {counted(gone['messages'], 'message')}", as_json)


@app.command()
def purge(queue: Name, yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Remove all messages of a queue but those that consumers hold."""
    from .client import call

    found = call(url, "queue", queue=queue)
    confirm(f"This removes {counted(found['messages'] - found['delivering'], 'message')} of queue {found['name']} for good", yes)
    gone = call(url, "purge", queue=queue)
    _said(gone, f"{counted(gone['messages'], 'message')} removed from [bold]{escape(queue)}[/]", as_json)


@app.command()
def pause(queue: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Hand out nothing more of a queue until it is resumed, restarts included. What was handed out can be settled."""
    from .client import call

    _said(call(url, "pause", queue=queue), f"[bold]{escape(queue)}[/] is paused", as_json)


@app.command()
def resume(queue: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Hand out a paused queue's messages again."""
    from .client import call

    _said(call(url, "resume", queue=queue), f"[bold]{escape(queue)}[/] goes on", as_json)


def _said(value: object, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        stdout.print(sentence)
