"""Files that the broker gives a part at a time, handed on as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.responses import Response, StreamingResponse

import homing

from ..answers.administration import Part

TAR: Final = "application/x-tar"
HTML: Final = "text/html"
#: A report has a script of its own: it is shown as of no site, so that it may ask for nothing and reach nothing of the console's.
_APART: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


async def _handed_on(connection: homing.Connection, verb: str, name: str, media: str, headers: Mapping[str, str]) -> Response:
    """``verb``: the call that has the parts of the file of that name. Raises homing.HomingError."""
    first: Part = await connection.call(verb, name=name, offset=0)
    length = {"content-length": str(first["bytes"])}
    return StreamingResponse(_parts(connection, verb, name, first), media_type=media, headers={**length, **headers})


def _kept_as(file: str) -> dict[str, str]:
    """Headers by which a browser keeps it under that name, and shows nothing of it."""
    return {"content-disposition": f'attachment; filename="{file}"'}


async def report_file(connection: homing.Connection, name: str, shown: bool) -> Response:
    """``shown``: by the browser, apart from everything else."""
    headers = {"content-security-policy": _APART} if shown else _kept_as(f"{name}.html")
    return await _handed_on(connection, "report-part", name, HTML, headers)


async def export_file(connection: homing.Connection, name: str) -> Response:
    return await _handed_on(connection, "export-part", name, TAR, _kept_as(f"homing-export-{name}.tar"))


async def _parts(connection: homing.Connection, verb: str, name: str, part: Part) -> AsyncIterator[bytes]:
    yield part["data"]
    while part["next"] is not None:
        part = await connection.call(verb, name=name, offset=part["next"])
        yield part["data"]
