"""The first page: what is wrong now, and below that how much there is of all."""

from __future__ import annotations

import time
from typing import Final

from starlette.responses import Response

from .. import reads
from ..visits import Visit

#: Findings that are shown.
_MOST: Final = 25


async def overview(visit: Visit) -> Response:
    seen = await reads.overview(visit.connection, time.time_ns() // 1_000_000)
    return visit.page("overview", seen=seen, found=seen.findings[:_MOST], more=len(seen.findings) - _MOST, statistics=seen.statistics)
