"""Events as they happen, server-sent (https://html.spec.whatwg.org/multipage/server-sent-events.html): each with its number, behind which
who was cut off goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.responses import Response, StreamingResponse

import homing
from homing.journal import json_text

from ...answers.administration import BrokerEvent
from ...answers.parts import NumberedPage
from ..problems import Problem
from .operations import EVENTS

_LOOK_S: Final = 1.0
#: Looks without anything new after which a line says that the stream is still there.
_QUIET: Final = 15
#: Each takes one of the connections that the console has for all.
_MOST: Final = 20
_TOO_MANY: Final = ("too-many-streams", f"there are {_MOST} streams already", "end one, or ask for pages of /events")

#: The page of events behind this number. Raises homing.HomingError.
Look = Callable[[int], Awaitable[NumberedPage[BrokerEvent]]]


class Streams:
    """Those under way."""

    def __init__(self) -> None:
        self._open = 0

    async def begin(self, look: Look, after: int) -> Response:
        """A stream ends where the broker does not answer any more. Raises Problem, homing.HomingError."""
        if self._open >= _MOST:
            raise Problem(*_TOO_MANY, 503)
        first = await look(after)
        return StreamingResponse(self._told(look, first, after), media_type=EVENTS)

    async def _told(self, look: Look, page: NumberedPage[BrokerEvent], after: int) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield f"retry: {_LOOK_S * 1000:.0f}\n\n"
            quiet = 0
            while True:
                for event in page["items"]:
                    after = event["number"]
                    yield f"id: {after}\nevent: {event['event']}\ndata: {json_text.dumps(event)}\n\n"
                quiet = 0 if page["items"] else quiet + 1
                if quiet % _QUIET == _QUIET - 1:
                    yield ": nothing new\n\n"
                if page["next"] is None:
                    await asyncio.sleep(_LOOK_S)
                page = await look(after)
        except homing.HomingError:
            # It has begun with 200: that it ends is all that can be said.
            return
        finally:
            self._open -= 1
