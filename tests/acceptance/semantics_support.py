"""What the tests of docs/semantics.md share: waiting for a condition, looking at queues, frames by hand, and a line that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import homing
from homing.broker.protocols.native.codec import MAGIC, PROTOCOL_VERSION, Frame, FrameDecoder, Op, encode
from homing.client import AckMode, Connection, Message
from homing.journal.read.queries import JournalReader
from tests.process import ROOT, Server, in_the_tables

WAIT_S = 30.0
_numbers = itertools.count(1)


def name(stem: str = "q") -> str:
    """A name no other test uses."""
    return f"{stem}.n{next(_numbers)}"


#: Dead letters have their queues by themselves; what failed is there again at once.
AT_ONCE: dict[str, Any] = {"redelivery-delay": 0}


@contextmanager
def running(directory: Path, settings: Mapping[str, Any] | None = None, **sections: Any) -> Iterator[Server]:
    """A real server, ended with the block. ``settings`` are address-settings over redelivery at once for everything."""
    layers = {**(settings or {})}
    layers["#"] = {**AT_ONCE, **layers.get("#", {})}
    server = Server(directory, {"address-settings": layers, **sections})
    try:
        yield server.start()
    finally:
        server.close()


async def until(what: str, holds: Callable[[], Awaitable[Any]], timeout_s: float = WAIT_S) -> Any:
    """Polls until ``holds()`` gives something true, and returns that."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while not (value := await holds()):
        assert loop.time() < end, f"waited {timeout_s} s in vain until {what}"
        await asyncio.sleep(0.02)
    return value


# -- looking ---------------------------------------------------------------------------------------------------------


async def queue(connection: Connection, queue_name: str) -> dict[str, Any]:
    """The queue's line of ``queues``; with no key but zeros when there is no such queue."""
    nothing = dict.fromkeys(("messages", "pending", "delivering", "scheduled", "parked", "suspects", "consumers"), 0)
    return next((each for each in await connection.call("queues") if each["name"] == queue_name), nothing)


async def holds(connection: Connection, queue_name: str, **counts: int) -> dict[str, Any]:
    """Waits until the queue shows these counts."""
    shown: dict[str, Any] = {}

    async def look() -> bool:
        shown.clear()
        shown.update(await queue(connection, queue_name))
        return all(shown[key] == count for key, count in counts.items())

    try:
        await until(f"{queue_name} shows {counts}", look)
    except AssertionError as error:
        raise AssertionError(f"{error}; it shows {shown}") from None
    return shown


async def look(connection: Connection, queue_name: str) -> list[dict[str, Any]]:
    """Everything in a queue, in order; nothing for a queue that is not there."""
    if "queue_id" not in await queue(connection, queue_name):
        return []
    answer = await connection.call("peek", queue=queue_name, limit=1000)
    found: list[dict[str, Any]] = answer["messages"]
    return found


async def settled(connection: Connection, queue_name: str, count: int = 1) -> list[dict[str, Any]]:
    """Waits until ``count`` messages are in the queue and none of them is with a consumer or on its way to the disk."""

    async def at_rest() -> list[dict[str, Any]]:
        found = await look(connection, queue_name)
        return found if len(found) == count and not {each["state"] for each in found} & {"settling", "delivering"} else []

    found: list[dict[str, Any]] = await until(f"{count} messages rest in {queue_name}", at_rest)
    return found


async def consumers(connection: Connection, queue_name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await connection.call("consumers", queue=queue_name)
    return found


async def history(connection: Connection, message_id: int) -> dict[str, Any]:
    found: dict[str, Any] = await connection.call("history", message_id=message_id)
    return found


async def outcomes(connection: Connection, message_id: int) -> list[str]:
    return [each["outcome"] for each in (await history(connection, message_id))["outcomes"]]


def totals(server: Server, queue_name: str) -> dict[str, int]:
    """What the journal counted for a queue, all minutes together, once its tables have all of it."""
    in_the_tables(server)
    with JournalReader(server.data) as reader:
        found: dict[str, int] = next(each["totals"] for each in reader.queues() if each["queue"] == queue_name)
        return found


# -- doing -----------------------------------------------------------------------------------------------------------


async def send(connection: Connection, address: str, *bodies: bytes | int, **options: Any) -> None:
    """Sends and waits for the confirms."""
    async with connection.session() as session:
        producer = session.producer(address)
        for body in bodies:
            producer.send_nowait(body if isinstance(body, bytes) else b"%d" % body, **options)
            await producer.drain()
        await producer.flush()


@asynccontextmanager
async def consuming(
    connection: Connection, source: str, mode: AckMode = AckMode.INDIVIDUAL, **options: Any
) -> AsyncIterator[homing.Consumer]:
    """One consumer in a session of its own."""
    async with connection.session(mode) as session:
        consumer = session.consumer(source, **options)
        await consumer.ready()
        yield consumer


async def receive(consumer: homing.Consumer, timeout_ms: int = 20_000) -> Message:
    message = await consumer.receive(timeout_ms)
    assert message is not None, f"no message of {consumer.source} came in {timeout_ms} ms"
    return message


async def receive_all(consumer: homing.Consumer, count: int) -> list[Message]:
    return [await receive(consumer) for _ in range(count)]


async def drained(connection: Connection, queue_name: str, count: int) -> list[Message]:
    """Takes exactly ``count`` messages off a queue, acknowledged."""
    async with consuming(connection, queue_name) as consumer:
        messages = await receive_all(consumer, count)
        for message in messages:
            await message.acknowledge(confirm=True)
        return messages


async def fail(connection: Connection, queue_name: str, times: int, **nack: Any) -> list[Message]:
    """Receives and fails messages, one after the other."""
    messages = []
    async with consuming(connection, queue_name) as consumer:
        for _ in range(times):
            message = await receive(consumer)
            messages.append(message)
            await message.nack(**nack)
    return messages


async def fail_quickly(connection: Connection, address: str, times: int, **options: Any) -> int:
    """Sends one message and fails it ``times`` times: at once each time but the last, whose delay is the policy's. Its number."""
    await send(connection, address, b"x")
    async with consuming(connection, address, **options) as consumer:
        for attempt in range(1, times + 1):
            message = await receive(consumer)
            assert message.delivery_count == attempt
            await message.nack(delay_ms=None if attempt == times else 0)
    return message.message_id


async def recorded_delay(connection: Connection, message_id: int) -> int:
    """The delay that followed its latest failure, and that its due time was that much later."""
    last = (await history(connection, message_id))["attempts"][-1]
    if last["due_at_ms"] is not None:
        assert last["due_at_ms"] == last["at_ms"] + last["delay_ms"]
    return int(last["delay_ms"])


def bodies(messages: list[Any]) -> list[int]:
    return [int(each["body"] if isinstance(each, dict) else each.body) for each in messages]


def cut(connection: Connection) -> None:
    """The connection is lost, as if its cable had been pulled."""
    assert connection.wire is not None
    connection.wire.abort(homing.ConnectionLost("connection-lost", "cut by the test", "none"))


# -- frames by hand --------------------------------------------------------------------------------------------------


class Raw:
    """A connection that says what the client would never say. ``unasked``: what came while something else was waited for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._requests = itertools.count(1)
        self.unasked: list[Frame] = []

    @classmethod
    @asynccontextmanager
    async def connect(cls, server: Server, **options: Any) -> AsyncIterator[Raw]:
        host, _, port = server.ready["native"].rpartition(":")
        raw = cls(*await asyncio.open_connection(host, int(port)))
        try:
            await raw.write(Op.HELLO, MAGIC, PROTOCOL_VERSION, {"client_id": name("raw"), "heartbeat_ms": 0, **options})
            await raw.read(Op.WELCOME)
            yield raw
        finally:
            raw.writer.close()
            with contextlib.suppress(OSError):
                await raw.writer.wait_closed()

    async def write(self, *frame: Any) -> None:
        self.writer.write(encode(frame))
        await self.writer.drain()

    async def read(self, *ops: int) -> Frame:
        """The next frame of one of these kinds; others are put aside."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for at, frame in enumerate(self.unasked):
                    if frame[0] in ops:
                        return self.unasked.pop(at)
                data = await self._reader.read(65536)
                assert data, f"the broker closed the connection; before that it said {self.unasked}"
                self.unasked += self._decoder.feed(data)

    async def ask(self, op: int, *fields: Any) -> Frame:
        """A frame with a request number, and its answer (RESULT or REFUSED)."""
        request = next(self._requests)
        await self.write(op, request, *fields)
        return await self.answer(request)

    async def answer(self, request: int) -> Frame:
        kept: list[Frame] = []
        while True:
            frame = await self.read(Op.RESULT, Op.REFUSED)
            if frame[1] == request:
                self.unasked += kept
                return frame
            kept.append(frame)

    async def ack(self, consumer: int, kind: int, ranges: list[int], failure: dict[str, Any] | None = None, session: int = 0) -> Any:
        """An acknowledgement of any type, confirmed: the value of its RESULT (tags not held), read back from the disk's side."""
        request = next(self._requests)
        await self.write(Op.ACK, consumer, kind, ranges, failure, request, session)
        return (await self.answer(request))[2]

    async def subscribe(self, consumer: int, queue_name: str, **options: Any) -> None:
        answer = await self.ask(Op.SUBSCRIBE, consumer, queue_name, options)
        assert answer[0] == Op.RESULT, answer

    async def deliveries(self, count: int) -> list[tuple[int, list[Any]]]:
        """(tag, message fields) of the next ``count`` deliveries."""
        found: list[tuple[int, list[Any]]] = []
        while len(found) < count:
            frame = await self.read(Op.DELIVER)
            found += enumerate(frame[3], frame[2])
        assert len(found) == count, f"{len(found)} deliveries instead of {count}"
        return found

    async def no_delivery(self) -> bool:
        """Whether the broker, two answers (so at least one turn of its loop) later, has delivered nothing."""
        for _ in range(2):
            await self.ask(Op.CALL, "queues", {})
        return not any(frame[0] == Op.DELIVER for frame in self.unasked)


# -- a line that can be cut ------------------------------------------------------------------------------------------


class Line:
    """A proxy between client and broker. ``watch`` sees every frame on its way; what it returns is done with it: "pass", "drop", or
    "cut" (drop it, and the connection with it). ``open`` false: new connections are refused at once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.open = True
        self.connections = 0
        self.to_broker: Callable[[Frame], str] = lambda frame: "pass"
        self.to_client: Callable[[Frame], str] = lambda frame: "pass"
        self.tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def to(cls, server: Server) -> AsyncIterator[Line]:
        line = cls(server)
        listener = await asyncio.start_server(line.accept, "127.0.0.1", 0)
        line.url = f"homing://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            line.cut()
            listener.close()
            await asyncio.gather(*line.tasks, return_exceptions=True)
            await listener.wait_closed()

    def cut(self) -> None:
        """Every connection through this line is lost, without a goodbye."""
        for writer in self._writers:
            if writer.transport is not None:
                writer.transport.abort()
        self._writers.clear()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        self.connections += 1
        host, _, port = self._server.ready["native"].rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, target, watch in ((reader, far_writer, "to_broker"), (far_reader, writer, "to_client")):
            task = asyncio.get_running_loop().create_task(self._pump(source, target, watch, (writer, far_writer)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, watch: str, both: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                for frame in decoder.feed(data):
                    verdict = getattr(self, watch)(frame)
                    if verdict == "cut":
                        for writer in both:
                            writer.transport.abort()
                        return
                    if verdict == "pass":
                        target.write(encode(frame))
                await target.drain()
        for writer in both:
            writer.close()


# -- consumers that die ----------------------------------------------------------------------------------------------


def consumer_process(server: Server, queue_name: str, behaviour: str, timeout_s: float = WAIT_S) -> int:
    """Runs tests/acceptance/mortal_consumer.py until it ends; its exit code (-9 when it killed itself)."""
    command = [sys.executable, "-m", "tests.acceptance.mortal_consumer", server.url, queue_name, behaviour]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        return process.wait(timeout_s)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
