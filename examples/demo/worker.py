"""A consumer process of the demo: one ack mode, some queues, a handler that really fails.

``python -m examples.demo.worker MODE URL SERVICE_PORT LOG QUEUE…``. Every step is one JSON line in LOG, written before the step
counts, so that the log of a killed process is true as well. With ``--hold`` it takes messages and never finishes them.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import signal
import time
from pathlib import Path
from typing import Any

import homing
from homing.client import AckMode, Message


class ServiceNotReady(Exception):
    """The filing service answered, but not with 200. ``retry_after_ms`` is what it asked for."""

    def __init__(self, status: int, retry_after_ms: int) -> None:
        super().__init__(f"the filing service answered {status}")
        self.retry_after_ms = retry_after_ms


class Worker:
    def __init__(self, mode: AckMode, service_port: int, log: Path) -> None:
        self.mode = mode
        self._service_port = service_port
        self._log = log.open("a", buffering=1)

    def note(self, what: str, message: Message, **more: Any) -> None:
        entry = {"at_ns": time.time_ns(), "what": what, "mode": self.mode.name, "line": message.properties["line"]}
        entry |= {"message_id": message.message_id, "delivery": message.delivery_count, **more}
        self._log.write(json.dumps(entry) + "\n")

    async def handle(self, message: Message) -> None:
        """What the demo's consumers do for a living: announce an event to a service, then file it under its repository."""
        self.note("given", message)
        try:
            await asyncio.to_thread(self._announce, message.body)
            event = json.loads(message.body)
            repository = event.get("payload", {})["repository"]  # some events speak of none: those break here, every time
            repository["full_name"].split("/")
        except Exception as error:
            self.note("failed", message, error=type(error).__name__)
            raise
        self.note("handled", message)

    def _announce(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._service_port, timeout=5)
        try:
            connection.request("POST", "/announce", body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise ServiceNotReady(answer.status, int(answer.headers.get("Retry-After", "0")) * 1000)
        finally:
            connection.close()

    # -- one way of acknowledging for each mode -----------------------------------------------------------------------

    async def work(self, connection: homing.Connection, queue: str) -> None:
        loops = {AckMode.CLIENT: self._client, AckMode.INDIVIDUAL: self._individual, AckMode.TRANSACTED: self._transacted}
        loop = loops.get(self.mode)
        async with connection.session(self.mode) as session:
            if loop is None:  # AUTO and DUPS_OK acknowledge by themselves after the handler; an exception fails the message
                listener = await session.listen(queue, self.handle, concurrency=2, prefetch=40)
                await listener.wait()
            else:
                await loop(session, session.consumer(queue, prefetch=40))

    async def _client(self, session: homing.Session, consumer: homing.Consumer) -> None:
        """acknowledge() settles all that the session was given, so it is called when the last one was handled."""
        async for message in consumer:
            try:
                await self.handle(message)
            except Exception as error:
                await message.nack(error=error)
            else:
                await self._confirmed(message)

    async def _individual(self, session: homing.Session, consumer: homing.Consumer) -> None:
        """Out of order, and with a delay of the service's own choosing where it names one."""
        async for message in consumer:
            try:
                await self.handle(message)
            except ServiceNotReady as error:
                await message.nack(reason="the service asked for time", error=error, delay_ms=error.retry_after_ms)
            except Exception as error:
                await message.nack(error=error)
            else:
                await self._confirmed(message)

    async def _confirmed(self, message: Message) -> None:
        """Acknowledges and waits until that is on disk; a connection lost meanwhile leaves it open, and it may come again."""
        try:
            await message.acknowledge(confirm=True)
        except homing.HomingError as error:
            self.note("unconfirmed", message, error=error.code)
        else:
            self.note("confirmed", message)

    async def _transacted(self, session: homing.Session, consumer: homing.Consumer) -> None:
        async for message in consumer:
            try:
                await self.handle(message)
            except Exception as error:
                await self._rolled_back(session, error)
                continue
            try:
                await session.commit()
            except homing.HomingError as error:
                self.note("unconfirmed", message, error=error.code)
            else:
                self.note("confirmed", message)

    async def _rolled_back(self, session: homing.Session, error: Exception) -> None:
        try:
            await session.rollback(error=error)
        except homing.HomingError:
            return  # the connection is gone, and the broker has rolled back by itself

    async def hold(self, connection: homing.Connection, queue: str) -> None:
        """Takes every message it can get and is never done with any."""
        async with connection.session(self.mode) as session:
            consumer = session.consumer(queue, prefetch=40)
            async for message in consumer:
                self.note("held", message)


async def run(arguments: argparse.Namespace) -> None:
    worker = Worker(AckMode[arguments.mode], arguments.service_port, arguments.log)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with homing.connect(arguments.url) as connection, asyncio.TaskGroup() as group:
            for queue in arguments.queues:
                group.create_task(worker.hold(connection, queue) if arguments.hold else worker.work(connection, queue))
    except asyncio.CancelledError:
        return  # asked to stop: sessions and connection were closed in order on the way out


def main() -> None:
    parser = argparse.ArgumentParser(description="A consumer of the demo.")
    parser.add_argument("mode", choices=[mode.name for mode in AckMode])
    parser.add_argument("url")
    parser.add_argument("service_port", type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("queues", nargs="+")
    parser.add_argument("--hold", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
