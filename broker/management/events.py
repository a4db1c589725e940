"""The last events of each kind, as the journal keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, cast

from ..answers.administration import BrokerEvent
from ..answers.parts import NumberedPage
from ..auth.access import Who, everywhere, place_named, shown_only
from ..broker import Broker
from ..core.event import KINDS
from ..core.rights import Right
from ..errors import Refused
from . import arguments as read
from .pages import Shown
from .process import Process, in_thread

#: Of one page.
_MOST: Final = 250
#: For the first page all are looked at, of which there are never very many: whether anything of them may be seen.
_ALL: Final = -1


def _kinds(_: Broker, name: str, value: object) -> list[str]:
    if not isinstance(value, list) or any(kind not in KINDS for kind in value):
        raise Refused("invalid-argument", f"{name} must be events, not {str(value)[:80]}", f"there are {', '.join(KINDS)}")
    return value


@shown_only(Right.MONITOR)
async def list_all(
    broker: Broker,
    who: Who,
    *,
    process: Process,
    kinds: Annotated[Sequence[str], _kinds] = (),
    since_ms: read.Number = 0,
    limit: Annotated[int, read.number(1, _MOST)] = _MOST,
    after: read.Number = 0,
) -> NumberedPage[BrokerEvent]:
    """A page of those of queues that whoever asks may monitor, as they happened. ``after``: ``next`` of the page before."""
    found = await in_thread(lambda: process.past().events(kinds, since_ms, after, limit if after else _ALL))
    shown = Shown(broker, who, Right.MONITOR, "events")
    seen = [
        (number, content) for number, queue, address, content in found if shown(place_named(queue, address) if queue else everywhere()[0])
    ]
    if not after:
        shown.check()
    last = found[limit - 1][0] if len(found) >= limit else None
    items = [cast(BrokerEvent, {"number": number, **content}) for number, content in seen if last is None or number <= last]
    return {"items": items, "next": last, "left_out": None if after else shown.left_out()}
