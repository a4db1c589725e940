"""Lists in pages: what there may be very many of is never one answer, for a frame must hold it and the loop must not be held by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Any, Final, TypeVar

from msgpack import packb

from ..broker import Broker
from ..errors import Refused
from . import arguments as read

T = TypeVar("T")

#: Entries of one page.
MAX_PAGE: Final = 250
#: Entries of the whole list for who asks without a page, as clients did before there were any.
MAX_WHOLE: Final = 1000


def listed(
    broker: Broker, arguments: dict[str, Any], found: Mapping[str, T], describe: Callable[[T], dict[str, Any]]
) -> dict[str, Any] | list[dict[str, Any]]:
    """With ``limit`` or ``after``: ``{items, next}`` in the order of the keys; ``next`` is the ``after`` of the next page, or None.

    A page may hold fewer than ``limit``. Without either: all in one list. Raises Refused where that is more than one answer holds.
    """
    paged = arguments.get("limit") is not None or arguments.get("after") is not None
    limit = min(MAX_PAGE, read.number(arguments, "limit", MAX_PAGE, 1, 1_000_000)) if paged else MAX_WHOLE
    after = read.text(arguments, "after") if arguments.get("after") is not None else None
    keys = nsmallest(limit + 1, found if after is None else (key for key in found if key > after))
    items: list[dict[str, Any]] = []
    size = 0
    for key in keys[:limit]:
        shown = describe(found[key])
        size += len(packb(shown))
        if items and size > broker.answer_bytes:
            break
        items.append(shown)
    more = len(items) < len(keys)
    if paged:
        return {"items": items, "next": keys[len(items) - 1] if more else None}
    if more:
        fix = "ask for pages, with limit and after (docs/protocol.md, 2.7); a newer client does"
        raise Refused("too-many-for-one-answer", f"there are {len(found)}, more than one answer holds", fix)
    return items
