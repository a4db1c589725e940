"""Redrives: what one would do, which is shown first; how those fare that are at work."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from ...answers.failures import Redrive
from ...words.redrives import against, drops, expected, meant, planned, progress
from ..asked import number, redrive_in
from ..problems import Problem
from ..visits import Visit, goes_to

_ACTS: Final = {"pause": "pause-redrive", "resume": "resume-redrive", "cancel": "cancel-redrive"}


async def redrives(visit: Visit) -> Response:
    jobs = await visit.call("redrives")
    return visit.page("redrives", jobs=[(each, meant(each), progress(each)) for each in jobs])


async def plan(visit: Visit) -> Response:
    """A dry run."""
    said = visit.request.query_params
    asked = redrive_in(said)
    found = await visit.call("reckon-redrive", **asked.arguments)
    words = {"planned": planned(found), "against": against(found), "drops": drops(found), "expected": expected}
    return visit.page("redrive_new", asked=asked, plan=found, said=said, **words)


async def start(visit: Visit) -> Response:
    asked = redrive_in(await visit.form())
    job = await visit.call("start-redrive", **asked.arguments)
    return goes_to(f"/redrives/{job['job_id']}")


async def redrive(visit: Visit) -> Response:
    job = await visit.call("redrive-status", redrive=_number(visit))
    return visit.page("redrive", job=job, meant=meant(job), progress=progress(job), is_open=_is_open(job))


def _number(visit: Visit) -> int:
    return number(visit.request.path_params["job"], "a redrive's number")


def _is_open(job: Redrive) -> bool:
    """Whether anything may change by itself: it is at work, or what it sent has not ended."""
    return job["state"] in ("running", "paused") or job["waiting"] > 0


async def act(visit: Visit) -> Response:
    verb = _ACTS.get((await visit.form()).get("act", ""))
    if verb is None:
        raise Problem("invalid-argument", "nothing of that name can be done with a redrive", "use the buttons of its page")
    await visit.call(verb, redrive=_number(visit))
    return goes_to(f"/redrives/{_number(visit)}")
