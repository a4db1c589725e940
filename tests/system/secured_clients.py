"""Programs that use a broker over TLS, from another machine: the native client, its blocking facade, and what others wrote.

Each sends a message and takes it back. Run as a program it plays those that are named, where the first argument says (``Place``, in JSON).
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import aio_pika
import pika

import homing
from homing.client import AckMode, blocking
from tests.process import wait_until

#: More than one record of TLS.
BODY: Final = os.urandom(150_000).hex()


class Broker(NamedTuple):
    """Where it is, who issued its certificate (a file), and who logs in."""

    host: str
    native: int
    amqp: int
    cafile: str
    user: str
    password: str
    directory: str

    @property
    def url(self) -> str:
        return f"homings://{self.user}:{self.password}@{self.host}:{self.native}?cafile={self.cafile}"

    @property
    def amqps(self) -> str:
        return f"amqps://{self.user}:{self.password}@{self.host}:{self.amqp}/%2F"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.cafile)


def native(broker: Broker) -> str:
    async def play() -> str:
        async with homing.connect(broker.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            await session.producer("native").send(BODY.encode())
            message = await session.consumer("native").receive(20_000)
            assert message is not None
            await message.acknowledge(confirm=True)
            return message.body.decode()

    return asyncio.run(play())


def blocking_facade(broker: Broker) -> str:
    with blocking.connect(broker.url) as connection, connection.session() as session:
        session.producer("blocking").send(BODY.encode())
        message = session.consumer("blocking").receive(timeout_ms=20_000)
        assert message is not None
        return str(message.body.decode())


def with_pika(broker: Broker) -> str:
    credentials = pika.PlainCredentials(broker.user, broker.password)
    options = pika.SSLOptions(broker.context, broker.host)
    parameters = pika.ConnectionParameters(broker.host, broker.amqp, credentials=credentials, ssl_options=options)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("pika", durable=True)
        channel.basic_publish("", "pika", BODY.encode(), pika.BasicProperties(delivery_mode=2))
        _, _, body = channel.basic_get("pika", auto_ack=True)
        return str(body.decode())


def with_aio_pika(broker: Broker) -> str:
    async def play() -> str:
        async with await aio_pika.connect(broker.amqps, ssl_context=broker.context) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("aio-pika", durable=True)
            await channel.default_exchange.publish(aio_pika.Message(BODY.encode()), "aio-pika")
            message = await queue.get(timeout=20)
            await message.ack()
            return message.body.decode()

    return asyncio.run(play())


def celery(broker: Broker) -> str:
    """A worker, a task, and its result by way of the broker."""
    os.environ |= {"TEST_BROKER_URL": broker.amqps, "TEST_CA_FILE": broker.cafile}
    from tests.system.secured_celery import echo

    log = Path(broker.directory) / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "tests.system.secured_celery", "worker", "--pool", "solo", "--loglevel", "INFO"]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as worker:
        try:
            wait_until("the worker is ready", lambda: " ready." in log.read_text(), 60)
            return str(echo.delay(BODY).get(timeout=60))
        finally:
            worker.terminate()


def amqp_tools(broker: Broker) -> str:
    options = ["--url", broker.amqps, "--ssl", "--cacert", broker.cafile]

    def run(tool: str, *arguments: str, said: str = "") -> str:
        return subprocess.run([tool, *options, *arguments], input=said, capture_output=True, text=True, timeout=60, check=True).stdout

    run("amqp-declare-queue", "-q", "tools")
    run("amqp-publish", "-r", "tools", said=BODY)
    return run("amqp-get", "-q", "tools")


PLAYERS: Final = {each.__name__: each for each in (native, blocking_facade, with_pika, with_aio_pika, celery, amqp_tools)}


def main(where: str, *names: str) -> None:
    broker = Broker(**json.loads(where))
    came: dict[str, Any] = {name: PLAYERS[name](broker) == BODY for name in names}
    print(json.dumps(came))


if __name__ == "__main__":
    main(*sys.argv[1:])
