"""HTTP beside the protocols: whether the process lives, whether it is ready, and its figures. It listens before recovery begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final, NamedTuple

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ..errors import Refused
from ..protocols.codec_foreign import answer, describe
from ..protocols.codec_spoken import spoken
from .health import Health
from .monitor import Monitors

log = logging.getLogger("homing")

#: Sockets at a time, of all clients together. One more takes the place of the oldest that has asked nothing.
MOST_OPEN: Final = 128
_KEEP_ALIVE_S: Final = 5


class Patience(NamedTuple):
    """Seconds that a socket has: to say anything (within TLS), for the rest of a request, for its answer, and to ask again, where uvicorn
    has not closed it by then."""

    first_s: float = 5.0
    request_s: float = 10.0
    answer_s: float = 30.0
    next_s: float = 2.0 * _KEEP_ALIVE_S


PATIENCE: Final = Patience()


class _Http(H11Protocol):
    """One connection, which may turn out to have come to the wrong port, or to say nothing. ``guests``: all there are, in the order they
    came."""

    def __init__(self, config: uvicorn.Config, state: ServerState, guests: dict[_Http, None], patience: Patience) -> None:
        super().__init__(config, state, {})
        self._guests = guests
        self._patience = patience
        self._heard = False
        #: A part of a request is there; and all of it, whose answer is not.
        self._begun = self._asked = False
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._guests[self] = None
        if len(self._guests) > MOST_OPEN:
            silent = next((each for each in self._guests if not each._asked), None)
            (silent or next(iter(self._guests)))._give_way()
        self._wait(self._patience.first_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guests.pop(self, None)
        self._wait(None)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._heard:
            self._heard = True
            theirs = spoken(data)
            if theirs not in (None, "http"):
                host, port = self.transport.get_extra_info("peername")[:2]
                log.warning("wrong-protocol: %s", describe(f"{host}:{port}", theirs, "http"))
                self.transport.write(answer(theirs, "http"))
                self.transport.close()
                return
        if not self._begun and not self._asked:
            self._begun = True
            self._wait(self._patience.request_s)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self._begun = self._asked = False
        self._wait(self._patience.next_s)
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Whether all of a request has come."""
        # uvicorn's cycle is None before the first request.
        if not self._asked and not getattr(self.cycle, "response_complete", True):
            self._begun, self._asked = False, True
            self._wait(self._patience.answer_s)

    def _wait(self, seconds: float | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = None if seconds is None else self.loop.call_later(seconds, self._give_way)

    def _give_way(self) -> None:
        """To another, or because it took too long."""
        self._guests.pop(self, None)
        self.transport.abort()


class HttpListener:
    """Answers from the start on; there are figures once there is somebody who has them (``show``)."""

    def __init__(self, health: Health, patience: Patience = PATIENCE) -> None:
        self._health = health
        self._patience = patience
        self._guests: dict[_Http, None] = {}
        self._figures: Callable[[], Awaitable[list[Metric]]] | None = None
        self._of_node: Callable[[], list[Metric]] = list
        self._process = ProcessCollector(registry=CollectorRegistry())
        self._state = ServerState()
        routes = {"/livez": self._live, "/readyz": self._ready, "/metrics": self._metrics}
        self._monitors: Monitors | None = None
        self.app = Starlette(routes=[Route(path, answer) for path, answer in routes.items()])
        self._config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._config.load()

    def show(self, figures: Callable[[], Awaitable[list[Metric]]], monitors: Monitors) -> None:
        """``monitors``: who may see it from elsewhere."""
        self._figures = figures
        self._monitors = monitors

    def show_node(self, figures: Callable[[], list[Metric]]) -> None:
        """Of a cluster. Until the broker's are shown they are what anybody may see, as the probes."""
        self._of_node = figures

    def make(self) -> asyncio.Protocol:
        # uvicorn's protocol without its Server: that looks for work ten times a second, and takes the process's signals.
        return _Http(self._config, self._state, self._guests, self._patience)

    def close(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()

    async def _live(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        return JSONResponse(self._health.describe(), 200 if self._health.ready else 503)

    async def _metrics(self, request: Request) -> Response:
        if not _is_local(request):
            if self._monitors is None:
                found = self._of_node()
                return await _shown(found) if found else PlainTextResponse("not ready\n", 503)
            try:
                await self._monitors.check(request)
            except Refused as refusal:
                return _refused(refusal)
        found = [*self._process.collect(), *self._of_node(), *(await self._figures() if self._figures is not None else ())]
        return await _shown(found)


class _Collected(Collector):
    """What was collected before."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> list[Metric]:
        return self._found


async def _shown(found: list[Metric]) -> Response:
    # The text of very many takes its time, and needs nothing of the broker's.
    return Response(await asyncio.to_thread(_text, found), media_type=CONTENT_TYPE_LATEST)


def _text(found: list[Metric]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collected(found))
    return generate_latest(registry)


def _is_local(request: Request) -> bool:
    """It came to a loopback address, as nobody from elsewhere can."""
    server = request.scope.get("server")
    return server is not None and ip_address(server[0]).is_loopback


def _refused(refusal: Refused) -> Response:
    said = {"code": refusal.code, "message": refusal.message, "fix": refusal.fix}
    if refusal.code.startswith("login-"):
        return JSONResponse(said, 401, {"WWW-Authenticate": 'Basic realm="homing"'})
    return JSONResponse(said, 403)
