"""What it costs to be watched: processor time of a broker under load with its figures scraped and without, and a scrape of many queues."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Final

import homing
from homing import AckMode
from tests.process import Server
from tests.system.check import Failed, Place, check

#: As often as a Prometheus and a kubelet ask by default.
SCRAPE_EVERY_S: Final = 15.0
PROBE_EVERY_S: Final = 10.0
TURNS: Final = 3
MESSAGES: Final = 40_000
MOST_SHARE: Final = 0.01
QUEUES: Final = 10_000
MOST_S: Final = 0.5


@check
def watching_cost(place: Place) -> str:
    """Durable messages, confirmed and acknowledged one by one (S1), in turns with http and without."""
    used: dict[bool, list[float]] = {False: [], True: []}
    share = 0.0
    for turn in range(TURNS):
        for watched in (False, True):
            server = Server(place.directory / f"{turn}-{watched}", {"http": {"port": 0}} if watched else None).start()
            try:
                before, began = cpu_s(server), time.monotonic()
                asyncio.run(_load(server))
                used[watched].append(cpu_s(server) - before)
                if watched:
                    took_s = time.monotonic() - began
                    share = max(share, _asking(server) * took_s / used[watched][-1])
            finally:
                server.close()
    if share > MOST_SHARE:
        raise Failed(f"scrapes and probes took {share:.2%} of the processor time")
    return (
        f"scrapes every {SCRAPE_EVERY_S:.0f} s and probes every {PROBE_EVERY_S:.0f} s took {share:.2%} of the processor time of"
        f" {MESSAGES} messages; the median of {TURNS} turns was {median(used[True]):.2f} s with http, {median(used[False]):.2f} s without"
    )


@check
def watching_many_queues(place: Place) -> str:
    server = Server(place.directory / "broker", {"http": {"port": 0}}).start()
    try:
        asyncio.run(_queues(server))
        took_s = []
        for _ in range(10):
            began = time.monotonic()
            size = len(_ask(server, "/metrics"))
            took_s.append(time.monotonic() - began)
        before = cpu_s(server)
        _ask(server, "/metrics")
        used_s = cpu_s(server) - before
    finally:
        server.close()
    took = f"a scrape of {QUEUES} queues took {median(took_s) * 1000:.0f} ms, {max(took_s) * 1000:.0f} at most"
    took += f", {used_s * 1000:.0f} of processor time"
    if median(took_s) > MOST_S:
        raise Failed(took)
    return f"{took}, for {size >> 10} KiB"


def _ask(server: Server, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{server.ready['http']}{path}", timeout=20) as answer:
        said: bytes = answer.read()
    return said


def cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _asking(server: Server) -> float:
    """Processor seconds that a second of being watched takes."""
    number = 200
    found = 0.0
    for path, every_s in (("/metrics", SCRAPE_EVERY_S), ("/readyz", PROBE_EVERY_S), ("/livez", PROBE_EVERY_S)):
        before = cpu_s(server)
        for _ in range(number):
            _ask(server, path)
        found += (cpu_s(server) - before) / number / every_s
    return found


async def _load(server: Server) -> None:
    left, done = MESSAGES, asyncio.Event()

    async def handle(message: homing.Message) -> None:
        nonlocal left
        await message.acknowledge()
        left -= 1
        if not left:
            done.set()

    async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        await session.listen("orders", handle)
        producer = session.producer("orders")
        for _ in range(MESSAGES):
            producer.send_nowait(b"x" * 1024)
            await producer.drain()
        await producer.flush()
        await done.wait()


async def _queues(server: Server) -> None:
    async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        for number in range(QUEUES):
            await connection.call("create-queue", queue=f"queue.{number:05}", address=f"queue.{number:05}")
        producer = session.producer("queue.00007")
        for _ in range(100):
            await producer.send(b"x")
