"""Who may see figures from elsewhere: whoever logs in, over TLS, and has the right ``monitor``."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import NamedTuple

from starlette.requests import Request

from ..auth.access import Access
from ..auth.logins import Logins
from ..core.rights import Place, Right
from ..errors import Refused

_TLS: Refused = Refused(
    "tls-required",
    "from elsewhere figures are shown over TLS only",
    "ask https:// at http.tls-port; or, for passwords in the clear, start with --insecure",
)
_USERS: Refused = Refused(
    "users-required", "from elsewhere figures are shown to users only, and there are none", "make one with homing user add"
)


class _Visitor(NamedTuple):
    user: str
    peer: str


class Monitors:
    """``insecure``: passwords may cross the network in the clear."""

    def __init__(self, logins: Logins, access: Access, insecure: bool) -> None:
        self._logins = logins
        self._access = access
        self._insecure = insecure

    async def check(self, request: Request) -> None:
        """Raises Refused."""
        if request.url.scheme != "https" and not self._insecure:
            raise _TLS
        if not self._logins.wanted:
            raise _USERS
        peer = request.client.host if request.client is not None else ""
        answered: asyncio.Future[str | Refused] = asyncio.get_running_loop().create_future()
        call_off = self._logins.check(*_credentials(request), peer, lambda said: None if answered.done() else answered.set_result(said))
        try:
            said = await answered
        except asyncio.CancelledError:
            if call_off is not None:
                call_off()
            raise
        if isinstance(said, Refused):
            raise said
        self._access.check(_Visitor(said, peer), Right.MONITOR, Place("broker"), verb="metrics")


def _credentials(request: Request) -> tuple[str | None, str | None]:
    kind, _, said = request.headers.get("authorization", "").partition(" ")
    try:
        user, colon, password = base64.b64decode(said, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return (user, password) if kind.lower() == "basic" and colon else (None, None)
