"""What the broker keeps in files for its clients: an export that they asked for, and reports that were made beside it."""

from __future__ import annotations

from typing import Any, Final

from ..auth.access import Who, everywhere, needs
from ..broker import Broker
from ..core.rights import Place, Right
from . import arguments as read
from .host import Host, in_thread

#: Of a file in one answer, at most.
_PART_BYTES: Final = 256 * 1024
_MOST_OFFSET: Final = 1 << 50


@needs((Right.ADMINISTER, everywhere), audited=True)
def start_export(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """Of the whole journal; one at a time, which takes the place of the one before."""
    read.only(arguments, "with_tracebacks")
    return host.start_export(read.flag(arguments, "with_tracebacks"))


@needs((Right.ADMINISTER, everywhere), action="export")
def export(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """How far it is."""
    read.only(arguments)
    return host.export_status()


@needs((Right.ADMINISTER, everywhere), audited=True)
async def discard_export(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """Ends it, and removes its file."""
    read.only(arguments)
    return await host.discard_export()


@needs((Right.ADMINISTER, everywhere), action="export-part")
async def export_part(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """A part of its file. Who begins at the beginning stands in the audit."""
    read.only(arguments, "name", "offset")
    name, offset = read.text(arguments, "name"), read.number(arguments, "offset", 0, 0, _MOST_OFFSET)
    part: dict[str, Any] = await in_thread(lambda: host.export_part(name, offset, _most(broker)))
    if offset == 0:
        broker.access.record(who, "download-export", (Place("broker"),), "done", name=name)
    return part


@needs((Right.BROWSE, everywhere), action="reports")
async def reports(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """The latest first, and where they stand."""
    read.only(arguments)
    found: dict[str, Any] = await in_thread(host.reports)
    return found


@needs((Right.BROWSE, everywhere), action="report-part")
async def report_part(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """A part of the page of a report."""
    read.only(arguments, "name", "offset")
    name, offset = read.text(arguments, "name"), read.number(arguments, "offset", 0, 0, _MOST_OFFSET)
    part: dict[str, Any] = await in_thread(lambda: host.report_part(name, offset, _most(broker)))
    return part


def _most(broker: Broker) -> int:
    return min(_PART_BYTES, broker.limits.answer_bytes // 2)
