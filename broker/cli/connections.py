"""``homing connections``, ``homing connection close`` and ``homing consumers``: who is there, and who holds what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType

from ..core.settings.units import counted
from .completion import queue_argument
from .output import DEFAULT_URL, Json, Url, escape, print_json, size, span_since, stdout
from .tables import Column, Listing, Wide
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
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who is connected, from where, since when, and what each holds in the broker's memory."""

    def in_order(each: dict[str, Any]) -> Any:
        number = int(each["connection"].removeprefix("c"))
        return {Order.NAME: number, Order.MEMORY: -each["memory_bytes"], Order.UNSETTLED: -each["unsettled"]}[by], number

    async def ask(connection: Any) -> list[dict[str, Any]]:
        return sorted(await connection.listing("connections"), key=in_order)

    show(url, ask, _connections, as_json=as_json, watch=watch, everything=wide)


def _connections(found: list[dict[str, Any]]) -> RenderableType:
    texts = {"connection": 0, "protocol": 3, "from": 1, "user": 2, "virtual host": 4, "for": 3}
    numbers = {"producers": 4, "consumers": 4, "unsettled": 1, "memory": 1}
    columns = [Column(heading, rank) for heading, rank in texts.items()]
    columns += [Column(heading, rank, number=True) for heading, rank in numbers.items()]
    rows = []
    for each in found:
        who = [each["connection"], each["protocol"] or "", each["peer"] or "", each["user"], each["virtual_host"]]
        counts = [f"{each[key]:,}" for key in ("producers", "consumers", "unsettled")]
        rows.append([*map(escape, who), span_since(each["connected_at_ms"]), *counts, size(each["memory_bytes"])])
    return Listing(columns, rows)


def consumers(
    queue: Annotated[str | None, queue_argument("Only those of this queue.")] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who consumes from what, how much each holds, and who is slow: its window is full and nothing of it gets settled."""

    async def ask(connection: Any) -> Any:
        return await connection.listing("consumers", queue=queue)

    show(url, ask, _consumers, as_json=as_json, watch=watch, everything=wide)


def _consumers(found: list[dict[str, Any]]) -> RenderableType:
    numbers = {"prefetch": 2, "credit": 3, "unsettled": 0, "given": 3, "memory": 2}
    columns = [Column("consumer"), Column("queue"), Column("selector", 4)]
    columns += [Column(heading, rank, number=True) for heading, rank in numbers.items()]
    rows = []
    for each in sorted(found, key=lambda each: each["queue"]):
        name = escape(each["consumer"]) + ("  [yellow]slow[/]" if each["slow"] else "")
        prefetch, credit = ("no limit" if each["prefetch"] >= _NO_LIMIT else f"{each[key]:,}" for key in ("prefetch", "credit"))
        counts = [prefetch, credit, f"{each['unsettled']:,}", f"{each['given']:,}", size(each["held_bytes"])]
        rows.append([name, escape(each["queue"]), escape(each["selector"] or ""), *counts])
    return Listing(columns, rows)


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
