"""The last events of each kind, as the journal keeps them."""

from __future__ import annotations

from typing import Any, Final

from ..auth.access import Who, everywhere, place_named, shown_only
from ..broker import Broker
from ..core.event import KINDS
from ..core.rights import Right
from ..errors import Refused
from . import arguments as read
from .host import Host, in_thread
from .pages import Shown

#: Of one page.
_MOST: Final = 250
#: For the first page all are looked at, of which there are never very many: whether anything of them may be seen.
_ALL: Final = -1


@shown_only(Right.MONITOR)
async def list_all(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """A page of those of queues that whoever asks may monitor, as they happened. ``after``: ``next`` of the page before."""
    read.only(arguments, "kinds", "since_ms", "limit", "after")
    limit, after = read.number(arguments, "limit", _MOST, 1, _MOST), read.number(arguments, "after", 0, 0, read.MOST)
    since_ms = read.number(arguments, "since_ms", 0, 0, read.MOST)
    kinds = arguments.get("kinds") or []
    if not isinstance(kinds, list) or any(kind not in KINDS for kind in kinds):
        raise Refused("invalid-argument", f"kinds must be events, not {str(kinds)[:80]}", f"there are {', '.join(KINDS)}")
    found: list[tuple[int, str, str, dict[str, Any]]] = await in_thread(
        lambda: host.events(kinds, since_ms, after, limit if after else _ALL)
    )
    shown = Shown(broker, who, Right.MONITOR, "events")
    seen = [
        (number, content) for number, queue, address, content in found if shown(place_named(queue, address) if queue else everywhere()[0])
    ]
    if not after:
        shown.check()
    last = found[limit - 1][0] if len(found) >= limit else None
    items = [{"number": number, **content} for number, content in seen if last is None or number <= last]
    return {"items": items, "next": last, "left_out": None if after else shown.left_out()}
