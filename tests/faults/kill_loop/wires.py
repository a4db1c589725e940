"""The network between the nodes of a cluster and others, the servers of its database or its clients. Each wire of a node can fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from random import Random
from typing import Any, Final, TypeVar

from tests.postgresql import url_of
from tests.process import free_port

_CHUNK: Final = 65_536
#: How often an answer gets lost, of those that may.
_LOST: Final = 0.3
T = TypeVar("T")


class Trouble(Enum):
    """What a node's wires do. Where bytes were dropped the connection is cut when the wire is mended, as TCP itself would bring them."""

    NONE = "none"
    #: Questions arrive, and answers do not.
    MUTE = "mute"
    #: Nothing arrives, and nobody is told.
    CUT = "cut"
    #: Now and then an answer is lost with its connection.
    LOSSY = "lossy"


class Wires:
    """On a thread of its own. ``ways``: the nodes, each with a port that a wire of its own leads to."""

    def __init__(self, ways: Sequence[tuple[str, int]], seed: int) -> None:
        self._rng = Random(seed)
        self._trouble = dict.fromkeys((node for node, _ in ways), Trouble.NONE)
        self._gone: set[int] = set()
        self._mended = {node: asyncio.Event() for node in self._trouble}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._ports = {way: free_port() for way in ways}
        self._listeners = [self._do(self._listen(node, server, port)) for (node, server), port in self._ports.items()]

    def url(self, node: str) -> str:
        """Of the database, for that node."""
        return url_of(port for (name, _), port in self._ports.items() if name == node)

    def before(self, port: int) -> int:
        """The end of the one wire that leads there."""
        return next(end for (_, there), end in self._ports.items() if there == port)

    def set(self, nodes: Iterable[str], trouble: Trouble) -> None:
        async def change() -> None:
            for node in nodes:
                self._trouble[node] = trouble
                if trouble is Trouble.NONE:
                    self._mended[node].set()
                    self._mended[node] = asyncio.Event()

        self._do(change())

    def vanish(self, server: int) -> None:
        """Its machine does not even refuse."""
        self._gone.add(server)

    def come_back(self, server: int) -> None:
        self._gone.discard(server)
        self.set(self._trouble, Trouble.NONE)

    def close(self) -> None:
        async def end() -> None:
            for listener in self._listeners:
                listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(10)

    async def _listen(self, node: str, server: int, port: int) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with contextlib.suppress(OSError):
                await self._serve(node, server, reader, writer)
            self._tasks.discard(task)

        return await asyncio.start_server(accept, "127.0.0.1", port)

    def _drops(self, node: str, server: int) -> bool:
        return self._trouble[node] is Trouble.CUT or server in self._gone

    async def _serve(self, node: str, server: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        there: asyncio.StreamWriter | None = None
        try:
            while self._drops(node, server):
                await self._mended[node].wait()
            answers, there = await asyncio.open_connection("127.0.0.1", server)
            up = self._pump(node, reader, there, lambda: self._drops(node, server))
            down = self._pump(node, answers, writer, lambda: self._drops(node, server) or self._trouble[node] is Trouble.MUTE, lossy=True)
            pumps = {asyncio.ensure_future(up), asyncio.ensure_future(down)}
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drops: Callable[[], bool], lossy: bool = False
    ) -> None:
        """Until the connection is to end."""
        while True:
            chunk = await reader.read(_CHUNK)
            if drops():
                await self._mended[node].wait()
                return
            if not chunk:
                return
            if lossy and self._trouble[node] is Trouble.LOSSY and self._rng.random() < _LOST:
                return
            writer.write(chunk)
            await writer.drain()
