"""Mixed load that leaves nothing behind: ``python -m tests.soak.load URL AMQP_PORT DATA EXPORTS EXPORT_EVERY_S``, until its input ends.

All at a steady rate well below what a broker can do: what is asked is whether anything grows, not how fast it is.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pika

import homing
from homing.client import AckMode, Connection, ConnectionLost, HomingError, Message
from tests.process import ROOT

#: What outlives messages goes soon, so that a soak of minutes sees it going.
CONFIG: Final[dict[str, Any]] = {
    "amqp": {"port": 0},
    "journal": {
        "checkpoint-every": "1MiB",
        "history-retention": "30s",
        "history-max-bytes": "4MiB",
        "marks-retention": "30s",
        "duplicate-ids-per-address": 100,
    },
    "address-settings": {
        "#": {"redelivery-delay": 0, "auto-delete-queues-delay": "1s"},
        "work": {"redelivery-delay": "200ms", "max-delivery-attempts": 3},
        "temp.#": {"redelivery-delay": "20ms"},
        "short": {"expiry-address": "old", "auto-create-expiry-resources": True},
    },
    "queues": {"work": {}, "short": {}},
}
_DOOMED: Final = "doomed"
#: What happens again and again. When each has, a file says so to who waits for that.
KINDS: Final = ("messages", "redriven", "temporary queues", "transactions", "connections", "AMQP connections", "exports")
_rng = Random(7)


class Done:
    """What the load has done so far. ``mark`` is made once each kind has happened."""

    def __init__(self, mark: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._mark = mark

    def add(self, kind: str, count: int = 1) -> None:
        self.counts[kind] += count
        if count and all(self.counts[each] for each in KINDS):
            self._mark.touch()

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))


class Pace:
    """Goes on at even times, also where the machine is busy at some of them: what is kept for a while is as much as comes in that while."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_s = time.monotonic()

    def rest_s(self) -> float:
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._every_s, now_s)
        return self._next_s - now_s


async def work(connection: Connection, done: Done) -> None:
    """Messages of which some fail and wait, some die, some are delayed, some expire."""
    session = connection.session(AckMode.INDIVIDUAL)
    producer, short = session.producer("work", max_unconfirmed=200), session.producer("short")

    async def handle(message: Message) -> None:
        doomed = message.properties.get(_DOOMED) and "_AMQ_ORIG_ADDRESS" not in message.properties
        if doomed or (message.delivery_count == 1 and _rng.random() < 0.1):
            raise ValueError("by chance or by doom")
        done.add("messages")

    listener = await connection.session(AckMode.AUTO).listen("work", handle, prefetch=50)
    pace = Pace(0.03)
    try:
        for number in itertools.count():
            options: dict[str, Any] = {"properties": {"n": number}}
            if number % 50 == 0:
                options["properties"][_DOOMED] = True
            if number % 10 == 3:
                options["delay_ms"] = 2000
            if number % 7 == 0:
                options["duplicate_id"] = str(uuid.uuid4())
            await producer.send(b"x" * _rng.randrange(2000), **options)
            if number % 20 == 0:
                await short.send(b"expires", ttl_ms=100)
            await asyncio.sleep(pace.rest_s())
    finally:
        await listener.stop()


async def redrive(connection: Connection, done: Done) -> None:
    """Dead letters go back, where they succeed or die again; what has died twice and what has expired is purged."""
    for number in itertools.count():
        await asyncio.sleep(2)
        queues = {queue["name"] for queue in await connection.call("queues")}
        # A queue that makes itself goes by itself, too, as soon as it is empty.
        if "DLQ.work" in queues:
            found = await _refused_quietly(connection.call("redrive" if number % 3 else "purge", queue="DLQ.work"))
            done.add("redriven" if number % 3 else "purged", found["messages"] if found else 0)
        for name in queues & {"EXP.short", "DLQ.temporary"}:
            await _refused_quietly(connection.call("purge", queue=name))
        page = await connection.call("peek", queue="work", limit=20)
        for message in page["messages"][:3]:
            await _refused_quietly(connection.call("history", message_id=message["message_id"]))


async def _refused_quietly(call: Awaitable[Any]) -> Any:
    """None where it was refused."""
    try:
        return await call
    except HomingError as error:
        if error.connection_lost:
            raise
        return None


async def temporary(connection: Connection, done: Done) -> None:
    """Queues that are made, used and go: by themselves, or deleted."""
    pace = Pace(1.0)
    for number in itertools.count():
        name = f"temp.{number}"
        async with connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer(name)
            for each in range(5):
                await producer.send(b"soon gone", duplicate_id=f"{name}/{each}")
            consumer = session.consumer(name, prefetch=5)
            for each in range(6):
                message = await consumer.receive(timeout_ms=2000)
                if message is not None:
                    await (message.nack(reason="once") if each == 0 else message.acknowledge())
        if number % 2:
            await _refused_quietly(connection.call("delete-queue", queue=name))
        done.add("temporary queues")
        await asyncio.sleep(pace.rest_s())


async def transactions(connection: Connection, done: Done) -> None:
    session = connection.session(AckMode.TRANSACTED)
    there, back = session.producer("token.b"), session.producer("token.a")
    await connection.session().producer("token.a").send(b"token")
    consumers, pace = (session.consumer("token.a", prefetch=1), session.consumer("token.b", prefetch=1)), Pace(0.1)
    for number in itertools.count():
        message = await consumers[number % 2].receive(timeout_ms=5000)
        assert message is not None, "the token is gone"
        await (there if number % 2 == 0 else back).send(b"token")
        await session.commit()
        done.add("transactions")
        await asyncio.sleep(pace.rest_s())


async def visitors(url: str, done: Done) -> None:
    """Connections that come, send, take something and go, some without a word."""
    pace = Pace(0.5)
    for number in itertools.count():
        connection = await homing.connect(url)
        session = connection.session(AckMode.CLIENT)
        await session.producer("visited").send(b"hello")
        consumer = session.consumer("visited", prefetch=3)
        message = await consumer.receive(timeout_ms=500)
        while message is not None and await consumer.receive(timeout_ms=20) is not None:
            pass  # what those who went without a word have left
        if number % 3 == 0 and connection.wire is not None:
            connection.wire.abort(ConnectionLost("killed", "as when its program is killed", ""))
        elif message is not None:
            await session.acknowledge(confirm=True)
        await connection.close()
        done.add("connections")
        await asyncio.sleep(pace.rest_s())


def amqp(port: int, stop: threading.Event, done: Done) -> None:
    """pika: confirms, gets, acknowledgements, rejections to a dead-letter exchange, exclusive queues, transactions."""
    pace = Pace(1.0)
    while not stop.is_set():
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.queue_declare("rabbit.dead", durable=True, arguments={"x-message-ttl": 500})
            channel.queue_declare(
                "rabbit", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "rabbit.dead"}
            )
            channel.queue_declare("", exclusive=True)
            channel.confirm_delivery()
            for _ in range(20):
                channel.basic_publish("", "rabbit", b"x" * 200, pika.BasicProperties(delivery_mode=2))
            while True:
                method, _, _ = channel.basic_get("rabbit")
                if method is None:
                    break
                if method.delivery_tag % 10 == 0:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                elif method.delivery_tag % 11 == 0 and not method.redelivered:
                    channel.basic_nack(method.delivery_tag)
                else:
                    channel.basic_ack(method.delivery_tag)
            transacted = connection.channel()
            transacted.tx_select()
            transacted.basic_publish("", "rabbit", b"in a transaction")
            transacted.tx_commit()
            done.add("AMQP connections")
        stop.wait(pace.rest_s())


async def exports(data: Path, out: Path, every_s: float, done: Done) -> None:
    while True:
        await asyncio.sleep(every_s)
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "homing", "journal", "export", "--data", str(data), "--out", str(out), "--json"]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0, "an export failed"
        done.add("exports")


async def _until_input_ends() -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    await commands.read()


async def run(url: str, port: int, data: Path, out: Path, export_every_s: float, done: Done) -> None:
    """Everything at once; whatever fails ends all of it, with its traceback."""
    stop = threading.Event()
    async with homing.connect(url) as one, homing.connect(url) as two:
        jobs: list[Callable[[], Awaitable[None]]] = [
            lambda: work(one, done),
            lambda: redrive(two, done),
            lambda: temporary(two, done),
            lambda: transactions(two, done),
            lambda: visitors(url, done),
            lambda: exports(data, out, export_every_s, done),
            lambda: asyncio.to_thread(amqp, port, stop, done),
        ]
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        ending = asyncio.create_task(_until_input_ends())
        try:
            await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    exported, began = Path(sys.argv[4]), time.monotonic()
    account = Done(exported.with_name("each-has-happened"))
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), exported, float(sys.argv[5]), account))
    print(account, f"in {time.monotonic() - began:.0f} s")
