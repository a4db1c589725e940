"""``homing status``: the state of it all: whether producers wait and for what, memory, disk and files, all queues together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table

from ..answers.inventory import Level, Statistics
from ..answers.parts import Fields, Waiting
from ..core.settings.units import counted
from ..words.amounts import clock, size, span, span_since
from .output import DEFAULT_URL, Json, Url, escape
from .tables import Column, Listing, Wide
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

_HERE: Final = ("pending", "delivering", "scheduled", "on_hold", "parked", "dead")
_BAD: Final = ("parked", "dead")
_BECAME: Final = (
    *("sent", "moved_in", "delivered", "succeeded", "failed", "retried"),
    *("dead_lettered", "expired", "dropped", "purged", "moved_out", "edited"),
)
_OPEN: Final = ("queue", "connection", "producer", "consumer")
#: Limits of the broker that are shown where they are set, and what of it they bound.
_LIMITS: Final = {"store-limit": "durable messages", "temp-limit": "not durable, on disk", "log-limit": "the cluster's log"}
_JOURNAL: Final = {"database_bytes": "", "wal_bytes": "write-ahead log ", "history_bytes": "history in it "}


def status(watch: Watch = False, wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """The state of it all: whether producers wait and since when, memory against its limit, disk and files, messages and their rates."""

    async def ask(connection: homing.Connection) -> Statistics:
        found: Statistics = await connection.call("statistics")
        return found

    show(url, ask, _draw, as_json=as_json, watch=watch, everything=wide)


def _draw(found: Statistics) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in (*_producers(found), *_memory(found), *_files(found), *_here(found)):
        grid.add_row(name, text)
    messages = found["messages"]
    rows = [(key.replace("_", "-"), f"{messages[key]:,}", f"{messages['rates'][key]:,.1f}") for key in _BECAME]
    since = Column(f"since {clock(messages['since_ms'], date=True)}")
    return Group(grid, "", Listing([since, Column("in all", number=True), Column("a second", number=True)], rows))


def _producers(found: Statistics) -> list[tuple[str, str]]:
    """A line for each limit that is reached."""
    rows = [("producers", waiting(each)) for each in found["producers_wait"]]
    return rows or [("producers", "[green]none waits[/]")]


def waiting(each: Waiting) -> str:
    """Of one limit, as ``status`` and ``health`` say it."""
    since = f" for {span_since(each['since_ms'])}" if each["since_ms"] is not None else ""
    number, ends = each["producers"], "s" if each["producers"] == 1 else ""
    who = f"{counted(number, 'producer')} wait{ends}{since}" if number else "whoever sends will wait"
    return f"[red]{who}[/]: {escape(each['why'] or each['limit'])}"


def _memory(found: Statistics) -> list[tuple[str, str]]:
    memory, limits = found["memory"], found["limits"]
    level = limits["memory-limit"]
    kinds = ", ".join(f"{kind} {size(held)}" for kind, held in memory.items() if held)
    rows = [("memory", _level(level)), ("", f"[dim]{kinds}[/]")]
    rows += [("", f"{what} {_level(limits[name])}") for name, what in _LIMITS.items() if limits[name]["limit"] is not None]
    return rows


def _level(level: Level) -> str:
    limit = level["limit"] or 0
    share = 100 * level["used"] / max(1, limit)
    shown = f"{size(level['used'])} of {size(limit)}, {share:.0f} %"
    return f"[red]{shown}[/]" if share >= 100 else shown


def _files(found: Statistics) -> list[tuple[str, str]]:
    journal, disk = found["journal"], found["disk"]
    free = f"{size(disk['free_bytes'])} free, {size(disk['reserve_bytes'])} of it in reserve"
    if disk["low"]:
        free = f"[red]{free}: nearly full[/]"
    if disk["waits_ms"] >= 1000:
        free += f", [red]has not answered for {span(disk['waits_ms'])}[/]"
    kept = ", ".join(f"{what}{size(journal[key])}" for key, what in _JOURNAL.items())
    commits = f"{counted(journal['groups'], 'commit')}, {size(journal['bytes_written'])} written"
    log = [] if found["log_bytes"] is None else [("log", size(found["log_bytes"]))]
    return [("disk", free), ("journal", kept), ("", f"[dim]{commits}[/]"), *log]


def _here(found: Statistics) -> list[tuple[str, str]]:
    messages: Fields = found["messages"]
    there: Fields = found
    now = [(key, f"{messages[key]:,} {key.replace('_', ' ')}") for key in _HERE]
    said = ", ".join(f"[red]{text}[/]" if key in _BAD and messages[key] else text for key, text in now)
    rows = [("messages", said), ("open", ", ".join(counted(there[f"{each}s"], each) for each in _OPEN))]
    if found["failed_not_kept"]:
        number = counted(found["failed_not_kept"], "message")
        rows.append(
            ("", f"[red]{number}[/] that {'is' if found['failed_not_kept'] == 1 else 'are'} not durable failed and found no room on disk")
        )
    if found["queues_staying"]:
        rows.append(("", f"[red]{counted(found['queues_staying'], 'queue')}[/] that ended, there for what is parked in them"))
    if found.get("slow_policies"):
        rows.append(("", f"[red]slow patterns[/] of policies: {escape(', '.join(found['slow_policies']))} (homing policy list)"))
    return rows
