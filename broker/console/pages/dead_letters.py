"""Which queues have dead letters; those of one queue that a filter takes; and what is to be deleted of them, which is shown before."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from .. import reads
from ..actions import to_its_end
from ..asked import FIELDS, After, address, filter_in, number, pairs, queue_in
from ..problems import Problem
from ..visits import Visit, goes_to

_PAGE: Final = 50
_SAMPLES: Final = 10
_QUEUES: Final = 100
#: A page deletes no more at once: a command shows how far it is, and goes on where it was stopped.
MOST_DELETED: Final = 10_000


async def dead_letters(visit: Visit) -> Response:
    said = visit.request.query_params
    if not said.get("queue"):
        at = number(said.get("after") or "0", "after")
        found = await visit.call("dead-letters", limit=_QUEUES, after=at)
        more = None if found["next"] is None else address("/dead-letters", [("after", After.of(found["next"]))])
        return visit.page("dead_queues", queues=found["items"], left_out=found["left_out"], following=more, first=at == 0)
    queue, wanted, after = queue_in(said), filter_in(said), After(said.get("after", ""))
    page = await reads.letters(visit.connection, queue, wanted, limit=_PAGE, after=after.cursor, newest_first=True)
    kept = pairs(said, FIELDS)
    following = None
    if page.next is not None:
        following = address("/dead-letters", [("queue", queue)], kept, [("after", After.of(page.next))])
    return visit.page(
        "dead_letters",
        queue=queue,
        said=said,
        wanted=wanted,
        kept=kept,
        rows=page.rows,
        looked_at=page.looked_at,
        following=following,
        redrive=address("/redrives/new", [("queue", queue)], kept),
        delete=address("/dead-letters/delete", [("queue", queue)], kept),
        is_first=not after.text,
    )


async def deletion(visit: Visit) -> Response:
    """How many it would be, and some of them."""
    said = visit.request.query_params
    queue, wanted = queue_in(said), filter_in(said)
    found = await reads.removal(visit.connection, queue, wanted, _SAMPLES)
    return visit.page("deletion", queue=queue, wanted=wanted, kept=pairs(said, FIELDS), found=found, most=MOST_DELETED)


async def delete(visit: Visit) -> Response:
    said = await visit.form()
    queue, wanted = queue_in(said), filter_in(said)
    found = await reads.removal(visit.connection, queue, wanted, 1)
    if found.messages > MOST_DELETED:
        fix = f"give a narrower filter, or use {visit.commands.filtered(['dead', 'delete', queue], wanted)}"
        raise Problem("too-many", f"that would be more than {MOST_DELETED:,} messages, and a page deletes no more at once", fix, 409)
    await to_its_end(visit.connection, "delete-dead-letters", queue=queue, filter=wanted)
    return goes_to(address("/dead-letters", [("queue", queue)]))
