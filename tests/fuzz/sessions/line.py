"""One connection of a guest: writes what it is told, reads or does not, and goes as rudely as is wanted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

#: What a guest waits for an answer: it goes on without one, as nobody promised it any.
PATIENCE_S: Final = 0.3
#: A broker always reads; while it does not, whoever writes to it would wait for ever.
_WRITE_S: Final = 5.0
_READ_BYTES: Final = 1 << 18


class Over(Exception):
    """The broker ended the connection, or is gone."""


class Line:
    """``took(data)`` gets what comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, took: Callable[[bytes], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._took = took
        self._came = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._over = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, port: int, took: Callable[[bytes], None]) -> Line:
        """Raises Over where nobody listens."""
        try:
            async with asyncio.timeout(PATIENCE_S * 10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_READ_BYTES)
        except (OSError, TimeoutError) as error:
            raise Over from error
        return cls(reader, writer, took)

    async def _read(self) -> None:
        try:
            while True:
                await self._reading.wait()
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    break
                self._took(data)
                self._came.set()
        except OSError:
            pass
        self._over = True
        self._came.set()

    async def write(self, data: bytes) -> None:
        """Raises Over when there is nobody to write to, AssertionError when the broker does not read."""
        if self._over:
            raise Over
        try:
            self._writer.write(data)
            async with asyncio.timeout(_WRITE_S):
                await self._writer.drain()
        except TimeoutError:
            raise AssertionError(f"the broker did not read for {_WRITE_S:.0f} s") from None
        except (OSError, RuntimeError) as error:
            raise Over from error

    async def something(self, holds: Callable[[], bool] | None = None) -> None:
        """Waits until something has come, and ``holds`` is true; PATIENCE_S at most. Raises Over at the end of the stream."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while holds is None or not holds():
                    if self._over:
                        raise Over
                    self._came.clear()
                    await self._came.wait()
                    if holds is None:
                        break

    async def deaf(self, seconds: float) -> None:
        """Reads nothing for so long, while the broker may have much to say."""
        self._reading.clear()
        await asyncio.sleep(seconds)
        self._reading.set()

    async def close(self, reset: bool = False) -> None:
        """``reset``: without a word, and what was on its way is thrown away."""
        found = self._writer.get_extra_info("socket")
        if reset and found is not None:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._task.cancel()
        self._writer.close()
        # Waiting would be for a broker that may not read any more.
        if reset or self._over:
            self._writer.transport.abort()
