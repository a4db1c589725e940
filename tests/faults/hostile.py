"""A client that does not play by the rules, and a good one that must not notice it. Both speak to a real server."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from homing import client
from homing.broker.protocols.native.codec import Frame, FrameDecoder, Op, encode
from tests.process import Server

ANSWER_S = 30.0
#: A good client's slowest confirm while somebody else misbehaves. Generous: the machine may be busy with other tests, or pause.
MOST_DELAY_S = 15.0


_numbers = itertools.count(1)


class Raw:
    """A blocking socket that speaks frames, or anything else. ``source``: the address it comes from, as another peer's."""

    def __init__(self, url: str, *, hello: bool = True, source: str = "127.0.0.1", **options: Any) -> None:
        host, _, port = url.removeprefix("homing://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_S, source_address=(source, 0))
        self._decoder = FrameDecoder(64 << 20)
        self._frames: deque[Frame] = deque()
        self.welcome: Frame = []
        if hello:
            self.hello(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- out

    def hello(self, **options: Any) -> None:
        self.send(Op.HELLO, "homing", 1, {"heartbeat_ms": 0, **options})
        self.welcome = self.until(Op.WELCOME)

    def send(self, *frame: Any) -> None:
        self.socket.sendall(encode(frame))

    def raw(self, data: bytes) -> None:
        """Sends as much of ``data`` as the server takes: it may hang up in the middle."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def framed(self, payload: bytes) -> None:
        """A payload that no encoder would make, with its true length."""
        self.raw(len(payload).to_bytes(4, "big") + payload)

    def producer(self, address: str, number: int = 1) -> None:
        """Opens a producer and takes its first credit."""
        self.send(Op.PRODUCER, 1000 + number, number, address)
        self.until(Op.RESULT)
        self.until(Op.CREDIT)

    # -- in

    def next(self, timeout_s: float = ANSWER_S) -> Frame | None:
        """The next frame but heartbeats; None at the end of the stream. Raises TimeoutError."""
        self.socket.settimeout(timeout_s)
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame[0] != Op.HEARTBEAT:
                    return frame
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._frames += self._decoder.feed(data)

    def _next_of(self, why: str) -> Frame | None:
        try:
            return self.next()
        except TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_S} s: {why}") from None

    def until(self, op: int, why: str = "") -> Frame:
        """The next frame of this kind; others are passed over. Fails where the server ends the connection instead."""
        while (frame := self._next_of(why)) is not None:
            if frame[0] == op:
                return frame
            assert frame[0] != Op.ERROR, frame
        raise AssertionError(f"the stream ended before {Op(op).name}")

    def error(self, why: str = "") -> Frame:
        """The ERROR frame that ends this connection, and the end of the stream after it."""
        while (frame := self._next_of(why)) is not None:
            if frame[0] == Op.ERROR:
                assert self.next() is None, "something followed an ERROR"
                check_words(frame[1:])
                return frame
        raise AssertionError(f"the connection was closed without an ERROR: {why}")

    def refusal(self, request: int, why: str = "") -> Frame:
        """The REFUSED that answers ``request``; the connection goes on."""
        frame = self.until(Op.REFUSED, why)
        assert frame[1] == request, frame
        check_words(frame[2:])
        return frame

    def alive(self) -> None:
        """The connection still answers."""
        self.send(Op.CALL, 999_999, "queues", {})
        while self.until(Op.RESULT)[1] != 999_999:
            pass


def check_words(words: list[Any]) -> None:
    """code, message, fix: a kebab-case code, and two texts for people, of a length that people read."""
    code, message, fix = words
    assert code
    assert code == code.lower()
    assert " " not in code
    assert 0 < len(message) < 1200, message[:200]
    assert 0 < len(fix) < 1200


class Account:
    """What the good client saw."""

    def __init__(self) -> None:
        self.sent = self.sent_at_end = 0
        self.received: list[int] = []
        self.slowest_s = 0.0
        self.lost = 0


@asynccontextmanager
async def good_client(url: str, *, every_s: float = 0.002, most_delay_s: float = MOST_DELAY_S) -> AsyncIterator[Account]:
    """Sends and receives all the while. In the end: every message confirmed soon and delivered once, in order, on one connection."""
    account, address = Account(), f"good.{next(_numbers)}"
    stop = asyncio.Event()
    async with client.connect(url) as connection, connection.session(client.AckMode.INDIVIDUAL) as session:
        connection.on_state.append(lambda state: _count_losses(account, state))
        producer = session.producer(address, max_unconfirmed=1000)
        consumer = session.consumer(address, prefetch=100)

        async def send() -> None:
            # At least one whole round after whatever was done.
            while not stop.is_set() or account.sent < account.sent_at_end + 3:
                began = time.monotonic()
                await producer.send(str(account.sent).encode(), properties={"n": account.sent})
                account.slowest_s = max(account.slowest_s, time.monotonic() - began)
                account.sent += 1
                await asyncio.sleep(every_s)

        async def receive() -> None:
            while not sending.done() or len(account.received) < account.sent:
                message = await consumer.receive(timeout_ms=100)
                if message is not None:
                    assert message.delivery_count == 1
                    account.received.append(int(message.body))
                    await message.acknowledge()

        sending = asyncio.create_task(send())
        receiving = asyncio.create_task(receive())
        try:
            yield account
        finally:
            account.sent_at_end = account.sent
            stop.set()
            async with asyncio.timeout(ANSWER_S):
                await asyncio.gather(sending, receiving)
    assert account.received == list(range(account.sent))
    assert account.lost == 0, "the good client lost its connection"
    logging.getLogger("tests").info("slowest confirm %.0f ms of %d", account.slowest_s * 1000, account.sent)
    assert account.slowest_s < most_delay_s


def _count_losses(account: Account, state: client.connection.ConnectionState) -> None:
    account.lost += state is client.connection.ConnectionState.RECONNECTING


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of a process; field VmHWM: its peak since ``reset_peak``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field} of process {pid}")


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def ends_well(server: Server) -> None:
    """It goes on to its end, and nothing in it came up to the log."""
    assert server.process is not None
    assert server.process.poll() is None, server.log_path.read_text()[-4000:]
    assert server.stop() == 0
    assert "Traceback" not in server.log_path.read_text()
