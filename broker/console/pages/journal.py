"""The journal: how large it is, what the disk has left; a copy of it, an export, and reports on exports."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from ...words.amounts import size
from .. import files, reads
from ..visits import Deed, Visit, goes_to


async def journal(visit: Visit) -> Response:
    found = await visit.call("statistics")
    told = {"export": await reads.if_told(visit.call("export")), "reports": await reads.if_told(visit.call("reports"))}
    return visit.page(
        "journal", disk=found["disk"], journal=found["journal"], log_bytes=found["log_bytes"], version=found["version"], **told
    )


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


async def exporting(visit: Visit) -> Response:
    found = await visit.call("statistics")
    before = await visit.call("export")
    instead = f" It takes the place of the one of {before['name']}." if before["state"] == "done" else ""
    return visit.ask(
        Deed(
            "Export the journal",
            f"This writes what is known of messages as Parquet on the broker's disk, where {size(found['disk']['free_bytes'])} are free, "
            f"without bodies and tracebacks. The database has {size(found['journal']['database_bytes'])}.{instead}",
            "Export",
            "/journal",
            "homing journal export --out snapshot",
            style="primary",
        )
    )


async def export(visit: Visit) -> Response:
    said = await visit.form()
    await visit.call("discard-export" if said.get("act") == "discard" else "start-export")
    return goes_to("/journal")


async def export_file(visit: Visit) -> Response:
    return await files.export_file(visit.connection, visit.request.path_params["name"])


async def report(visit: Visit) -> Response:
    return await files.report_file(visit.connection, visit.request.path_params["name"], shown=True)
