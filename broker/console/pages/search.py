"""The search: to a message, a fault or a queue by its name; else what there is of a text, a property or an AMQP id."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from ...words.filters import property_of
from .. import reads
from ..asked import address, refused
from ..overview import error_of
from ..visits import Visit, goes_to

#: A fault's number, or its beginning.
_FAULT: Final = re.compile(r"\d+-[0-9a-f]{4,16}")
_MESSAGE: Final = re.compile(r"[0-9]{1,18}")
#: Of each kind so many are looked at.
_MOST: Final = 1000
_MOST_FAULTS: Final = 250
_MOST_DEAD: Final = 50
#: Of each kind so many are shown.
_SHOWN: Final = 20


class _Hits(NamedTuple):
    """Messages of a queue that the filter takes: some of them, and where they all are."""

    queue: str
    messages: list[dict[str, Any]]
    where: str


async def search(visit: Visit) -> Response:
    said = visit.request.query_params.get("q", "").strip()
    if not said:
        return goes_to("/")
    if _MESSAGE.fullmatch(said):
        return goes_to(f"/messages/{said}")
    if _FAULT.fullmatch(said):
        return goes_to(f"/faults/{said}")
    queues = await reads.if_told(reads.listing(visit.connection, "queues", _MOST))
    names = [each["queue"] for each in queues[0]] if queues else []
    if said in names:
        return goes_to(address("/queue", [("queue", said)]))
    faults = await reads.if_told(visit.call("faults", queue=None, limit=_MOST_FAULTS, after=0))
    lower = said.lower()
    like = [each for each in faults["items"] if lower in error_of(each).lower()] if faults else []
    return visit.page(
        "search",
        said=said,
        queues=[each for each in names if lower in each.lower()][:_SHOWN],
        faults=like[:_SHOWN],
        hits=await _messages(visit, said),
    )


async def _messages(visit: Visit, said: str) -> list[_Hits]:
    """Dead letters with this property, or this id of AMQP's."""
    dead = await reads.if_told(reads.listing(visit.connection, "dead-letters", _MOST_DEAD))
    name = "property" if "=" in said else "amqp_message_id"
    try:
        wanted = {"properties": dict([property_of(said)])} if name == "property" else {name: said}
    except ValueError as error:
        raise refused(str(error)) from None
    found = []
    for each in dead[0] if dead else ():
        page = await reads.if_told(visit.call("peek-dead-letters", queue=each["queue"], filter=wanted, limit=_SHOWN))
        if page and page["messages"]:
            found.append(_Hits(each["queue"], page["messages"], address("/dead-letters", [("queue", each["queue"]), (name, said)])))
    return found
