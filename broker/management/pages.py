"""Lists in pages: what there may be very many of is never one answer, for a frame must hold it. A page is made an entry at a time, so that
nobody else waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgpack import packb

from ..broker import Broker
from ..errors import Refused
from ..steps import Steps
from . import arguments as read

T = TypeVar("T")

#: Entries of one page.
MAX_PAGE: Final = 250
#: Entries of the whole list for who asks without a page, as clients did before there were any.
MAX_WHOLE: Final = 1000


#: What a list comes to.
Listed = Steps[dict[str, Any] | list[dict[str, Any]]]


def listed(
    broker: Broker,
    arguments: dict[str, Any],
    found: Mapping[str, T],
    describe: Callable[[T], dict[str, Any]],
    shows: Callable[[T], bool] = lambda each: True,
) -> Listed:
    """With ``limit`` or ``after``: ``{items, next}`` in the order of the keys; ``next`` is the ``after`` of the next page, or None.

    A page may hold fewer than ``limit``. Without either: all in one list. Raises Refused where that is more than one answer holds. What
    goes meanwhile is passed over, and so is what is not to be shown.
    """
    paged = arguments.get("limit") is not None or arguments.get("after") is not None
    limit = min(MAX_PAGE, read.number(arguments, "limit", MAX_PAGE, 1, 1_000_000)) if paged else MAX_WHOLE
    after = read.text(arguments, "after") if arguments.get("after") is not None else None
    items: list[dict[str, Any]] = []
    size, last, more = 0, "", False
    for key in sorted(found if after is None else (key for key in found if key > after)):
        yield
        each = found.get(key)
        if each is None or not shows(each):
            continue
        shown = describe(each)
        size += len(packb(shown))
        more = len(items) == limit or bool(items and size > broker.answer_bytes)
        if more:
            break
        items.append(shown)
        last = key
    if paged:
        return {"items": items, "next": last if more else None}
    if more:
        fix = "ask for pages, with limit and after (docs/protocol.md, 2.7); a newer client does"
        raise Refused("too-many-for-one-answer", "there are more than one answer holds", fix)
    return items
