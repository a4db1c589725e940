"""Connections; and one: its client, what it consumes and holds, and closing it."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from ...answers.inventory import Connection, Consumer
from ...answers.parts import Fields
from ...words.amounts import counted, size
from ..asked import address
from ..problems import Problem
from ..reads import if_told, listing
from ..tables import Cell, Column, Table, joined, link, over, table, tagged
from ..templates import ago
from ..visits import Deed, Visit, goes_to

_PAGE: Final = 100
#: Among so many one is looked for.
_MOST: Final = 10_000
#: AMQP clients that name no prefetch have this one.
_NO_LIMIT: Final = 1 << 30


def _library(each: Fields) -> str | None:
    return " ".join(filter(None, (each["product"], each["product_version"]))) or None


def _prefetch(each: Consumer) -> str:
    return "no limit" if each["prefetch"] >= _NO_LIMIT else f"{each['prefetch']:,}"


def _held(each: Consumer) -> Cell:
    """How many, and since when the oldest of them."""
    return over(f"{each['unsettled']:,}", Markup("oldest {}").format(ago(each["holds_since_ms"]))) if each["unsettled"] else 0


_LIBRARY: Final = Column("Library", lambda each: tagged(_library(each) or "–", "instrumented" if each["instrumented"] else None))
_RELEASE: Final = Column("Host, release", lambda each: joined(each["host"], each["version"]))
_CONNECTIONS: Final = (
    Column("Connection", lambda each: tagged(over(_named(each), each["client"]), each["blocked"] and "blocked")),
    _LIBRARY,
    _RELEASE,
    Column("From", lambda each: over(each["peer"] or "–", joined(each["user"], each["virtual_host"]))),
    Column("Since", lambda each: ago(each["connected_at_ms"])),
    Column("Consumers", lambda each: each["consumers"], is_number=True),
    Column("Holds", lambda each: each["unsettled"], is_number=True),
    Column("Memory", lambda each: size(each["memory_bytes"]), is_number=True),
)
_CONSUMERS: Final = (
    Column("Consumer", lambda each: tagged(over(each["consumer"], each["client"]), each["blocked"], "slow" if each["slow"] else None)),
    Column("Connection", lambda each: _named(each)),
    Column("Queue", lambda each: link(each["queue"], "/queue", queue=each["queue"])),
    _LIBRARY,
    _RELEASE,
    Column("Prefetch", _prefetch, is_number=True),
    Column("Holds", _held, is_number=True),
)


def _named(each: Fields) -> str:
    return link(each["connection"], f"/connections/{each['connection']}")


def consumers_of(entries: list[Consumer], without: str) -> Table:
    """``without``: what all of them have alike."""
    return table("consumers", "Consumers", [each for each in _CONSUMERS if each.heading != without], entries)


async def connections(visit: Visit) -> Response:
    after = visit.request.query_params.get("after") or None
    page = await visit.call("connections", limit=_PAGE, after=after)
    following = address("/connections", [("after", page["next"])]) if page["next"] is not None else None
    return visit.page("connections", found=table("connections", "Connections", _CONNECTIONS, page["items"]), following=following)


async def _one(visit: Visit) -> Connection:
    name = visit.request.path_params["connection"]
    found: list[Connection] = (await listing(visit.connection, "connections", _MOST))[0]
    for each in found:
        if each["connection"] == name:
            return each
    raise Problem("no-such-connection", f"there is no connection {name}", "the page of connections has those that are", 404)


async def connection(visit: Visit) -> Response:
    found = await _one(visit)
    consuming = await if_told(listing(visit.connection, "consumers", _MOST, queue=None))
    mine = [each for each in consuming[0] if each["connection"] == found["connection"]] if consuming else []
    return visit.page("connection", found=found, library=_library(found), consumers=consumers_of(mine, "Connection") if mine else None)


async def closing(visit: Visit) -> Response:
    found = await _one(visit)
    name, held = found["connection"], counted(found["unsettled"], "message")
    return visit.ask(
        Deed(
            f"Close connection {name}",
            f"Its {counted(found['consumers'], 'consumer')} and {counted(found['producers'], 'producer')} end, and what it "
            f"holds, {held}, goes back to where it was, which counts as no failure. Its client may connect again.",
            "Close it",
            f"/connections/{name}",
            visit.commands.say("connection", "close", name),
        )
    )


async def close(visit: Visit) -> Response:
    await visit.form()
    await visit.call("close-connection", connection=visit.request.path_params["connection"])
    return goes_to("/connections")
