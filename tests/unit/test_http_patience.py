"""Who says nothing, or never all of it, at the port of the probes is hung up on, and takes nobody's place."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from homing.broker.http.health import Health
from homing.broker.http.listener import MOST_OPEN, HttpListener, Patience

LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
#: As short for one thing as it is long for the others.
SHORT, LONG = 0.05, 600.0
#: No answer is that large: what came after it is body, of a request that is answered already.
BODY = b"Content-Length: 99999\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "patience"),
    [
        (b"", Patience(SHORT, LONG, LONG, LONG)),
        (LIVE[:9], Patience(LONG, SHORT, LONG, LONG)),
        (LIVE, Patience(LONG, SHORT, LONG, LONG)),
        (LIVE + b"\r\n" + LIVE, Patience(LONG, SHORT, LONG, LONG)),
        (LIVE + BODY, Patience(LONG, LONG, LONG, SHORT)),
    ],
    ids=["nothing", "a line", "no end", "no end of the second", "no body"],
)
async def test_it_is_hung_up_on(said: bytes, patience: Patience) -> None:
    http = HttpListener(Health(), patience)
    server = await asyncio.get_running_loop().create_server(http.make, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        with suppress(ConnectionResetError):
            found = await asyncio.wait_for(reader.read(), 20)
            assert found.count(b"200 OK") <= said.count(b"\r\n\r\n")
        writer.close()
    http.close()


async def test_the_oldest_that_has_asked_nothing_gives_way() -> None:
    http = HttpListener(Health())
    server = await asyncio.get_running_loop().create_server(http.make, "127.0.0.1", 0)
    async with server:
        place = server.sockets[0].getsockname()
        silent = [await asyncio.open_connection(*place) for _ in range(MOST_OPEN + 20)]
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*place)
            writer.write(LIVE + b"Connection: close\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(reader.read(), 20)
            writer.close()
        for reader, _ in silent[:20]:
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 20) == b""
        for _, writer in silent:
            writer.close()
    http.close()
