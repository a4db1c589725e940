"""``homing connections``, ``homing connection close`` and ``homing consumers``: who is there, and who holds what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import RenderableType

from ..answers.inventory import Connection, Consumer
from ..answers.parts import Fields
from ..core.settings.units import counted
from ..words.amounts import size, span_since
from .completion import queue_argument
from .output import DEFAULT_URL, Json, Url, escape, print_json, stdout
from .tables import Column, Listing, Wide
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

app = typer.Typer(help="One connection.", no_args_is_help=True)


#: AMQP clients that name no prefetch have this one.
NO_LIMIT: Final = 1 << 30


class Order(StrEnum):
    """What connections are sorted by; the largest first."""

    NAME = "name"
    MEMORY = "memory"
    UNSETTLED = "unsettled"


def connections(
    sort: Annotated[Order, typer.Option("--sort", help="Those with the most come first.")] = Order.NAME,
    # What it was called before.
    by: Annotated[Order | None, typer.Option("--by", hidden=True)] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who is connected, from where, since when, and what each holds in the broker's memory."""

    def in_order(each: Connection) -> Any:
        number = int(each["connection"].removeprefix("c"))
        return {Order.NAME: number, Order.MEMORY: -each["memory_bytes"], Order.UNSETTLED: -each["unsettled"]}[by or sort], number

    async def ask(connection: homing.Connection) -> list[Connection]:
        return sorted(await connection.listing("connections"), key=in_order)

    show(url, ask, _connections, as_json=as_json, watch=watch, everything=wide)


def _connections(found: list[Connection]) -> RenderableType:
    named: list[_Shown] = [("connection", 0, partial(_text, "connection")), ("blocked", 1, _blocked), *_CLIENT, *_WHERE, ("for", 4, _age)]
    named.append(("policies", 4, _policies))
    columns, cells = _texts(found, named)
    numbers = {"producers": 4, "consumers": 4, "unsettled": 2, "memory": 2}
    columns += [Column(heading, rank, number=True) for heading, rank in numbers.items()]
    rows = []
    for each, texts in zip(found, cells, strict=True):
        counts = [f"{each[key]:,}" for key in ("producers", "consumers", "unsettled")]
        rows.append([*texts, *counts, size(each["memory_bytes"])])
    return Listing(columns, rows)


def _policies(each: Connection) -> str:
    """Of its consumers, how many brought a redelivery policy of their own."""
    return f"{each['own_policies']} own" if each.get("own_policies") else ""


#: Of a heading, its rank and what stands under it.
_Shown = tuple[str, int, Callable[[Any], str]]


def _text(key: str, each: Fields) -> str:
    return escape(each[key] or "")


def _blocked(each: Connection) -> str:
    blocked = each["blocked"]
    if blocked is None or blocked["since_ms"] is None:
        return ""
    return f"[red]{escape(blocked['why'])}[/], for {span_since(blocked['since_ms'])}"


def product(each: Fields) -> str:
    return escape(" ".join(filter(None, (each["product"], each["product_version"]))))


def _age(each: Connection) -> str:
    return span_since(each["connected_at_ms"])


#: What a client says of itself.
_CLIENT: Final[tuple[_Shown, ...]] = (
    ("client", 1, partial(_text, "client")),
    ("product", 2, product),
    ("host", 4, partial(_text, "host")),
    ("version", 4, partial(_text, "version")),
)
_WHERE: Final[tuple[_Shown, ...]] = (
    ("protocol", 4, partial(_text, "protocol")),
    ("from", 1, partial(_text, "peer")),
    ("user", 3, partial(_text, "user")),
    ("virtual host", 5, partial(_text, "virtual_host")),
)


def _texts(found: Sequence[Fields], shown: Iterable[_Shown]) -> tuple[list[Column], list[list[str]]]:
    """The columns of which there is something in a row, and the rows."""
    all_cells = [(Column(heading, rank), [of(each) for each in found]) for heading, rank, of in shown]
    some = [(column, cells) for column, cells in all_cells if not column.rank or any(cells)]
    return [column for column, _ in some], [list(row) for row in zip(*(cells for _, cells in some), strict=True)]


def consumers(
    queue: Annotated[str | None, queue_argument("Only those of this queue.")] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Who consumes from what, how much each holds, and who is slow: its window is full and nothing of it gets settled."""

    async def ask(connection: homing.Connection) -> list[Consumer]:
        from .client import seen

        return await seen(connection, "consumers", queue=queue)

    show(url, ask, _consumers, as_json=as_json, watch=watch, everything=wide)


def _consumers(found: list[Consumer]) -> RenderableType:
    found = sorted(found, key=lambda each: each["queue"])
    named: list[_Shown] = [("consumer", 0, _consumer), ("queue", 0, partial(_text, "queue")), ("tag", 2, partial(_text, "consumer_tag"))]
    priority: _Shown = ("priority", 4, lambda each: str(each.get("priority") or ""))
    more: list[_Shown] = [
        ("blocked", 1, partial(_text, "blocked")),
        priority,
        ("selector", 4, partial(_text, "selector")),
        ("policy", 4, _policy),
    ]
    columns, cells = _texts(found, [*named, *_CLIENT, *more])
    numbers = {"prefetch": 3, "credit": 4, "unsettled": 0, "given": 4, "memory": 3}
    columns += [Column(heading, rank, number=True) for heading, rank in numbers.items()]
    rows = []
    for each, texts in zip(found, cells, strict=True):
        prefetch, credit = ("no limit" if each["prefetch"] >= NO_LIMIT else f"{each[key]:,}" for key in ("prefetch", "credit"))
        rows.append([*texts, prefetch, credit, f"{each['unsettled']:,}", f"{each['given']:,}", size(each["held_bytes"])])
    return Listing(columns, rows)


def _policy(each: Consumer) -> str:
    """Whose holds for what it fails, where that is not the queue's."""
    return "its own" if each.get("redelivery_policy") else ""


def _consumer(each: Consumer) -> str:
    return escape(each["consumer"]) + ("  [yellow]slow[/]" if each["slow"] else "")


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
