"""The pages and their addresses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .api import routes as api
from .commands import Commands
from .guard import Guard
from .links import Brokers, Links
from .logins import Logins
from .pages import (
    connections,
    dead_letters,
    edit,
    entry,
    events,
    faults,
    journal,
    message,
    overview,
    queues,
    redrives,
    search,
    settings,
    users,
)
from .problems import Problem
from .templates import Templates
from .visits import LOGOUT, Desk, Handler, Visit, visited

_STATIC: Final = Path(__file__).parent / "static"
_PAGES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/", overview.overview),
    ("GET", "/faults", faults.faults),
    ("GET", "/faults/{fault}", faults.fault),
    ("POST", "/faults/{fault}", faults.act),
    ("GET", "/dead-letters", dead_letters.dead_letters),
    ("GET", "/dead-letters/delete", dead_letters.deletion),
    ("POST", "/dead-letters/delete", dead_letters.delete),
    ("GET", "/messages/{message_id}", message.message),
    ("GET", "/messages/{message_id}/body", message.body),
    ("GET", "/messages/{message_id}/edit", edit.edit),
    ("POST", "/messages/{message_id}/edit", edit.act),
    ("GET", "/redrives", redrives.redrives),
    ("POST", "/redrives", redrives.start),
    ("GET", "/redrives/new", redrives.plan),
    ("GET", "/redrives/{job}", redrives.redrive),
    ("POST", "/redrives/{job}", redrives.act),
    ("GET", "/queues", queues.queues),
    ("GET", "/queue", queues.queue),
    ("POST", "/queue", queues.act),
    ("GET", "/queue/purge", queues.purging),
    ("POST", "/queue/purge", queues.purge),
    ("GET", "/waiting", queues.waiting),
    ("GET", "/connections", connections.connections),
    ("GET", "/connections/{connection}", connections.connection),
    ("GET", "/connections/{connection}/close", connections.closing),
    ("POST", "/connections/{connection}/close", connections.close),
    ("GET", "/settings", settings.settings),
    ("GET", "/settings/change", settings.change),
    ("POST", "/settings/change", settings.apply),
    ("GET", "/users", users.users),
    ("GET", "/journal", journal.journal),
    ("GET", "/journal/backup", journal.backing_up),
    ("POST", "/journal/backup", journal.back_up),
    ("GET", "/journal/export", journal.exporting),
    ("POST", "/journal/export", journal.export),
    ("GET", "/journal/export/{name}", journal.export_file),
    ("GET", "/reports/{name}", journal.report),
    ("GET", "/events", events.events),
    ("GET", "/search", search.search),
)


def make(urls: Mapping[str, str], hosts: frozenset[str], cookie: str, read_only: bool, exposed: bool) -> Starlette:
    """``urls``: of each broker, without a user, the options by which commands find it; ``hosts``: see Guard; ``cookie``: a name of its own,
    as browsers do not tell ports apart; ``exposed``: see Links."""
    brokers = Brokers(Links(url, Commands(options), time.monotonic, exposed) for url, options in urls.items())
    desk = Desk(brokers, Logins(time.monotonic, cookie), Templates(), read_only)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweep = asyncio.create_task(brokers.sweep())
        yield
        sweep.cancel()
        await brokers.close()

    async def leave(visit: Visit) -> Response:
        return await entry.leave(visit, desk)

    routes = [Route(path, visited(desk, handler), methods=[method]) for method, path, handler in (*_PAGES, ("POST", LOGOUT, leave))]
    routes += api.routes(brokers, read_only)
    routes += [Route("/login", _alone(desk, entry.login), methods=["GET"]), Route("/login", _alone(desk, entry.enter), methods=["POST"])]
    return Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=_STATIC))],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=dict.fromkeys((404, 405), partial(_not_there, desk)),
        lifespan=lifespan,
    )


def _alone(desk: Desk, handler: Callable[[Desk, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A route for who is not logged in."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(desk, request)
        except Problem as problem:
            return desk.page("problem", request, None, problem.status, problem=problem)

    return answer


_NO_OPERATION: Final = Problem("no-such-operation", "there is no such operation", "/api/v1/openapi.json has those that are", 404)
_NO_PAGE: Final = Problem("no-such-page", "there is no such page", "the menu has those that are", 404)
_NO_METHOD: Final = Problem("no-such-method", "that method is not for this address", "use one that Allow names", 405)


async def _not_there(desk: Desk, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    is_api = request.url.path.startswith("/api/")
    problem = _NO_METHOD if error.status_code == 405 else _NO_OPERATION if is_api else _NO_PAGE
    if is_api:
        return api.problem_of(problem, error.headers)
    page = desk.page("problem", request, desk.logins.of(request), problem.status, problem=problem)
    page.headers.update(error.headers or {})
    return page
