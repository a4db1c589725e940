"""Workloads with one planted cause, or none, on one broker whose time is advanced: what a report should say of each is known from its plan.

All of them share two days of the broker's life. A scene has queues of its own, and draws what it does from its number.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import aio_pika

from homing import client
from homing.client import AckMode, Message
from homing.journal.export.export import export
from homing.testing import Broker
from homing.testing.clock import Clock

HOURS = 48
HOUR_S = 3_600.0
#: Time goes by so much at once: what falls due between comes a little late. Delays are of whole steps.
STEP_S = 120


@dataclass(frozen=True)
class Program:
    client: str = "orders"
    host: str = "h1"
    version: str = "1.0"


@dataclass(frozen=True)
class Order:
    """One delivery of a message."""

    number: int
    key: int
    attempt: int
    #: of the broker's life
    hour: float


#: Why a program fails an order; None: it does not.
Fails = Callable[[Order, Program], Exception | None]


@dataclass
class Scene:
    """``wanted``: the kinds of finding of which one has to come first, and nothing else; empty: there is nothing to find."""

    number: int
    name: str
    wanted: frozenset[str] = frozenset()
    #: what the finding has to name
    names: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    #: how many die of it if they are tried for longer than an hour; None: that is not known from the plan
    dies_of_more: int | None = None
    amqp: bool = False

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.name} {self.number}")
        #: Whether its programs give themselves names.
        self.named = self.rng.random() < 0.5

    @property
    def queue(self) -> str:
        return f"{self.name}-{self.number}"

    def owns(self, queue: str) -> bool:
        return queue in (self.queue, f"{self.queue}.wait", f"DLQ.{self.queue}")

    def luck(self, *of: object) -> float:
        """The same for the same scene and ``of``, whoever asks when."""
        return Random(f"{self.number} {of}").random()


class World:
    """The broker, and what its clients do with it."""

    def __init__(self, broker: Broker, connection: client.Connection) -> None:
        self.broker, self._connection = broker, connection
        self._began_s = broker.now.timestamp()

    @property
    def hour(self) -> float:
        return (self.broker.now.timestamp() - self._began_s) / HOUR_S

    async def until(self, hour: float) -> None:
        await asyncio.sleep(max(0.0, hour - self.hour) * HOUR_S)

    @asynccontextmanager
    async def working(self, scene: Scene, programs: list[Program], fails: Fails) -> AsyncIterator[None]:
        """These programs are there, and each takes what comes, a message at a time."""

        def failing(body: bytes, count: int, program: Program) -> Exception | None:
            order = json.loads(body)
            return fails(Order(order["number"], order["key"], count, self.hour), program)

        async with AsyncExitStack() as stack:
            for program in programs:
                if scene.amqp:
                    await self._consume(await stack.enter_async_context(self.channel(program)), scene, partial(failing, program=program))
                    continue
                name = f"{scene.queue} {program.client} {program.host}" if scene.named else None
                with patch.object(socket, "gethostname", partial(str, program.host)):
                    opened = self.broker.connect(client_id=name, program_version=program.version, heartbeat_ms=0)
                    session = (await stack.enter_async_context(opened)).session(AckMode.AUTO)

                def handle(message: Message, program: Program = program) -> None:
                    if (error := failing(message.body, message.delivery_count, program)) is not None:
                        raise error

                await session.listen(scene.queue, handle, prefetch=1)
            yield

    async def _consume(self, channel: aio_pika.abc.AbstractChannel, scene: Scene, failing: Callable[..., Exception | None]) -> None:
        async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            error = failing(message.body, int(str(message.headers.get("x-delivery-count", 0))) + 1)
            await (message.ack() if error is None else message.reject(requeue=True))

        await channel.set_qos(1)
        await (await channel.declare_queue(scene.queue, durable=True)).consume(handle)

    @asynccontextmanager
    async def channel(self, program: Program | None = None) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
        told: dict[str, Any] = (
            {} if program is None else {"connection_name": program.client, "host": program.host, "program_version": program.version}
        )
        async with await aio_pika.connect(f"{self.broker.amqp_url}?heartbeat=0", client_properties=told) as connection:
            yield await connection.channel()

    async def send(self, scene: Scene, first: int, count: int, keys: int = 20) -> None:
        async with self._connection.session() as session:
            producer = session.producer(scene.queue)
            for number in range(first, first + count):
                producer.send_nowait(json.dumps({"number": number, "key": number % keys}).encode())
            await producer.flush()

    async def traffic(self, scene: Scene, begin: float, end: float, messages: int, keys: int = 20) -> None:
        """So many messages, evenly over these hours, a few at a time."""
        steps = max(2, min(messages // 3, round((end - begin) * 12)))
        sent = 0
        for step in range(steps):
            await self.until(begin + (end - begin) * step / steps)
            count = messages * (step + 1) // steps - sent
            await self.send(scene, sent, count, keys)
            sent += count
        await self.until(end)

    async def redrive(self, scene: Scene) -> None:
        """Its dead letters, if there are any, go home."""
        if f"DLQ.{scene.queue}" in {each["name"] for each in await self._connection.listing("queues")}:
            await self._connection.call("redrive", queue=f"DLQ.{scene.queue}", message_ids=None)


Play = Callable[[World, Scene], Coroutine[None, None, None]]


async def run(scenes: list[tuple[Scene, Play]], dump: Path) -> None:
    """All of them at once, for HOURS that end now; then an export."""
    everywhere = {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "redelivery-collision-avoidance-factor": 0}
    settings = {"#": everywhere} | {scene.queue: scene.settings for scene, _ in scenes}
    with Clock.shared(lambda: False, _nothing) as clock:
        clock._ahead_s = -HOURS * HOUR_S
        async with Broker({"address-settings": settings, "amqp": {"port": 0}}) as broker, broker.connect(heartbeat_ms=0) as shop:
            world = World(broker, shop)
            async with asyncio.TaskGroup() as group:
                for scene, play in scenes:
                    group.create_task(play(world, scene))
                for _ in range(round(HOURS * HOUR_S / STEP_S)):
                    clock._ahead_s += STEP_S
                    await broker.settled()
            export(broker._server.config.data_directory, dump)


async def _nothing() -> None:
    """There is nothing that has no timer."""
