"""Who is logged in at the pages: sessions in memory, known by a cookie that only holds a random number."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

#: A session ends so long after its login, whatever it does.
LASTS_S: Final = 12 * 3600
#: The oldest makes room for one more.
_MOST: Final = 1000
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Login:
    """Who it is, of which broker, until when, and the word that each of its forms carries, by which it is no other site's."""

    broker: str
    user: str
    password: str = field(repr=False)
    ends_s: float
    csrf: str = field(repr=False)

    def wrote(self, token: str) -> bool:
        """Whether a form with this word is one of its own."""
        return hmac.compare_digest(self.csrf.encode(), token.encode(errors="replace"))


class Logins:
    """``now_s``: a clock that never goes back. Of the cookies, which are called ``name``, only digests are kept."""

    def __init__(self, now_s: Callable[[], float], name: str) -> None:
        self._now_s = now_s
        self._name = name
        self._open: OrderedDict[bytes, Login] = OrderedDict()

    def begin(self, broker: str, user: str, password: str, request: Request, response: Response) -> None:
        """A session of its own for each login: what was sent before one is never taken for it."""
        cookie = secrets.token_urlsafe(_BYTES)
        self._open[_digest(cookie)] = Login(broker, user, password, self._now_s() + LASTS_S, secrets.token_urlsafe(_BYTES))
        if len(self._open) > _MOST:
            self._open.popitem(last=False)
        secure = request.url.scheme == "https"
        response.set_cookie(self._name, cookie, max_age=LASTS_S, path="/", httponly=True, samesite="strict", secure=secure)

    def of(self, request: Request) -> Login | None:
        digest = _digest(request.cookies.get(self._name, ""))
        login = self._open.get(digest)
        if login is not None and login.ends_s <= self._now_s():
            del self._open[digest]
            return None
        return login

    def end(self, request: Request, response: Response) -> None:
        self._open.pop(_digest(request.cookies.get(self._name, "")), None)
        response.delete_cookie(self._name, path="/", httponly=True, samesite="strict")


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
