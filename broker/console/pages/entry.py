"""In and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

import homing

from ..problems import Problem
from ..visits import Desk, Visit, form_of, goes_to, is_ours


async def login(desk: Desk, request: Request) -> Response:
    following = _following(request.query_params.get("next", ""))
    return desk.page("login", request, None, problem=None, user="", chosen="", following=following)


def _following(where: str) -> str:
    return where if is_ours(where) else "/"


async def enter(desk: Desk, request: Request) -> Response:
    said = await form_of(request)
    user, password, following = said.get("user", ""), said.get("password", ""), _following(said.get("next", ""))
    links = desk.brokers.named(said.get("broker", ""))
    try:
        await links.get(user, password)
    except homing.HomingError as error:
        problem = Problem.of(error)
        return desk.page("login", request, None, problem.status, problem=problem, user=user, chosen=links.url, following=following)
    response = goes_to(following)
    desk.logins.end(request, response)
    desk.logins.begin(links.url, user, password, request, response)
    return response


async def leave(visit: Visit, desk: Desk) -> Response:
    await visit.form()
    response = goes_to("/login")
    desk.logins.end(visit.request, response)
    return response
