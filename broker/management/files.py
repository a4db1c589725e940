"""What the broker keeps in files for its clients: an export that they asked for, and reports that were made beside it."""

from __future__ import annotations

from typing import Annotated, Final

from ..answers.administration import Export, Part, Reports
from ..auth.access import Who, everywhere, needs
from ..broker import Broker
from ..core.rights import Place, Right
from . import arguments as read
from .process import Process, in_thread

#: Of a file in one answer, at most.
_PART_BYTES: Final = 256 * 1024
_Offset = Annotated[int, read.number(0, 1 << 50)]


@needs((Right.ADMINISTER, everywhere), audited=True)
def start_export(broker: Broker, who: Who, *, process: Process, with_tracebacks: read.Flag = False) -> Export:
    """Of the whole journal; one at a time, which takes the place of the one before."""
    return process.files.start_export(with_tracebacks)


@needs((Right.ADMINISTER, everywhere), action="export")
def export(broker: Broker, who: Who, *, process: Process) -> Export:
    """How far it is."""
    return process.files.export()


@needs((Right.ADMINISTER, everywhere), audited=True)
async def discard_export(broker: Broker, who: Who, *, process: Process) -> Export:
    """Ends it, and removes its file."""
    return await process.files.discard_export()


@needs((Right.ADMINISTER, everywhere), action="export-part")
async def export_part(broker: Broker, who: Who, *, process: Process, name: read.Text, offset: _Offset = 0) -> Part:
    """A part of its file. Who begins at the beginning stands in the audit."""
    part = await in_thread(lambda: process.files.export_part(name, offset, _most(broker)))
    if offset == 0:
        broker.access.record(who, "download-export", (Place("broker"),), "done", name=name)
    return part


@needs((Right.BROWSE, everywhere), action="reports")
async def reports(broker: Broker, who: Who, *, process: Process) -> Reports:
    """The latest first, and where they stand."""
    return await in_thread(process.files.reports)


@needs((Right.BROWSE, everywhere), action="report-part")
async def report_part(broker: Broker, who: Who, *, process: Process, name: read.Text, offset: _Offset = 0) -> Part:
    """A part of the page of a report."""
    return await in_thread(lambda: process.files.report_part(name, offset, _most(broker)))


def _most(broker: Broker) -> int:
    return min(_PART_BYTES, broker.limits.answer_bytes // 2)
