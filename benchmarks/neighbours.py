"""``python -m benchmarks.neighbours`` (scripts/bench-neighbours): what others notice while a queue of a million messages is worked on.

Another queue gets a message every millisecond (open loop) and a consumer that takes each. How long those are on their way is told for
each thing that is done to the long queue: nothing, browsing it, redriving its dead letters, purging it, filling it with messages to
come, and a start after a kill at which all of these are overdue.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import homing
from benchmarks.figures import number
from benchmarks.homing_client import SPREADER, percentiles
from benchmarks.load import Load, LoadError
from benchmarks.peers.homing import Homing
from benchmarks.scenarios import WINDOW
from benchmarks.stage import MIB, Figures, Stage
from homing.client import AckMode, Connection, Message

LONG: Final = "long"
DEAD: Final = f"DLQ.{LONG}"
NEIGHBOUR: Final = "neighbour"
RATE: Final = 1000
QUIET_S: Final = 3.0
BROWSE_S: Final = 10.0
#: Number and due time, at the front of a delayed message.
DELAYED: Final = struct.Struct("=qq")
#: Between the clock of whoever sends and the broker's lies the way of a frame.
DUE_SLACK_MS: Final = 500


@dataclass
class Times:
    """When each thing was done, on the monotonic clock that all processes share, and what else is known of it."""

    phases: list[tuple[str, int, int, str]] = field(default_factory=list)

    async def of(self, name: str, work: Awaitable[str]) -> None:
        started_ns = time.monotonic_ns()
        said = await work
        self.phases.append((name, started_ns, time.monotonic_ns(), said))

    def figures(self, seen: list[tuple[int, int]]) -> dict[str, Figures]:
        """``seen``: when each message of the neighbour left, and how long it took, in ns."""
        found: dict[str, Figures] = {}
        for name, started_ns, ended_ns, said in self.phases:
            during = [(latency, left_ns) for left_ns, latency in seen if started_ns <= left_ns < ended_ns]
            if not during:
                raise LoadError(f"the neighbour sent nothing during {name}")
            found[name] = {"took_s": (ended_ns - started_ns) / 1e9, **percentiles([latency for latency, _ in during])}
            found[name]["max_after_s"] = (max(during)[1] - started_ns) / 1e9
            shown = "; ".join(f"{key} {number(value)}" for key, value in found[name].items())
            print(f"{name:<46}{shown}{said and '; '}{said}", flush=True)
        return found


class Neighbour:
    """Its process: from ``start`` until ``end`` it sends and takes."""

    def __init__(self, stage: Stage) -> None:
        self._out = stage.peer.directory / "neighbour.json"
        self._load: Load = stage.load("neighbour", queue=NEIGHBOUR, rate=RATE, window=100 * RATE, out=self._out)

    def start(self) -> None:
        self._load.go()

    def end(self) -> list[tuple[int, int]]:
        self._load.go()
        sent = self._load.result()["count"]
        seen = [(left_ns, latency_ns) for left_ns, latency_ns in json.loads(self._out.read_text())]
        if len(seen) != sent:
            raise LoadError(f"the neighbour sent {sent} messages and got {len(seen)}")
        return seen


@asynccontextmanager
async def connected(stage: Stage) -> AsyncIterator[Connection]:
    async with homing.connect(f"homing://127.0.0.1:{stage.peer.port}") as connection:
        yield connection


def peak_rss(stage: Stage) -> str:
    return f"peak RSS {stage.peer.usage().peak_rss_bytes / MIB:.0f} MiB"


# -- one life: browse, redrive, purge


async def one_life(stage: Stage, count: int) -> dict[str, Figures]:
    stage.start(LONG, delivery_limit=1)
    stage.run("produce", count, queue=LONG, window=WINDOW)
    stage.run("consume", count, queue=LONG, prefetch=WINDOW, ack="reject", late=1)
    stage.wait_for_depth(DEAD, count)
    neighbour, times = Neighbour(stage), Times()
    neighbour.start()
    await asyncio.sleep(1)
    async with connected(stage) as connection:
        await times.of("nothing", _nothing())
        await times.of("browse the dead letters, 100 a page", _browse(connection))
        await times.of(f"redrive {count:,} dead letters", _all(connection, "redrive", DEAD, count))
        await times.of(f"purge {count:,} messages", _all(connection, "purge", LONG, count))
        await times.of("nothing, after it", _nothing())
    print(peak_rss(stage), flush=True)
    return times.figures(neighbour.end())


async def _nothing() -> str:
    await asyncio.sleep(QUIET_S)
    return ""


async def _browse(connection: Connection) -> str:
    end, pages, after = time.monotonic() + BROWSE_S, 0, None
    while time.monotonic() < end:
        page = await connection.call("peek", queue=DEAD, limit=100, after=after)
        pages, after = pages + 1, page["next"]
        if after is None:
            break
    return f"{pages:,} pages"


async def _all(connection: Connection, verb: str, queue: str, count: int) -> str:
    done = (await connection.call(verb, queue=queue))["messages"]
    if done != count:
        raise LoadError(f"{verb} of {queue} took {done} messages of {count}")
    return ""


# -- two lives: what was to come is overdue


async def two_lives(stage: Stage, count: int, delay_s: int) -> dict[str, Figures]:
    """All are sent with delays of their own, none due before the kill; the broker starts again when all are."""
    stage.start(LONG)
    started = time.monotonic()
    async with connected(stage) as connection:
        await _fill_with_delays(connection, count, delay_s * 1000)
    filled_s = time.monotonic() - started
    if filled_s > delay_s:
        raise LoadError(f"filling took {filled_s:.0f} s: the first were due before the kill; raise --delay")
    print(f"filled in {filled_s:.1f} s; {peak_rss(stage)}", flush=True)
    stage.peer.kill()
    await asyncio.sleep(started + filled_s + 2 * delay_s + 1 - time.monotonic())
    stage.peer.launch()
    await _wait_until_served(stage)
    neighbour, times = Neighbour(stage), Times()
    neighbour.start()
    async with connected(stage) as connection:
        drained = Drained(count, stage.peer.started_ns)
        await times.of(f"drain {count:,} overdue messages", drained.run(connection))
        await times.of("nothing, after the overdue", _nothing())
    print(peak_rss(stage), flush=True)
    return times.figures(neighbour.end())


async def _wait_until_served(stage: Stage) -> None:
    end = time.monotonic() + stage.deadline_s
    while not stage.peer.accepts():
        if time.monotonic() > end:
            raise LoadError(f"nobody was served within {stage.deadline_s:.0f} s of the start")
        await asyncio.sleep(0.005)


async def _fill_with_delays(connection: Connection, count: int, delay_ms: int) -> None:
    """Each body begins with its number and the time it is due."""
    padding = os.urandom(1000)
    async with connection.session() as session:
        producer = session.producer(LONG, max_unconfirmed=WINDOW)
        for place in range(count):
            delay = delay_ms + (place * SPREADER % 2**32) * delay_ms // 2**32
            producer.send_nowait(DELAYED.pack(place, time.time_ns() // 1_000_000 + delay) + padding, delay_ms=delay)
            if place % 500 == 0:
                await producer.drain()
        await producer.flush()


class Drained:
    """Takes them all, and looks at the order: by number, and by the time they were due."""

    def __init__(self, count: int, launched_ns: int) -> None:
        self._count, self._launched_ns = count, launched_ns
        self._seen = bytearray(count)
        self._taken = self._last_place = self._last_due_ms = self._not_by_number = self._not_by_time = 0
        self._first_ns = 0
        self._done = asyncio.Event()

    def take(self, message: Message) -> None:
        self._first_ns = self._first_ns or time.monotonic_ns()
        place, due_ms = DELAYED.unpack_from(message.body)
        self._not_by_number += place < self._last_place
        self._not_by_time += due_ms < self._last_due_ms - DUE_SLACK_MS
        self._last_place, self._last_due_ms = max(self._last_place, place), max(self._last_due_ms, due_ms)
        self._taken += not self._seen[place]
        self._seen[place] = 1
        message.acknowledge()
        if self._taken == self._count:
            self._done.set()

    async def run(self, connection: Connection) -> str:
        async with connection.session(AckMode.INDIVIDUAL) as session:
            await session.listen(LONG, self.take, prefetch=WINDOW)
            await self._done.wait()
        first_s = (self._first_ns - self._launched_ns) / 1e9
        order = f"{self._not_by_number:,} behind one sent later, {self._not_by_time:,} more than {DUE_SLACK_MS} ms behind one due later"
        return f"first one {first_s:.2f} s after the start; {order}"


# -- all of it


def measure(chosen: argparse.Namespace, life: Callable[[Stage], Any]) -> dict[str, Figures]:
    with (
        tempfile.TemporaryDirectory(prefix="homing-neighbours-", dir=chosen.data, ignore_cleanup_errors=True) as folder,
        Stage(Homing(Path(folder) / "homing"), chosen.body, chosen.deadline) as stage,
    ):
        return dict(asyncio.run(life(stage)))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-neighbours", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lives", nargs="*", metavar="LIFE", help="one: browse, redrive, purge; two: overdue (default: both)")
    parser.add_argument("--count", type=int, default=1_000_000, help="messages in the long queue (default 1,000,000)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--delay", type=int, default=60, help="seconds until the first of the messages to come (default 60)")
    parser.add_argument("--deadline", type=float, default=600, help="seconds after which a load client gives up (default 600)")
    parser.add_argument("--data", type=Path, default=None, help="where the broker keeps its data (default: the system's temporary folder)")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="also write the figures here, as JSON")
    chosen = parser.parse_args(words)
    if set(chosen.lives) - {"one", "two"}:
        parser.error("there are the lives one and two")
    found: dict[str, Figures] = {}
    if "one" in chosen.lives or not chosen.lives:
        found |= measure(chosen, lambda stage: one_life(stage, chosen.count))
    if "two" in chosen.lives or not chosen.lives:
        found |= measure(chosen, lambda stage: two_lives(stage, chosen.count, chosen.delay))
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
