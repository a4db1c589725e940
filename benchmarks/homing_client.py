"""The load client for Homing: the project's own client, used as its documentation tells.

Roles and options are those of rabbitmq_client.c: ``produce``, ``consume``, ``depth``, ``idle``; besides ``statistics`` and ``neighbour``.
``consume ack=``: ``each`` (INDIVIDUAL, each message acknowledged by itself), ``none`` (AUTO), ``reject`` (each failed with a reason),
``delay`` (each failed once until a time of its own within ``spread_ms`` behind ``lead_ms``, then acknowledged).
``late=1``: connect only after the go, and try until the broker is there.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

import homing
from homing.client import AckMode, Message

STAMP: Final = struct.Struct("=q")
POOL_BYTES: Final = 1 << 22
MODES: Final = {
    "each": AckMode.INDIVIDUAL,
    "none": AckMode.AUTO,
    "reject": AckMode.INDIVIDUAL,
    "return": AckMode.INDIVIDUAL,
    "delay": AckMode.INDIVIDUAL,
}
#: Spreads message ids evenly over a range (Knuth's multiplicative hash), so that a due time need not be remembered.
SPREADER: Final = 2_654_435_761


class Options(dict[str, str]):
    def number(self, name: str, fallback: int) -> int:
        return int(self.get(name, fallback))

    @property
    def places(self) -> int:
        """Producers or consumers: one a connection, or, where there are more queues than connections, one a queue."""
        return max(self.number("connections", 1), self.number("queues", 0))

    def queue(self, link: int) -> str:
        queues = self.number("queues", 0)
        return f"{self['queue']}.{link % queues}" if queues else self["queue"]


def percentiles(latencies_ns: list[int]) -> dict[str, float]:
    if not latencies_ns:
        return {}
    ordered = sorted(latencies_ns)
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6 for name, share in shares.items()}


async def wait_for_go() -> float:
    """Returns the CPU seconds this process has used so far."""
    print('{"ready": true}', flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return cpu_s()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def connect_all(options: Options, stack: AsyncExitStack) -> list[homing.Connection]:
    return [await connect(options, stack) for _ in range(options.number("connections", 1))]


async def connect(options: Options, stack: AsyncExitStack) -> homing.Connection:
    """With ``late`` it tries again until the broker is there."""
    end = time.monotonic() + options.number("deadline", 60)
    scheme = "homings" if "cafile" in options else "homing"
    while True:
        try:
            connection = homing.connect(f"{scheme}://127.0.0.1:{options['port']}", cafile=options.get("cafile"), reconnect=False)
            return await stack.enter_async_context(connection)
        except homing.HomingError:
            if not options.number("late", 0) or time.monotonic() > end:
                raise
            await asyncio.sleep(0.005)


# -- producing


def bodies(body_bytes: int) -> list[bytes]:
    """Distinct random bodies, used in turn by all producers of the process: 4 MiB each would be 40 GB for 10,000 queues."""
    return [os.urandom(body_bytes) for _ in range(max(16, min(4096, POOL_BYTES // body_bytes)))]


class Producing:
    """One producer's share of the work, and how far it is."""

    def __init__(self, options: Options, producer: homing.Producer, share: int, pool: list[bytes]) -> None:
        self.producer = producer
        self.share = share
        self.sent = 0
        self.latencies_ns: list[int] = []
        self._window = options.number("window", 1000)
        self._pool = pool
        rate = options.number("rate", 0)
        self._interval_ns = 1_000_000_000 // rate if rate else 0

    @property
    def confirmed(self) -> int:
        return self.sent - self.producer.unconfirmed

    async def run(self) -> None:
        if self._interval_ns:
            await self._paced()
        elif self._window == 1:
            await self._singly()
        else:
            await self._windowed()

    async def _windowed(self) -> None:
        """Never more than the window unconfirmed; what there is room for goes out at once."""
        producer, pool, count = self.producer, self._pool, self.share
        send, size = producer.send_nowait, len(pool)
        while self.sent < count:
            await producer.drain()
            upto = min(count, self.sent + self._window - producer.unconfirmed)
            for number in range(self.sent, upto):
                send(pool[number % size])
            self.sent = upto
        await producer.flush()

    async def _singly(self) -> None:
        for number in range(self.share):
            started_ns = time.monotonic_ns()
            self.sent += 1
            await self.producer.send(self._pool[number % len(self._pool)])
            self.latencies_ns.append(time.monotonic_ns() - started_ns)

    async def _paced(self) -> None:
        """Open loop. A message that leaves more than one interval late is stamped with the moment it was due."""
        out: deque[tuple[homing.Confirmation, int]] = deque()
        more = asyncio.Event()
        go_ns = time.monotonic_ns()

        def tick() -> None:
            os.read(timer, 8)
            while self.sent < self.share and (now_ns := time.monotonic_ns()) >= (due_ns := go_ns + self.sent * self._interval_ns):
                stamp_ns = due_ns if now_ns - due_ns > self._interval_ns else now_ns
                body = STAMP.pack(stamp_ns) + self._pool[self.sent % len(self._pool)][STAMP.size :]
                out.append((self.producer.send_nowait(body), stamp_ns))
                self.sent += 1
            more.set()

        loop = asyncio.get_running_loop()
        timer = _interval_timer(self._interval_ns)
        loop.add_reader(timer, tick)
        try:
            while len(self.latencies_ns) < self.share:
                while not out:
                    more.clear()
                    await more.wait()
                confirmation, stamp_ns = out.popleft()
                await confirmation
                self.latencies_ns.append(time.monotonic_ns() - stamp_ns)
        finally:
            loop.remove_reader(timer)
            os.close(timer)


async def produce(options: Options) -> dict[str, Any]:
    places, target = options.places, options.number("count", 0)
    pool = bodies(options.number("body", 1024))
    async with AsyncExitStack() as stack:
        work: list[Producing] = []
        links = await connect_all(options, stack)
        for number in range(places):
            session = await stack.enter_async_context(links[number % len(links)].session(AckMode.AUTO))
            address = options.get("exchange") or options.queue(number)
            producer = session.producer(address, max_unconfirmed=options.number("window", 1000), durable=bool(options.number("durable", 1)))
            work.append(Producing(options, producer, target // places + (number < target % places), pool))
        used_s = await wait_for_go()
        started_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(options.number("deadline", 60)):
                await asyncio.gather(*(each.run() for each in work))
        except TimeoutError:
            # Closing in order would wait for confirms that do not come.
            print(json.dumps({"count": sum(each.confirmed for each in work)}), flush=True)
            os._exit(0)
        ended_ns, used_s = time.monotonic_ns(), cpu_s() - used_s
    latencies_ns = [latency for each in work for latency in each.latencies_ns]
    confirmed = sum(each.confirmed for each in work)
    times = {"started_ns": started_ns, "ended_ns": ended_ns, "cpu_s": used_s}
    return {"count": confirmed, "refused": 0, **times, **percentiles(latencies_ns)}


def _interval_timer(interval_ns: int) -> int:
    """A timerfd: the loop's own timers know only whole milliseconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
    times = (ctypes.c_long * 4)(interval_ns // 10**9, interval_ns % 10**9, 0, 1)
    if timer < 0 or libc.timerfd_settime(timer, 0, times, None):
        raise OSError(ctypes.get_errno(), "no timerfd")
    return int(timer)


# -- consuming


class Tally:
    """What has been received, over all consumers of this process."""

    def __init__(self, target: int, options: Options) -> None:
        self.target = target
        self.received = self.redelivered = self.early = self.overrun = 0
        self.first_ns = self.last_ns = self.delayed_ns = 0
        self.latencies: list[int] = []
        self.done = asyncio.Event()
        self._spread_ms = options.number("spread_ms", 60_000)
        self._lead_ms = options.number("lead_ms", 5_000)
        self.window_ms = 0

    def start(self) -> None:
        self.window_ms = time.time_ns() // 1_000_000 + self._lead_ms

    def count(self) -> None:
        self.received += 1
        if not self.first_ns:
            self.first_ns = time.monotonic_ns()
        if self.received == self.target:
            self.last_ns = time.monotonic_ns()
            self.done.set()

    def due_ms(self, message_id: int) -> int:
        return self.window_ms + (message_id * SPREADER % 2**32) * self._spread_ms // 2**32


def handler_of(ack: str, stamped: bool, tally: Tally) -> Callable[[Message], None]:
    count = tally.count

    def acknowledge_each(message: Message) -> None:
        message.acknowledge()
        count()

    def leave(message: Message) -> None:
        count()

    def reject(message: Message) -> None:
        message.nack(reason="rejected by the benchmark")
        tally.redelivered += message.delivery_count > 1
        count()

    def give_back(message: Message) -> None:
        message.nack()
        count()

    def delay(message: Message) -> None:
        due_ms = tally.due_ms(message.message_id)
        now_ns = time.time_ns()
        if message.delivery_count == 1:
            tally.first_ns = tally.first_ns or time.monotonic_ns()
            tally.overrun += now_ns // 1_000_000 >= due_ms
            message.nack(reason="delayed by the benchmark", until_ms=due_ms)
            tally.delayed_ns = time.monotonic_ns()
            return
        late_ns = now_ns - due_ms * 1_000_000
        tally.latencies.append(late_ns)
        tally.early += late_ns < 0
        acknowledge_each(message)

    def stamped_one(message: Message) -> None:
        tally.latencies.append(time.monotonic_ns() - STAMP.unpack_from(message.body)[0])
        acknowledge_each(message)

    if stamped:
        return stamped_one
    return {"each": acknowledge_each, "none": leave, "reject": reject, "return": give_back, "delay": delay}[ack]


async def consume(options: Options) -> dict[str, Any]:
    ack = options.get("ack", "each")
    tally = Tally(options.number("count", 0), options)
    handler = handler_of(ack, bool(options.number("stamp", 0)), tally)
    used_s = await wait_for_go() if options.number("late", 0) else 0.0
    async with AsyncExitStack() as stack:
        tally.start()
        links = await connect_all(options, stack)
        for number in range(options.places):
            session = await stack.enter_async_context(links[number % len(links)].session(MODES[ack]))
            await session.listen(options.queue(number), handler, prefetch=options.number("prefetch", 1000))
        if not options.number("late", 0):
            used_s = await wait_for_go()
        started_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(options.number("deadline", 60)):
                await tally.done.wait()
        except TimeoutError:
            tally.last_ns = time.monotonic_ns()
        used_s = cpu_s() - used_s
    answer = {"count": tally.received, "redelivered": tally.redelivered, "started_ns": started_ns, "first_ns": tally.first_ns}
    if ack == "delay":
        answer |= {"early": tally.early, "overrun": tally.overrun, "delayed_ns": tally.delayed_ns}
    return {**answer, "ended_ns": tally.last_ns, "cpu_s": used_s, **percentiles(tally.latencies)}


async def neighbour(options: Options) -> dict[str, Any]:
    """Sends ``rate`` messages a second and takes each, until a second line comes.

    Into the file ``out`` goes when each left and how long it was on its way: a line of that length would not pass a pipe in one piece.
    """
    seen: list[tuple[int, int]] = []
    more = asyncio.Event()

    def take(message: Message) -> None:
        left_ns = STAMP.unpack_from(message.body)[0]
        seen.append((left_ns, time.monotonic_ns() - left_ns))
        message.acknowledge()
        more.set()

    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context((await connect(options, stack)).session(AckMode.INDIVIDUAL))
        await session.listen(options["queue"], take, prefetch=options.number("prefetch", 1000))
        producer = session.producer(options["queue"], max_unconfirmed=options.number("window", 1000))
        work = Producing(options, producer, sys.maxsize, bodies(options.number("body", 1024)))
        await wait_for_go()
        sending = asyncio.create_task(work.run())
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        sending.cancel()
        await asyncio.wait((sending,))
        async with asyncio.timeout(options.number("deadline", 60)):
            while len(seen) < work.sent:
                more.clear()
                await more.wait()
    _write(Path(options["out"]), seen)
    return {"count": work.sent}


def _write(path: Path, seen: list[tuple[int, int]]) -> None:
    path.write_text(json.dumps(seen))


# -- the rest


async def depth(options: Options) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        queues = await (await connect(options, stack)).listing("queues")
        return {"count": sum(queue["messages"] for queue in queues if queue["name"] == options["queue"])}


async def statistics(options: Options) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        connection = await connect(options, stack)
        try:
            return dict(await connection.call("statistics"))
        except homing.CallError as error:
            if error.code != "unknown-verb":
                raise
            return {}


async def idle(options: Options) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        for _ in range(options.number("connections", 1)):
            await connect(options, stack)
        await wait_for_go()
        return {"count": options.number("connections", 1)}


ROLES: Final[dict[str, Callable[[Options], Coroutine[Any, Any, dict[str, Any]]]]] = {
    "produce": produce,
    "consume": consume,
    "neighbour": neighbour,
    "depth": depth,
    "statistics": statistics,
    "idle": idle,
}


def main() -> int:
    role, words = sys.argv[1], sys.argv[2:]
    options = Options(word.partition("=")[::2] for word in words)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            answer = runner.run(ROLES[role](options))
    except homing.HomingError as error:
        answer = {"error": f"{error.code}: {error}"}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
