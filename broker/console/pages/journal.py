"""The journal: how large it is, what the disk has left, and a copy of it."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from ...words.amounts import size
from ..visits import Deed, Visit


async def journal(visit: Visit) -> Response:
    found = await visit.call("statistics")
    return visit.page("journal", disk=found["disk"], journal=found["journal"], log_bytes=found["log_bytes"], version=found["version"])


async def backing_up(visit: Visit) -> Response:
    """A name that sorts by its time, in UTC."""
    name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    found = await visit.call("statistics")
    bytes_needed = found["journal"]["database_bytes"] + found["journal"]["wal_bytes"]
    return visit.ask(
        Deed(
            "Back the journal up",
            f"This makes a copy of {size(bytes_needed)} at most as {name} in the backup directory of the broker, which goes on meanwhile. "
            f"{size(found['disk']['free_bytes'])} are free at the journal.",
            "Back up",
            "/journal",
            visit.commands.say("journal", "backup", name),
            [("name", name)],
            "primary",
        )
    )


async def back_up(visit: Visit) -> Response:
    said = await visit.form()
    made = await visit.call("backup", name=said.get("name", ""))
    return visit.page("backup", made=made)
