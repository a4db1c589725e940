"""Faults, those first that do most damage; and one of them: its traceback, its messages, and what may be said of it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from ..actions import retry_fault
from ..asked import After, address, number
from ..problems import Problem
from ..visits import Visit, goes_to

_PAGE: Final = 50
#: Queues that one of them is shown of, and those of its dead letters.
_MOST: Final = 20


async def faults(visit: Visit) -> Response:
    said = visit.request.query_params
    queue = said.get("queue") or None
    at = number(said.get("after") or "0", "after")
    page = await visit.call("faults", queue=queue, limit=_PAGE, after=at)
    following = None
    if page["next"] is not None:
        kept = [("queue", queue)] if queue else []
        following = address("/faults", kept, [("after", After.of(page["next"]))])
    return visit.page("faults", groups=page["items"], queue=queue, following=following, left_out=page["left_out"], first=at == 0)


async def fault(visit: Visit) -> Response:
    found = await visit.call("fault", fault=visit.request.path_params["fault"])
    dead_in = list(dict.fromkeys(queue for each in found["groups"] for queue in each["dead_in"]))
    waiting = sum(each["waiting"] for each in found["groups"])
    dead = sum(each["dead"] for each in found["groups"])
    group = found["groups"][0]
    samples = list(dict.fromkeys(number for each in found["groups"] for number in reversed(each["message_ids"])))[:10]
    # Of those that ended since they failed so, how many did well.
    ended = {name: sum(each[name] for each in found["groups"]) for name in ("succeeded", "died")}
    numbers = {"waiting": waiting, "dead": dead, "ended": ended}
    return visit.page("fault", fault=found, group=group, dead_in=dead_in, samples=samples, most=_MOST, **numbers)


async def act(visit: Visit) -> Response:
    """Mute, fixed in a release, and both taken back; try again now what waits."""
    said = await visit.form()
    name = visit.request.path_params["fault"]
    match said.get("act"):
        case "mute":
            await visit.call("mute-fault", fault=name, muted=True)
        case "unmute":
            await visit.call("mute-fault", fault=name, muted=False)
        case "fixed":
            await visit.call("fault-fixed", fault=name, version=said.get("version", "").strip() or None, fixed=True)
        case "reopen":
            await visit.call("fault-fixed", fault=name, version=None, fixed=False)
        case "retry":
            await retry_fault(visit.connection, name)
        case _:
            raise Problem("invalid-argument", "nothing of that name can be done with a fault", "use the buttons of its page")
    return goes_to(f"/faults/{name}")
