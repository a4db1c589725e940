"""A million dead letters: how long questions about them take, how fast they are sent back, and what others notice meanwhile.

Prints one JSON object: seconds of each question, messages a second, milliseconds of others' confirms. Ends with 1 where a bound does not
hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import homing
from homing.client import AckMode, CallError, Connection
from tests.acceptance.semantics_support import until
from tests.process import Server

#: Each question, in seconds; messages a second; others' confirms by how many times.
MOST_S: Final = 1.0
LEAST_RATE: Final = 20_000
MOST_TIMES: Final = 2.0
_ERRORS: Final = 100
#: Messages that fail together.
_TOGETHER: Final = 200
#: How long a redrive is at work, and paused, before it is the other's turn; and after how much of that a pause is looked at.
_TURN_S: Final = 3.0
_SETTLE_S: Final = 0.5
_LOOK_S: Final = 0.05
_SETTINGS: Final = {"#": {"max-delivery-attempts": 1, "redelivery-delay": 0}}


async def fill(url: str, count: int) -> None:
    """Dead letters of a hundred faults in one queue, so many messages of each in a row, as an outage leaves them."""
    async with homing.connect(url) as connection:
        left = count

        async def produce() -> None:
            async with connection.session() as session:
                producer = session.producer("orders")
                for number in range(count):
                    producer.send_nowait(b'{"order": %d}' % number, properties={"region": "eu" if number % 2 else "us"})
                    if number % _TOGETHER == 0:
                        await producer.drain()
                await producer.flush()

        async def fail() -> None:
            nonlocal left
            async with homing.connect(url) as own, own.session(AckMode.INDIVIDUAL) as session:
                consumer = session.consumer("orders", prefetch=5 * _TOGETHER)
                while left:
                    message = await consumer.receive(timeout_ms=200)
                    if message is not None:
                        fault = left // _TOGETHER % _ERRORS
                        message.nack(error=f"{'abcdefghij'[fault // 10]}{'klmnopqrst'[fault % 10]} is down")
                        left -= 1

        async with asyncio.TaskGroup() as tasks:
            for each in (produce, fail, fail):
                tasks.create_task(each())

        async def all_dead() -> bool:
            return bool((await connection.call("queue", queue="DLQ.orders"))["messages"] == count)

        await until("all are dead", all_dead, timeout_s=300)


async def timed(question: Callable[[], Awaitable[Any]]) -> float:
    """The worst of three."""
    worst = 0.0
    for _ in range(3):
        began = time.perf_counter()
        await question()
        worst = max(worst, time.perf_counter() - began)
    return round(worst, 3)


async def confirms(connection: Connection, going_on: Callable[[], bool]) -> list[float]:
    """Milliseconds of each confirm of a producer that sends one at a time, every 5 ms."""
    found: list[float] = []
    async with connection.session() as session:
        producer = session.producer("others")
        while going_on():
            began = time.perf_counter()
            await producer.send(b"x" * 1024)
            found.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)
    return sorted(found)


@dataclass
class Turns:
    """What a redrive came to while it was at work, and milliseconds of others' confirms, sorted: while it was paused, and meanwhile."""

    quiet: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    sent: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0


async def in_turns(connection: Connection, other: Connection, pid: int) -> Turns:
    """Sends all back, pausing again and again: what the machine does meanwhile then takes part in both of what is compared."""
    turns = Turns()
    job: dict[str, Any] | None = None
    while job is None or job["ended_ms"] is None:
        began, used_s = time.perf_counter(), cpu_s(pid)
        turn = asyncio.create_task(one_turn(connection, job))
        turns.busy += await confirms(other, lambda: not turn.done())  # noqa: B023 - called at once
        job = await turn
        turns.elapsed_s += time.perf_counter() - began
        turns.cpu_s += cpu_s(pid) - used_s
        await asyncio.sleep(_SETTLE_S)
        until_s = time.perf_counter() + _TURN_S
        turns.quiet += await confirms(other, lambda: time.perf_counter() < until_s)  # noqa: B023 - called at once
    turns.sent = job["sent"]
    turns.quiet.sort()
    turns.busy.sort()
    return turns


async def one_turn(connection: Connection, job: dict[str, Any] | None) -> dict[str, Any]:
    """Starts the job, or resumes it; returns what it has come to when it is paused after a while, or has ended."""
    if job is None:
        job = await connection.redrive("DLQ.orders", stop_above=None)
    else:
        await connection.call("resume-redrive", redrive=job["job_id"])
    number, until_s = job["job_id"], time.perf_counter() + _TURN_S
    while True:
        await asyncio.sleep(_LOOK_S)
        if time.perf_counter() >= until_s:
            # Where it has ended by itself, that is refused.
            with contextlib.suppress(CallError):
                await connection.call("pause-redrive", redrive=number)
        job = dict(await connection.call("redrive-status", redrive=number))
        if job["state"] != "running":
            return job


def runs_first() -> bool:
    """Whether this process has a processor from now on as soon as it wants one (a right of root's): others have processors of their own,
    and are not to wait here for one that the broker has."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


def p99(sorted_ms: list[float]) -> float:
    return round(sorted_ms[int(len(sorted_ms) * 0.99)], 2)


def cpu_s(pid: int) -> float:
    """Seconds that a process has used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(url: str, pid: int, count: int) -> dict[str, Any]:
    async with homing.connect(url) as connection, homing.connect(url) as other:
        faults = (await connection.call("faults", queue="orders"))["items"]
        some = faults[len(faults) // 2]["fault"]

        def first_page(**wanted: Any) -> Callable[[], Awaitable[Any]]:
            return lambda: connection.call("peek-dead-letters", queue="DLQ.orders", filter=wanted, limit=100)

        dead = (await connection.call("dead-letters"))[0]
        middle = (dead["oldest_ms"] + dead["newest_ms"]) // 2
        questions = {
            "dead": lambda: connection.call("dead-letters"),
            "faults": lambda: connection.call("faults"),
            "dry run of all": lambda: connection.call("reckon-redrive", queue="DLQ.orders"),
            "dry run of a fault": lambda: connection.call("reckon-redrive", queue="DLQ.orders", filter={"fault": some}),
            "page by fault": first_page(fault=some),
            "page by error type": first_page(error_type="nack"),
            "page by reason": first_page(reason="delivery_limit"),
            "page by time": first_page(since_ms=middle),
            "page by fault and time": first_page(fault=some, since_ms=middle),
        }
        seconds = {name: await timed(question) for name, question in questions.items()}
        first, turns = runs_first(), await in_turns(connection, other, pid)
    quiet, busy = p99(turns.quiet), p99(turns.busy)
    return {
        "dead_letters": dead["messages"],
        "seconds": seconds,
        "sent_back": turns.sent,
        "sent_back_per_s": round(turns.sent / turns.elapsed_s),
        "broker_cpu_s_per_100000": round(turns.cpu_s / turns.sent * 100_000, 2),
        "others_confirm_p99_ms": {"paused": quiet, "meanwhile": busy},
        "others_confirms": {"paused": len(turns.quiet), "meanwhile": len(turns.busy)},
        "others_run_first": first,
        "holds": max(seconds.values()) < MOST_S
        and turns.sent == count
        and turns.sent / turns.elapsed_s >= LEAST_RATE
        and busy <= MOST_TIMES * quiet,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/check-dead-letters", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="dead letters (default 1,000,000)")
    count = parser.parse_args().messages
    with tempfile.TemporaryDirectory(prefix="homing-dead-") as directory:
        server = Server(Path(directory), {"address-settings": _SETTINGS}).start()
        try:
            began = time.perf_counter()
            asyncio.run(fill(server.url, count))
            print(f"{count:,} are dead after {time.perf_counter() - began:.0f} s", file=sys.stderr)
            found = asyncio.run(ask(server.url, server.pid, count))
        finally:
            server.close()
    print(json.dumps(found, indent=2))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
