"""The search: to a message, a fault or a queue by its name; else what there is of a text, a property or an AMQP id."""

from __future__ import annotations

import re
import time
from typing import Final, NamedTuple

from starlette.responses import Response

import homing

from ...answers.failures import Message
from ...words.filters import property_of
from .. import reads
from ..asked import address, refused
from ..visits import Visit, goes_to

#: A fault's number, or its beginning.
_FAULT: Final = re.compile(r"\d+-[0-9a-f]{4,16}")
_MESSAGE: Final = re.compile(r"[0-9]{1,18}")
#: Queues whose dead letters are looked at, the fullest first, the newest thousand of each, while there is time.
_MOST_DEAD: Final = 50
_LOOK_S: Final = 0.03
#: Of each kind so many are shown.
_SHOWN: Final = 20


class _Hits(NamedTuple):
    """Messages of a queue that the filter takes: some of them, and where they all are."""

    queue: str
    messages: list[Message]
    where: str


async def search(visit: Visit) -> Response:
    said = visit.request.query_params.get("q", "").strip()
    if not said:
        return goes_to("/")
    if _MESSAGE.fullmatch(said):
        return goes_to(f"/messages/{said}")
    if _FAULT.fullmatch(said):
        return goes_to(f"/faults/{said}")
    if await _is_queue(visit, said):
        return goes_to(address("/queue", [("queue", said)]))
    queues = await reads.if_told(visit.call("queues", limit=_SHOWN, after=None, contains=said))
    names = [each["queue"] for each in queues["items"]] if queues else []
    faults = await reads.if_told(visit.call("faults", queue=None, limit=_SHOWN, after=0, contains=said))
    hits, left = await _messages(visit, said)
    return visit.page("search", said=said, queues=names, faults=faults["items"] if faults else [], hits=hits, left=left)


async def _is_queue(visit: Visit, said: str) -> bool:
    try:
        await visit.call("queue", queue=said)
    except homing.CallError as error:
        if error.code not in ("no-such-queue", "access-refused"):
            raise
        return False
    return True


async def _messages(visit: Visit, said: str) -> tuple[list[_Hits], list[_Hits]]:
    """Dead letters with this property, or this id of AMQP's; and queues that were not looked at to their end."""
    dead = await reads.if_told(reads.listing(visit.connection, "dead-letters", _MOST_DEAD))
    name = "property" if "=" in said else "amqp_message_id"
    try:
        wanted = {"properties": dict([property_of(said)])} if name == "property" else {name: said}
    except ValueError as error:
        raise refused(str(error)) from None
    found: list[_Hits] = []
    left: list[_Hits] = []
    began_s = time.monotonic()
    for each in dead[0] if dead else ():
        where = address("/dead-letters", [("queue", each["queue"]), (name, said)])
        if time.monotonic() - began_s > _LOOK_S:
            left.append(_Hits(each["queue"], [], where))
            continue
        asked = {"queue": each["queue"], "filter": wanted, "limit": _SHOWN, "newest_first": True, "pages": 1}
        page = await reads.if_told(visit.call("peek-dead-letters", **asked))
        if page and page["messages"]:
            found.append(_Hits(each["queue"], page["messages"], where))
        elif page and page["next"] is not None:
            left.append(_Hits(each["queue"], [], where))
    return found, left
