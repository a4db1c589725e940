"""One request of somebody who is logged in: what he may ask the broker, and how a page becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote

from starlette.datastructures import MultiDict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import homing

from .bodies import body_of
from .links import Brokers
from .logins import Login, Logins
from .problems import READ_ONLY, Problem
from .templates import Templates

LOGOUT: Final = "/logout"
_FORM: Final = "application/x-www-form-urlencoded"
#: Errors after which somebody has to log in anew.
_LOG_IN: Final = ("login-refused", "login-required")


@dataclass(frozen=True)
class Desk:
    """What all requests share."""

    brokers: Brokers
    logins: Logins
    templates: Templates
    #: It only shows.
    read_only: bool

    def page(self, name: str, request: Request, login: Login | None, status: int = 200, **values: Any) -> Response:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        links = self.brokers.named(login.broker if login else "")
        values |= {
            "login": login,
            "here": here,
            "path": request.url.path,
            "broker_url": links.url,
            "brokers": self.brokers.urls,
            "commands": links.commands,
            "read_only": self.read_only,
        }
        return HTMLResponse(self.templates.render(name, values), status)


@dataclass(frozen=True)
class Deed:
    """What somebody wants to do, with its numbers in a sentence, before he does it, which is the same address by POST. ``back``: where he
    came from; ``pairs``: what the form says besides."""

    title: str
    sentence: str
    button: str
    back: str
    command: str
    pairs: Sequence[tuple[str, str]] = ()
    style: Literal["danger", "primary"] = "danger"


class Visit:
    """``connection``: to the broker, with the rights of who is logged in."""

    def __init__(self, desk: Desk, request: Request, login: Login, connection: homing.Connection) -> None:
        self._desk = desk
        self.connection = connection
        self.request = request
        self.login = login
        self.commands = desk.brokers.named(login.broker).commands

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Raises homing.HomingError."""
        return await self.connection.call(verb, **arguments)

    async def form(self) -> MultiDict:
        """What one of our own forms says. Raises Problem for any other's."""
        said = await form_of(self.request)
        if self._desk.read_only and self.request.url.path != LOGOUT:
            raise Problem(*READ_ONLY, 403)
        if not self.login.wrote(said.get("csrf", "")):
            raise Problem(
                "wrong-form", "that form is of another login, or of another site", "go back, load the page anew, and try again", 403
            )
        return said

    def page(self, name: str, **values: Any) -> Response:
        return self._desk.page(name, self.request, self.login, **values)

    def ask(self, deed: Deed) -> Response:
        return self.page("confirm", deed=deed)


async def form_of(request: Request) -> MultiDict:
    """Raises Problem."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Problem("invalid-form", "that is no form of a page", "use the page")
    said = (await body_of(request)).decode(errors="replace")
    return MultiDict(parse_qsl(said, keep_blank_values=True))


def goes_to(where: str) -> RedirectResponse:
    """After something was done: another page, which may be loaded again without doing it again."""
    return RedirectResponse(where, 303)


Handler = Callable[[Visit], Awaitable[Response]]


def visited(desk: Desk, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A route of the pages: who is not logged in logs in first, and what goes wrong is a page, too."""

    async def answer(request: Request) -> Response:
        login = desk.logins.of(request)
        if login is None:
            return _to_login(request)
        try:
            connection = await desk.brokers.named(login.broker).get(login.user, login.password)
            return await handler(Visit(desk, request, login, connection))
        except homing.HomingError as error:
            if isinstance(error, homing.ConnectError) and error.code in _LOG_IN:
                gone = _to_login(request)
                desk.logins.end(request, gone)
                return gone
            problem = Problem.of(error)
        except Problem as error:
            problem = error
        return desk.page("problem", request, login, problem.status, problem=problem)

    return answer


def _to_login(request: Request) -> Response:
    """And back to where he was, if that only shows something."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    where = f"/login?next={quote(here, safe='')}" if request.method == "GET" and here != "/" else "/login"
    if request.headers.get("hx-request"):
        return Response(status_code=200, headers={"HX-Redirect": where})
    return goes_to(where)


def is_ours(where: str) -> bool:
    """Whether an address is one of a page here, and not of another site."""
    return where.startswith("/") and not where.startswith(("//", "/\\")) and where.isprintable()
