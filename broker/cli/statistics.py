"""``homing statistics``: all queues together, who is connected, what the journal does."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table

from .output import DEFAULT_URL, Json, Url, clock, size
from .watch import Watch, show

_HERE: Final = ("pending", "delivering", "scheduled", "on_hold", "parked")
_BECAME: Final = (
    *("sent", "moved_in", "delivered", "succeeded", "failed", "retried"),
    *("dead_lettered", "expired", "dropped", "purged", "moved_out", "edited"),
)
_OPEN: Final = ("queues", "connections", "producers", "consumers")


def statistics(watch: Watch = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Messages of all queues together, counted since the broker started, with rates; memory, and what the journal has done."""

    async def ask(connection: Any) -> Any:
        return await connection.call("statistics")

    show(url, ask, _draw, as_json=as_json, watch=watch)


def _draw(found: dict[str, Any]) -> RenderableType:
    messages, journal = found["messages"], found["journal"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("messages")
    table.add_column("now", justify="right")
    for key in _HERE:
        table.add_row(key.replace("_", "-"), f"{messages[key]:,}")
    became = Table(box=None, pad_edge=False, header_style="dim")
    became.add_column(f"since {clock(messages['since_ms'], date=True)}")
    became.add_column("in all", justify="right")
    became.add_column("a second", justify="right")
    for key in _BECAME:
        became.add_row(key.replace("_", "-"), f"{messages[key]:,}", f"{messages['rates'][key]:,.1f}")
    rest = Table(box=None, pad_edge=False, header_style="dim")
    rest.add_column("broker")
    rest.add_column("", justify="right")
    for key in _OPEN:
        rest.add_row(key, f"{found[key]:,}")
    rest.add_row("memory", size(found["memory_bytes"]))
    for kind, held in found.get("memory", {}).items():
        rest.add_row(f"  {kind}", size(held))
    rest.add_row("commits", f"{journal['groups']:,}")
    rest.add_row("written", size(journal["bytes_written"]))
    return Group(table, "", became, "", rest)
