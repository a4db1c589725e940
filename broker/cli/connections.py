"""``homing connections``, ``homing connection close`` and ``homing consumers``: who is there, and who holds what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.table import Table

from ..core.settings.units import counted
from .completion import queue_argument
from .output import DEFAULT_URL, Json, Url, escape, print_json, size, span_since, stdout
from .watch import Watch, show

app = typer.Typer(help="One connection.", no_args_is_help=True)


#: AMQP clients that name no prefetch have this one.
_NO_LIMIT: Final = 1 << 30


class Order(StrEnum):
    """What connections are sorted by; the largest first."""

    NAME = "name"
    MEMORY = "memory"
    UNSETTLED = "unsettled"


def connections(
    by: Annotated[Order, typer.Option("--by", help="What to sort by: those with the most come first.")] = Order.NAME,
    watch: Watch = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who is connected, from where, since when, and what each holds in the broker's memory."""

    def in_order(each: dict[str, Any]) -> Any:
        number = int(each["connection"].removeprefix("c"))
        return {Order.NAME: number, Order.MEMORY: -each["memory_bytes"], Order.UNSETTLED: -each["unsettled"]}[by], number

    async def ask(connection: Any) -> list[dict[str, Any]]:
        return sorted(await connection.listing("connections"), key=in_order)

    show(url, ask, _connections, as_json=as_json, watch=watch)


def _connections(found: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("connection", "protocol", "from", "user", "virtual host", "for"):
        table.add_column(heading)
    for heading in ("producers", "consumers", "unsettled", "memory"):
        table.add_column(heading, justify="right")
    for each in found:
        who = [each["connection"], each["protocol"] or "", each["peer"] or "", each["user"], each["virtual_host"]]
        numbers = [f"{each[key]:,}" for key in ("producers", "consumers", "unsettled")]
        table.add_row(*map(escape, who), span_since(each["connected_at_ms"]), *numbers, size(each["memory_bytes"]))
    return table


def consumers(
    queue: Annotated[str | None, queue_argument("Only those of this queue.")] = None,
    watch: Watch = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who consumes from what, how much each holds, and who is slow: its window is full and nothing of it gets settled."""

    async def ask(connection: Any) -> Any:
        return await connection.listing("consumers", queue=queue)

    show(url, ask, _consumers, as_json=as_json, watch=watch)


def _consumers(found: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("consumer", "queue", "selector"):
        table.add_column(heading)
    for heading in ("prefetch", "credit", "unsettled", "given", "memory"):
        table.add_column(heading, justify="right")
    for each in sorted(found, key=lambda each: each["queue"]):
        name = escape(each["consumer"]) + ("  [yellow]slow[/]" if each["slow"] else "")
        prefetch, credit = ("no limit" if each["prefetch"] >= _NO_LIMIT else f"{each[key]:,}" for key in ("prefetch", "credit"))
        numbers = [prefetch, credit, f"{each['unsettled']:,}", f"{each['given']:,}"]
        table.add_row(name, escape(each["queue"]), escape(each["selector"] or ""), *numbers, size(each["held_bytes"]))
    return table


@app.command()
def close(
    connection: Annotated[str, typer.Argument(help="Its name; homing connections shows it.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Close a connection. What it holds goes back to its queues, and counts as no failure; the client may connect again."""
    from .client import call

    closed = call(url, "close-connection", connection=connection)
    if as_json:
        print_json(closed)
    else:
        given_back = counted(closed["given_back"], "message")
        stdout.print(f"[bold]{escape(connection)}[/] is closed; {given_back} went back")
