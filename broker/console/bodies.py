"""What a request brings along, up to a limit."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from .problems import Problem

MOST_BYTES: Final = 1_000_000


async def body_of(request: Request) -> bytes:
    """Raises Problem."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise Problem("too-large", f"that is more than {MOST_BYTES:,} bytes, which are taken at most", "use the command line")
    return bytes(body)
