"""The consumers of a workload: native and AMQP clients, with transactions and without, that say what they are."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from homing import client
from homing.client import AckMode, Message
from homing.client.errors import HomingError
from tests import amqp_support
from tests.process import Server
from tests.truth.account import Between, Program, now_us

HOST = socket.gethostname()


class Delivery(NamedTuple):
    number: int
    message: Any
    #: when it joined the consumer's window
    assigned: Between


class Failing:
    """How a program fails what it was given: each kind of client says as much of it as its protocol has words for."""

    def __init__(self, error: Exception, *, final: bool = False, delay_ms: int | None = None, rule: str | None = None) -> None:
        self.error, self.final, self.delay_ms, self.rule = error, final, delay_ms, rule


class Worker(Protocol):
    program: Program
    #: what it can say of a failure beside the error: that trying again is of no use, or when it is
    says: frozenset[str]
    amqp: bool
    #: since when it has had room
    free_us: int

    async def get(self, most: int = 2) -> list[Delivery]: ...

    async def settle(self, deliveries: Sequence[Delivery], failing: Failing | None) -> None:
        """Returns when the broker has done it."""

    def reported(self, failing: Failing, last: bool) -> tuple[str, str | None]:
        """Class and text of the error on record; ``last``: of what it was given together."""

    async def answered(self) -> None:
        """The broker knows what this one has done so far."""

    async def close(self) -> None: ...

    async def cut(self) -> None:
        """It is gone without a word."""


class Native:
    """Acknowledges one by one."""

    amqp, mode, together = False, AckMode.INDIVIDUAL, 1
    says = frozenset({"final", "delay"})

    def __init__(self, server: Server, program: Program) -> None:
        self.program = program
        self._server, self._line = server, Line(server)
        self.free_us = now_us()

    async def open(self, queue: str) -> Native:
        url = await self._line.open()
        name, version = self.program.client, self.program.version
        # Two workloads share a loop, which waits for the other's processes: so long nobody answers.
        self.connection = await client.connect(url, reconnect=False, client_id=name, program_version=version, heartbeat_ms=0)
        self.session = self.connection.session(self.mode)
        self.consumer = self.session.consumer(queue, prefetch=self.together)
        return self

    async def get(self, most: int = 2) -> list[Delivery]:
        found: list[Delivery] = []
        while len(found) < min(self.together, most):
            message = await self.consumer.receive(timeout_ms=20 if found else None)
            if message is None:
                break
            found.append(Delivery(int(message.body), message, Between.since(self.free_us)))
        return found

    async def settle(self, deliveries: Sequence[Delivery], failing: Failing | None) -> None:
        self.free_us = now_us()
        (delivery,) = deliveries
        message: Message = delivery.message
        if failing is None:
            await message.acknowledge(confirm=True)
        else:
            await message.nack(error=failing.error, retryable=not failing.final, delay_ms=failing.delay_ms)
            await self.answered()

    async def answered(self) -> None:
        """After what was sent before."""
        await self.connection.call("statistics")

    def reported(self, failing: Failing, last: bool) -> tuple[str, str | None]:
        return type(failing.error).__name__, str(failing.error)

    async def close(self) -> None:
        await self.session.close()
        await self.connection.close()
        self._line.close()

    async def cut(self) -> None:
        self._line.close()
        with suppress(HomingError):
            await self.connection.close()


class Transacted(Native):
    """Two at a time, all or nothing. Of what goes back together the last one is told to be at fault."""

    mode, together = AckMode.TRANSACTED, 2
    says: frozenset[str] = frozenset()
    _settled_us = 0

    async def settle(self, deliveries: Sequence[Delivery], failing: Failing | None) -> None:
        # What was handed out makes room for another one.
        self.free_us, self._settled_us = self._settled_us or self.free_us, now_us()
        if failing is None:
            await self.session.commit()
        else:
            await self.session.rollback(error=failing.error)
            await self.answered()

    def reported(self, failing: Failing, last: bool) -> tuple[str, str | None]:
        return super().reported(failing, last) if last else ("rollback", None)


class Amqp:
    """Acknowledges one by one; has no words for errors."""

    amqp, together, transacted = True, 1, False
    says = frozenset({"final"})

    def __init__(self, server: Server, program: Program) -> None:
        self.program = program
        said = {"connection_name": program.client, "program_version": program.version, "host": program.host}
        self.connection = amqp_support.connect(server, client_properties=said)
        self.channel = self.connection.channel()
        self._got: deque[Delivery] = deque()
        self.free_us = now_us()

    async def open(self, queue: str) -> Amqp:
        self.queue = queue
        if self.transacted:
            self.channel.tx_select()
        self.channel.basic_qos(prefetch_count=self.together)
        self.free_us = now_us()
        self.channel.basic_consume(queue, self._arrived)
        return self

    def _arrived(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._got.append(Delivery(int(body), method.delivery_tag, Between.since(self.free_us)))

    async def get(self, most: int = 1) -> list[Delivery]:
        while not self._got:
            self.connection.process_data_events(0)
            await asyncio.sleep(0.001)
        return [self._got.popleft()]

    async def settle(self, deliveries: Sequence[Delivery], failing: Failing | None) -> None:
        self.free_us = now_us()
        (delivery,) = deliveries
        if failing is None:
            self.channel.basic_ack(delivery.message)
        elif failing.final:
            self.channel.basic_reject(delivery.message, requeue=False)
        else:
            self.channel.basic_nack(delivery.message, requeue=True)
        if self.transacted:
            self.channel.tx_commit()
        await self.answered()

    def reported(self, failing: Failing, last: bool) -> tuple[str, str | None]:
        return "rejected" if failing.final else "nack", None

    async def answered(self) -> None:
        self.channel.queue_declare(self.queue, passive=True)

    async def close(self) -> None:
        self.connection.close()

    async def cut(self) -> None:
        with suppress(OSError):  # the broker is gone already
            amqp_support.cut(self.connection)


class AmqpTransacted(Amqp):
    transacted = True


KINDS: dict[str, type[Native] | type[Amqp]] = {"native": Native, "transacted": Transacted, "amqp": Amqp, "amqp-tx": AmqpTransacted}


class Line:
    """What a native client's connection goes through, so that it can be cut without a word, as when a program is killed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []

    async def open(self) -> str:
        self._listening = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return f"homing://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._server.ready["native"].rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._ends += [writer, back]
        await asyncio.gather(_passed_on(reader, back), _passed_on(there, writer))

    def close(self) -> None:
        if self._listening:
            self._listening.close()
        for end in self._ends:
            end.transport.abort()


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
