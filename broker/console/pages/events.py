"""What happened lately that an operator wants to hear of, the latest first."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from starlette.responses import Response

from ...answers.administration import BrokerEvent
from ..asked import address
from ..reads import listing
from ..visits import Visit

_SINCE_MS: Final = 24 * 3_600_000
#: There are 200 of each kind at most.
_MOST: Final = 3000
_SHOWN: Final = 200


async def events(visit: Visit) -> Response:
    since_ms = time.time_ns() // 1_000_000 - _SINCE_MS
    found, _ = await listing(visit.connection, "events", _MOST, kinds=None, since_ms=since_ms)
    rows = [{**each, "at_ms": _ms(each["time"]), "page": _page_of(each)} for each in reversed(found[-_SHOWN:])]
    return visit.page("events", events=rows, more=max(0, len(found) - _SHOWN))


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _page_of(event: BrokerEvent) -> str | None:
    """Where the console shows what it is about."""
    if "fault" in event:
        return f"/faults/{event['fault']}"
    if "redrive" in event:
        return f"/redrives/{event['redrive']}"
    if "dead_in" in event:
        return address("/dead-letters", [("queue", event["dead_in"])])
    return address("/queue", [("queue", event["queue"])]) if "queue" in event else None
