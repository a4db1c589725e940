"""What stands before every page: turns away what another site may have had asked, and says what a browser may do with an answer."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_WRITES: Final = "POST"
#: Nothing that is written into a page acts, and no page is shown within another's.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # None at all would have browsers send forms without telling from where.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: Pages are of one user; what stands beside them is the same for all.
_KEPT: Final = {"/static/": "public, max-age=3600"}


class Guard:
    """``hosts``: by which names it may be asked: one that somebody else's DNS points here is none of them. Of any port, as of a tunnel."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept = next((value for path, value in _KEPT.items() if scope["path"].startswith(path)), "no-store")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", kept if message["status"] == 200 else "no-store")
            await send(message)

        refused = self._refused(scope, Headers(scope=scope))
        await (self._app if refused is None else refused)(scope, receive, guarded)

    def _refused(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        host, scheme = headers.get("host", "").lower(), scope["scheme"]
        # With TLS the browser has compared the name with the certificate.
        if scheme != "https" and re.sub(r":\d{1,5}$", "", host) not in self._hosts:
            return PlainTextResponse("This console is not asked by that name: use 127.0.0.1 or localhost.\n", 421)
        if scope["method"] != _WRITES:
            return None
        # A browser says from where a form comes; who calls the API is a program, and need not.
        ours = f"{scheme}://{host}"
        origin = headers.get("origin", ours if scope["path"].startswith("/api/") else "")
        if origin.lower() != ours or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("This came from another site.\n", 403)
        return None
