"""How soon the failure desk answers beside 10,000 queues, a million dead letters and 10,000 faults, and what it takes of the machine."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import homing
from homing import AckMode
from homing.broker.console.api.operations import JSON, OPERATIONS
from tests.acceptance.semantics_support import until
from tests.console_support import GUEST, Visitor, console
from tests.process import Server
from tests.system.check import HERE, Failed, Place, check, python_with, run
from tests.system.check import said as told
from tests.system.console import browser
from tests.system.watching import cpu_s

#: Half of the queues are their dead-letter queues.
SOURCES: Final = 5_000
DEAD: Final = 1_000_000
#: Messages of each of these queues, which die of two faults.
EACH: Final = 20
FAULTS: Final = 2
ASKED: Final = 20
P95_MS: Final = 150.0
PAGE_KB: Final = 250.0
MEMORY_MIB: Final = 80.0
PAINT_MS: Final = 1000.0
MOST_SHARE: Final = 0.02
ASKS_EVERY_S: Final = 5
_PAINTED: Final = ("/", "/faults", "/dead-letters", "/dead-letters?queue=DLQ.orders", "/queues", "/events")
_TOGETHER: Final = 100
SETTINGS: Final = {"#": {"max-delivery-attempts": 1, "redelivery-delay": 0}}
_LETTERS: Final = str.maketrans("0123456789", "abcdefghij")


class Seen(NamedTuple):
    """Of one page or call, asked again and again."""

    path: str
    p95_ms: float
    kb: float

    @property
    def is_beyond(self) -> bool:
        return self.p95_ms > P95_MS or (self.kb > PAGE_KB and not self.path.startswith("/api/"))


@check
def console_figures(place: Place) -> str:
    """Of every page and every call that reads; and of its first page left open, beside a broker with nothing in it, too."""
    chromium = browser()
    python = python_with(place.directory, "browser", "playwright")
    opened = share_of_open_page(place.server)
    server = Server(place.directory / "many", {"console": {"port": 0}, "address-settings": SETTINGS}).start()
    try:
        process = console_of(server)
        asyncio.run(fill(server.url))
        said = measured(server, process)
        said += f"; an open page takes {share_of_open_page(server):.1%} of a processor, {opened:.1%} beside an empty broker"
        program = [str(python), str(HERE / "console_paint.py"), server.ready["console"], chromium, *_PAINTED]
        path, painted_ms = told(run(program, place.directory, "the browser"))
    finally:
        server.close()
    if painted_ms > PAINT_MS or opened > MOST_SHARE:
        raise Failed(said)
    return f"{said}; {path} is painted after {painted_ms:.0f} ms"


def share_of_open_page(server: Server) -> float:
    """What a browser that shows the first page, which asks again every 5 s, costs the broker of a processor."""
    with console(server.url) as address:
        visitor = Visitor(address)
        visitor.log_in()
        visitor.see("/")
        before = cpu_s(server)
        for _ in range(ASKED):
            visitor.see("/")
        return (cpu_s(server) - before) / ASKED / ASKS_EVERY_S


def console_of(server: Server) -> int:
    """Its process. Asked before there is so much to log that its line is left out."""
    return int(re.findall(r"the console of process (\d+) is at", server.logged("console-ready"))[-1])


def measured(server: Server, console: int) -> str:
    """Prints what was seen of each. ``console``: its process. Raises Failed where anything is beyond its bound."""
    seen = []
    for each in _asked(server):
        print(f"{each.p95_ms:8.1f} ms {each.kb:8.1f} KB  {each.path}{'  beyond' if each.is_beyond else ''}", flush=True)
        seen.append(each)
    memory = _memory_mib(console)
    slowest = max(each.p95_ms for each in seen)
    said = f"{len(seen)} pages and calls, the slowest {slowest:.0f} ms at p95; the console takes {memory:.0f} MiB of its own"
    if any(each.is_beyond for each in seen) or memory > MEMORY_MIB:
        raise Failed(said)
    return said


def _memory_mib(pid: int) -> float:
    """What it alone has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _asked(server: Server) -> Iterator[Seen]:
    visitor = Visitor(server.ready["console"])
    visitor.log_in()
    for path in _paths(visitor):
        times, answer = [], None
        for _ in range(ASKED):
            began = time.perf_counter()
            answer = visitor.ask("GET", path, headers=GUEST if path.startswith("/api/") else {})
            times.append((time.perf_counter() - began) * 1000)
        assert answer is not None
        if answer.status != 200:
            raise Failed(f"{path}: {answer.status} {answer.text[:300]}")
        yield Seen(path, statistics.quantiles(times, n=20, method="inclusive")[-1], len(answer.text.encode()) / 1000)


def _paths(visitor: Visitor) -> list[str]:
    fault = next(link for text, link in visitor.see("/faults").links.items() if link.startswith("/faults/"))
    message = next(link for text, link in visitor.see("/dead-letters?queue=DLQ.orders").links.items() if text.isdigit())
    connection = next(link for text, link in visitor.see("/connections").links.items() if text.startswith("c"))
    dead = "queue=DLQ.orders"
    region = urllib.parse.urlencode({"property": "region=us"})
    pages = [
        *("/", "/faults", "/faults?after=4900", fault, "/dead-letters", f"/dead-letters?{dead}", f"/dead-letters?{dead}&{region}"),
        *(f"/dead-letters?{dead}&fault={fault.rpartition('/')[2]}", f"/dead-letters?{dead}&body_contains=99999"),
        *(f"/dead-letters/delete?{dead}", message, f"{message}/edit?{dead}", "/redrives", f"/redrives/new?{dead}"),
        *(f"/redrives/new?{dead}&{region}", "/queues", "/queues?after=queue.aefaa", "/queue?queue=orders", f"/queue?{dead}"),
        *(f"/queue/purge?{dead}", "/waiting", "/waiting?queue=orders", "/events", "/connections", connection, f"{connection}/close"),
        *("/settings?address=orders", "/settings/change?pattern=orders&settings=redelivery-delay%3D1s"),
        *("/settings/change?pattern=%23&settings=redelivery-delay%3D1s", "/users", "/journal", "/journal/backup"),
        *("/search?q=queue.aef", "/search?q=abced", "/search?q=region%3Dnone", "/search?q=an-id"),
    ]
    number = message.rpartition("/")[2]
    given = {"queue": "DLQ.orders", "address": "orders"}
    calls = []
    for each in OPERATIONS:
        if each.method == "GET" and each.media == JSON and "{redrive}" not in each.path:
            path = "/api/v1" + each.path.format_map({"message_id": number, "fault": fault.rpartition("/")[2], "connection": "c0"})
            query = urllib.parse.urlencode({name: value for name, value in given.items() if name in each.asks.model_fields})
            calls.append(f"{path}?{query}" if query else path)
    return [*pages, *calls]


def _named(number: int, digits: int) -> str:
    """Numbers alone make no fault another."""
    return f"{number:0{digits}}".translate(_LETTERS)


async def fill(url: str) -> None:
    """All of them sent, and failed by a consumer."""
    async with homing.connect(url) as connection:
        for began in range(0, SOURCES, _TOGETHER):
            await asyncio.gather(*(_one(connection, number) for number in range(began, began + _TOGETHER)))
        await connection.call("create-queue", queue="orders", address="orders")
        number = DEAD - SOURCES * EACH
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_send(connection, number))
            for part in (number // 2, number - number // 2):
                tasks.create_task(_fail(url, part))

        async def all_dead() -> bool:
            return bool((await connection.call("statistics"))["messages"]["dead"] == DEAD)

        await until("all are dead", all_dead, timeout_s=60)


async def _one(connection: homing.Connection, number: int) -> None:
    name = f"queue.{_named(number, 4)}"
    await connection.call("create-queue", queue=name, address=name)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer(name), session.consumer(name, prefetch=EACH)
        for _ in range(EACH):
            producer.send_nowait(b"x" * 200, properties={"region": "eu"})
        await producer.flush()
        for at in range(EACH):
            message = await consumer.receive(timeout_ms=10_000)
            assert message is not None
            message.nack(error=f"{_named(number * FAULTS + at % FAULTS, 5)} is down", retryable=False)


async def _send(connection: homing.Connection, number: int) -> None:
    async with connection.session() as session:
        producer = session.producer("orders")
        for at in range(number):
            producer.send_nowait(b'{"order": %d}' % at, properties={"region": "eu" if at % 2 else "us"})
            if at % (2 * _TOGETHER) == 0:
                await producer.drain()
        await producer.flush()


async def _fail(url: str, number: int) -> None:
    async with homing.connect(url) as own, own.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("orders", prefetch=10 * _TOGETHER)
        for at in range(number):
            message = await consumer.receive(timeout_ms=60_000)
            assert message is not None
            message.nack(error=f"currency {_named(at // _TOGETHER % 100, 2)} is unknown", retryable=False)
