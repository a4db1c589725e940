"""A real server under the recorder, and clients that claim what they were told: confirmed sends, acknowledgements, transactions,
delivery counts that were seen, and dead letters that were received.

The server is killed with SIGKILL in the middle, stopped in order later, and killed at the end. Clients reconnect by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

from ruamel.yaml import YAML

import homing
from homing.client import AckMode, Connection, HomingError, ReconnectPolicy
from tests.faults.power_loss.recording import ROOT, Claims, Recording

_READY_S = 30.0
_CONFIG: dict[str, Any] = {
    "journal": {"disk-reserve": 0, "checkpoint-every": "512KiB", "id-block": 1024},
    "address-settings": {"#": {"max-delivery-attempts": 3, "redelivery-delay": 5}},
    "queues": {"orders": {"address": "orders"}, "results": {"address": "results"}},
}


class RecordedServer:
    """``homing serve`` under the recorder, always on the port it first got."""

    def __init__(self, directory: Path, recording: Recording, launcher: tuple[str, ...] = ("homing",)) -> None:
        self._config = directory / "broker.yaml"
        self._log = directory / "server.log"
        self._recording = recording
        self._launcher = launcher
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"homing://127.0.0.1:{self._port}"

    async def start(self) -> None:
        with self._config.open("w") as out:
            YAML(typ="safe").dump({**_CONFIG, "data-directory": str(self._recording.data), "native": {"port": self._port}}, out)
        command = [sys.executable, "-m", *self._launcher, "serve", "--config", str(self._config), "--json"]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=self._recording.environment(), stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _READY_S)
        if not line:
            raise AssertionError(f"the server did not become ready:\n{self._log.read_text()[-4000:]}")
        self._port = int(json.loads(line)["native"].rpartition(":")[2])

    async def end(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None:
            self._process = None
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            await asyncio.wait_for(process.wait(), _READY_S)


class Clients:
    """Producers and consumers that go on until ``over``; what they were told goes into the claims."""

    def __init__(self, url: str, claims: Claims, chance: Random, messages: int) -> None:
        self._url = url
        self._claims = claims
        self._chance = chance
        self._messages = messages
        self._names = 0
        self._confirmed = 0
        self._milestones: list[tuple[int, asyncio.Event]] = []
        self.over = False

    async def until_confirmed(self, count: int) -> None:
        """Returns once so many sends to orders were confirmed."""
        reached = asyncio.Event()
        self._milestones.append((count, reached))
        await reached.wait()

    def _count(self) -> None:
        self._confirmed += 1
        for count, reached in self._milestones:
            if self._confirmed >= count:
                reached.set()

    async def run(self) -> None:
        reconnect = ReconnectPolicy(initial_delay_ms=20, maximum_delay_ms=200)
        async with homing.connect(self._url, reconnect=reconnect) as first, homing.connect(self._url, reconnect=reconnect) as second:
            producers = [self._produce(first, self._messages // 3) for _ in range(3)]
            others = [self._consume(second), self._consume(first), self._transact(second), self._bury(first)]
            working = [asyncio.ensure_future(other) for other in others]
            try:
                await asyncio.gather(*producers)
                await asyncio.sleep(0.2)  # the others are in the middle of something
            finally:
                self.over = True
                for each in working:
                    each.cancel()
                for result in await asyncio.gather(*working, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result

    def _new(self) -> tuple[str, bytes]:
        self._names += 1
        key = f"m{self._names}"
        return key, key.encode() + b"|" + self._chance.randbytes(self._chance.choice((40, 400, 400, 3_000, 30_000)))

    async def _produce(self, connection: Connection, messages: int) -> None:
        async with connection.session() as session:
            producer = session.producer("orders")
            for _ in range(messages // 4):
                batch = [self._new() for _ in range(4)]
                operations = [self._claims.begin(sends=[key]) for key, _ in batch]
                confirmations = [producer.send_nowait(body) for _, body in batch]
                for operation, confirmation in zip(operations, confirmations, strict=True):
                    await confirmation
                    self._claims.done(operation)
                    self._count()
                if self._chance.random() < 0.2:
                    await asyncio.sleep(0.01)

    async def _consume(self, connection: Connection) -> None:
        async with connection.session(AckMode.INDIVIDUAL) as session:
            consumer = session.consumer("orders", prefetch=8)
            async for message in consumer:
                key = _key(message)
                self._seen(key, message.delivery_count)
                fate = self._chance.random()
                with contextlib.suppress(HomingError):
                    if fate < 0.35:
                        await message.nack(reason="by chance")
                    elif fate < 0.4:
                        await message.nack(retryable=False)
                    elif fate < 0.5:
                        self._claims.begin(acks=[key])
                        await message.acknowledge()
                    else:
                        operation = self._claims.begin(acks=[key])
                        await message.acknowledge(confirm=True)
                        self._claims.done(operation)

    def _seen(self, key: str, delivery_count: int) -> None:
        """A redelivery leaves only when the count before it is on disk: no client ever sees a count fall."""
        if delivery_count > 1:
            self._claims.seen(counts={key: delivery_count - 1})

    async def _transact(self, connection: Connection) -> None:
        async with connection.session(AckMode.TRANSACTED) as session:
            consumer, producer = session.consumer("orders", prefetch=4), session.producer("results")
            while not self.over:
                with contextlib.suppress(HomingError):
                    await self._one_transaction(session, consumer, producer)

    async def _one_transaction(self, session: homing.Session, consumer: homing.Consumer, producer: homing.Producer) -> None:
        taken = [message for message in [await consumer.receive(200) for _ in range(2)] if message is not None]
        for message in taken:
            self._seen(_key(message), message.delivery_count)
        made = [self._new() for _ in range(self._chance.randint(1, 3))]
        for _, body in made:
            await producer.send(body)
        if self._chance.random() < 0.2:
            await session.rollback()
            return
        operation = self._claims.begin(acks=[_key(message) for message in taken], sends=[key for key, _ in made])
        await session.commit()
        self._claims.done(operation)

    async def _bury(self, connection: Connection) -> None:
        """Receives dead letters, once there is a queue of them, and acknowledges half."""
        await _there(connection, "DLQ.orders")
        async with connection.session(AckMode.INDIVIDUAL) as session:
            async for message in session.consumer("DLQ.orders", prefetch=1000):
                key = _key(message)
                # What a client is given from there has left the other queue for good.
                self._claims.seen(dead=[key])
                if self._chance.random() < 0.5:
                    with contextlib.suppress(HomingError):
                        operation = self._claims.begin(acks=[key])
                        await message.acknowledge(confirm=True)
                        self._claims.done(operation)


async def _there(connection: Connection, name: str) -> None:
    """Returns once there is such a queue; asked for again and again, since dead-letter queues make themselves."""
    while True:
        with contextlib.suppress(HomingError):
            if any(queue["name"] == name for queue in await connection.call("queues")):
                return
        await asyncio.sleep(0.05)


def _key(message: homing.Message) -> str:
    return message.body.partition(b"|")[0].decode()


async def run(directory: Path, recording: Recording, chance: Random, messages: int, launcher: tuple[str, ...] = ("homing",)) -> None:
    """Fill the recording. ``messages``: how many are sent to orders; transactions send more."""
    server, claims = RecordedServer(directory, recording, launcher), Claims(recording.log)
    try:
        await server.start()
        clients = Clients(server.url, claims, chance, messages)
        working = asyncio.ensure_future(clients.run())
        for share, end in ((0.4, signal.SIGKILL), (0.7, signal.SIGTERM)):
            reached = asyncio.ensure_future(clients.until_confirmed(int(share * messages)))
            await asyncio.wait({reached, working}, return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            await server.end(end)
            await server.start()
        await working
    finally:
        await server.end(signal.SIGKILL)
        claims.close()
