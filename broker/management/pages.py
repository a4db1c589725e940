"""Lists in pages: what there may be very many of is never one answer, for a frame must hold it. A page is made an entry at a time, so that
nobody else waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from msgpack import packb

from ..answers.parts import LeftOut, NumberedPage, Page
from ..auth.access import Who
from ..broker import Broker
from ..core.rights import Place, Right
from ..errors import Refused
from ..steps import Steps
from . import arguments as read

T = TypeVar("T")
#: As it is answered.
D = TypeVar("D")

#: Entries of one page.
MAX_PAGE: Final = 250
#: Entries of the whole list for who asks without a page, as clients did before there were any.
MAX_WHOLE: Final = 1000


#: What a list comes to: a page, or all of it.
Listed = Steps[Page[D] | list[D]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which page; without either the whole list. ``limit``: it may have fewer."""

    limit: Annotated[int, read.number(1, 1_000_000)] | None = None
    after: read.Text | None = None

    @property
    def whole(self) -> bool:
        return self.limit is None and self.after is None


@dataclass(frozen=True, kw_only=True)
class AskedByNumber:
    """The same of a list that is worked out at once."""

    limit: Annotated[int, read.number(1, MAX_PAGE)] | None = None
    after: read.Number | None = None

    @property
    def whole(self) -> bool:
        return self.limit is None and self.after is None

    def of(self, items: Sequence[T]) -> tuple[Sequence[T], int]:
        """Those that are meant, and the place behind the last."""
        end = len(items) if self.whole else (self.after or 0) + (self.limit or MAX_PAGE)
        return items[self.after or 0 : end], end


class Shown:
    """What of a list whoever asks may see. The rest is not there for him, and so is counted: to lack a right is no absence."""

    def __init__(self, broker: Broker, who: Who, right: Right, verb: str) -> None:
        self._broker = broker
        self._who = who
        self._right = right
        self._verb = verb
        self._some = False
        self._left_out: dict[Place, None] = {}

    def __call__(self, place: Place) -> bool:
        allowed = self._broker.access.may(self._who, self._right, place)
        if allowed:
            self._some = True
        else:
            self._left_out[place] = None
        return allowed

    def check(self) -> None:
        """Raises Refused where there is something, and nothing of it to be seen."""
        if not self._some and self._left_out:
            self._broker.access.check(self._who, self._right, *self._left_out, verb=self._verb)

    def left_out(self) -> LeftOut | None:
        """How many queues are left out, and for want of which right."""
        return {"queues": len(self._left_out), "right": str(self._right)} if self._left_out else None


def whole(asked: AskedByNumber, items: Sequence[T], shown: Shown, describe: Callable[[T], D]) -> NumberedPage[D] | list[D]:
    """A list that is worked out at once: as a page where pages are asked for, ``next`` being its place. Raises Refused: see Shown.check."""
    shown.check()
    page, end = asked.of(items)
    if asked.whole:
        return [describe(each) for each in page]
    return {"items": [describe(each) for each in page], "next": end if len(items) > end else None, "left_out": shown.left_out()}


def listed(
    broker: Broker,
    asked: Asked,
    found: Mapping[str, T],
    describe: Callable[[T], D],
    shown: Shown | None = None,
    place_of: Callable[[T], Place] | None = None,
) -> Listed[D]:
    """With ``limit`` or ``after``: ``{items, next}`` in the order of the keys; ``next`` is the ``after`` of the next page, or None.

    A page may hold fewer than ``limit``. Without either: all in one list. Raises Refused where that is more than one answer holds. What
    goes meanwhile is passed over, and so is what is not to be ``shown``, of all of which the first page has the number: ``left_out``.
    """
    after, most = asked.after, MAX_WHOLE if asked.whole else min(MAX_PAGE, asked.limit or MAX_PAGE)
    items: list[D] = []
    size, last, more = 0, "", False
    for key in sorted(found if after is None else (key for key in found if key > after)):
        yield
        each = found.get(key)
        if each is None or not (shown is None or place_of is None or shown(place_of(each))) or more:
            continue
        described = describe(each)
        size += len(packb(described))
        more = len(items) == most or bool(items and size > broker.limits.answer_bytes)
        if more and (shown is None or after is not None):
            break
        if not more:
            items.append(described)
            last = key
    if shown is not None and after is None:
        shown.check()
    if not asked.whole:
        page: Page[D] = {"items": items, "next": last if more else None}
        return page if shown is None else {**page, "left_out": shown.left_out() if after is None else None}
    if more:
        fix = "ask for pages, with limit and after (docs/protocol.md, 2.7); a newer client does"
        raise Refused("too-many-for-one-answer", "there are more than one answer holds", fix)
    return items
