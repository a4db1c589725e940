"""Queues; and one: what is in it, who consumes, what becomes of a message that always fails there, and which settings say so."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

import homing

from ...answers.inventory import Queue
from ...answers.parts import Properties
from ...words.amounts import counted
from ...words.attempts import SHOWN_ATTEMPTS, Attempts, answered, attempts_of, ending
from ...words.settings import origin_text, settings_in, value_text
from ..asked import address, lines_in, queue_in, refused
from ..problems import Problem
from ..reads import if_told, is_there, listing
from ..visits import Deed, Visit, goes_to
from .connections import consumers_of

_PAGE: Final = 100
_MOST_CONSUMERS: Final = 50
_MOST_BOUND: Final = 12
#: How messages leave a queue, in its minute counts.
_LEAVES: Final = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out", "lost")
_ACTS: Final = ("pause", "resume")


async def queues(visit: Visit) -> Response:
    after = visit.request.query_params.get("after") or None
    page = await visit.call("queues", limit=_PAGE, after=after)
    following = address("/queues", [("after", page["next"])]) if page["next"] is not None else None
    return visit.page("queues", queues=page["items"], following=following, left_out=page["left_out"], first=after is None)


async def queue(visit: Visit) -> Response:
    name, instead = queue_in(visit.request.query_params), lines_in(visit.request.query_params, "instead")
    found = await visit.call("queue", queue=name)
    consumers = await if_told(listing(visit.connection, "consumers", _MOST_CONSUMERS, queue=name))
    values: Properties = {
        "queue": found,
        "consumers": consumers and consumers_of(consumers[0], "Queue"),
        "attempts": None,
        "instead": instead,
        "settings": [],
    }
    values["courses"] = [
        await _course(visit, found, words, minutes, width) for words, minutes, width in (("hour", 60, 1), ("24 hours", 1440, 60))
    ]
    bound = await visit.call("bindings", queue=name, limit=_MOST_BOUND, after=None)
    values |= {"bindings": bound["items"], "more_bound": bound["next"] is not None, "said": None}
    explained = await if_told(visit.call("explain", address=name))
    if explained is not None:
        said = answered(explained)
        try:
            shown = attempts_of(said, SHOWN_ATTEMPTS, None, {}, settings_in(instead))
        except ValueError as error:
            raise refused(str(error)) from None
        values |= {
            "said": said,
            "there": {each for each in said.dead_letter_queues if await is_there(visit.connection, each)},
            "expires_to": shown.settings.expiry_address,
            "attempts": _drawn(shown),
            "ending": ending(shown, said),
            "warning": shown.warning,
        }
        values["settings"] = [(each.key, value_text(each.key, each.value), origin_text(each)) for each in said.origins]
    return visit.page("queue", **values)


async def _course(visit: Visit, queue: Queue, words: str, minutes: int, width: int) -> Properties:
    """What came, went and failed, and how much was there, part by part."""
    told = await visit.call("counts", queue=queue["queue"], minutes=minutes, width_minutes=width)
    by_time = {each["at_ms"]: each for each in told["parts"]}
    rows = [by_time.get(told["since_ms"] + at * width * 60_000, {}) for at in range(minutes // width)]
    came = [row.get("sent", 0) + row.get("moved_in", 0) for row in rows]
    left = [sum(row.get(name, 0) for name in _LEAVES) for row in rows]
    depths = [int(queue["messages"])]
    for came_in, went in zip(reversed(came[1:]), reversed(left[1:]), strict=True):
        depths.append(max(0, depths[-1] - came_in + went))
    drawn = {"Came": came, "Succeeded": [row.get("succeeded", 0) for row in rows], "Failed": [row.get("failed", 0) for row in rows]}
    return {"words": words, "drawn": drawn, "depths": depths[::-1]}


def _drawn(found: Attempts) -> list[Properties]:
    """Each attempt, and how far along the whole it comes at the latest, in per cent: by the square root, which sets early ones apart."""
    most = max((row.max_total_ms for row in found.rows), default=0)
    return [{"row": row, "share": round(100 * (row.max_total_ms / most) ** 0.5) if most else 0} for row in found.rows]


async def act(visit: Visit) -> Response:
    said = await visit.form()
    verb = said.get("act", "")
    if verb not in _ACTS:
        raise Problem("invalid-argument", "nothing of that name can be done with a queue", "use the buttons of its page")
    name = queue_in(said)
    await visit.call(verb, queue=name)
    return goes_to(address("/queue", [("queue", name)]))


async def purging(visit: Visit) -> Response:
    name = queue_in(visit.request.query_params)
    found = await visit.call("queue", queue=name)
    number, held = found["messages"] - found["delivering"], found["delivering"]
    kept = f" The {counted(held, 'message')} that consumers hold stay." if held else ""
    dead = f", of which {found['dead']:,} are dead letters" if found["dead"] else ""
    return visit.ask(
        Deed(
            f"Purge {name}",
            f"This removes {counted(number, 'message')} for good{dead}.{kept}",
            f"Remove {number:,}",
            address("/queue", [("queue", name)]),
            visit.commands.say("queue", "purge", name),
            [("queue", name)],
        )
    )


async def purge(visit: Visit) -> Response:
    name = queue_in(await visit.form())
    await visit.call("purge", queue=name)
    return goes_to(address("/queue", [("queue", name)]))


async def waiting(visit: Visit) -> Response:
    """What is due when, and what of it failed."""
    queue = visit.request.query_params.get("queue") or None
    calendar = await if_told(visit.call("due", queue=queue))
    try:
        retrying = await visit.call("retrying")
    except homing.CallError as error:
        if error.code != "access-refused" or calendar is None:
            raise
        retrying = None
    rows = retrying and [each for each in retrying if queue in (None, each["queue"])]
    most = max((each["messages"] for each in calendar["due"]), default=1) if calendar else 1
    return visit.page("waiting", calendar=calendar, most=most, queue=queue, retrying=rows)
