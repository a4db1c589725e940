"""``python -m benchmarks.clients`` (scripts/bench-clients): clients as programs use them, on Homing and on RabbitMQ's quorum queues.

RabbitMQ's own PerfTest (Java) and pika (Python): a producer whose messages are durable and confirmed, and a consumer that acknowledges
each by itself, at the same time. Maven brings PerfTest; nothing else is loaded from anywhere.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks.load import ROOT, LoadError
from benchmarks.peers.homing_amqp import HomingAmqp
from benchmarks.peers.peer import Peer
from benchmarks.peers.rabbitmq import RabbitMQQuorum
from benchmarks.scenarios import WINDOW
from benchmarks.stage import Stage

PEERS: Final[tuple[type[Peer], ...]] = (HomingAmqp, RabbitMQQuorum)
QUEUE: Final = "clients"
#: Where Maven puts PerfTest and what it needs.
JARS: Final = ROOT / "benchmarks" / "build" / "perf-test"
_AVERAGE: Final = re.compile(r"(sending|receiving) rate avg: (\d+) msg/s")


def perf_test(port: int, count: int, body_bytes: int) -> float:
    """Messages a second, of ``count`` that were sent, confirmed with at most WINDOW waiting, taken and acknowledged one by one."""
    words = f"-x 1 -y 1 -u {QUEUE} -p -f persistent -c {WINDOW} -q {WINDOW} -s {body_bytes} -C {count} -D {count}".split()
    command = ["java", "-cp", f"{JARS}/*", "com.rabbitmq.perf.PerfTest", "-h", f"amqp://guest:guest@127.0.0.1:{port}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rates = dict(_AVERAGE.findall(done.stdout))
    if done.returncode or len(rates) < 2:
        raise LoadError(f"PerfTest ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return min(float(rate) for rate in rates.values())


def with_pika(port: int, count: int, body_bytes: int) -> float:
    """The same with pika's BlockingConnection, whose publish waits for its confirm."""
    context = get_context("spawn")
    taken = context.Process(target=_take, args=(port, count))
    started = time.monotonic()
    taken.start()
    try:
        _send(port, count, body_bytes)
        taken.join(300)
    finally:
        taken.kill()
    if taken.exitcode:
        raise LoadError(f"pika's consumer ended with {taken.exitcode}")
    return count / (time.monotonic() - started)


def _send(port: int, count: int, body_bytes: int) -> None:
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel, body = connection.channel(), bytes(body_bytes)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))


def _take(port: int, count: int) -> None:
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=WINDOW)
        for number, (method, _, _) in enumerate(channel.consume(QUEUE), 1):
            channel.basic_ack(method.delivery_tag)
            if number == count:
                return


#: The client, how it plays, and how many messages.
CLIENTS: Final[dict[str, tuple[Callable[[int, int, int], float], int]]] = {"perf-test": (perf_test, 200_000), "pika": (with_pika, 5_000)}


def bring_perf_test() -> str | None:
    """Why it cannot take part, None where it is there."""
    if any(JARS.glob("perf-test-*.jar")):
        return None
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    command = ["mvn", "-q", "-B", "-f", str(ROOT / "benchmarks" / "perf_test"), "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return f"Maven: {done.stdout[-300:]}" if done.returncode else None


def measure(peer: Peer, client: str) -> tuple[float, float]:
    """Messages a second, and the broker's CPU seconds per 100,000."""
    play, count = CLIENTS[client]
    with Stage(peer) as stage:
        peer.start()
        peer.set_up(QUEUE)
        before = peer.usage().cpu_s
        rate = play(peer.port, count, stage.body_bytes)
        return rate, (peer.usage().cpu_s - before) * 100_000 / count


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-clients", description="Clients as programs use them, on Homing and on RabbitMQ.")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured, in turns (default 3)")
    given = parser.parse_args()
    missing = {kind.name: why for kind in PEERS if (why := kind.missing()) is not None}
    without_perf_test = bring_perf_test()
    for client in CLIENTS:
        if client == "perf-test" and without_perf_test is not None:
            print(f"perf-test is left out: {without_perf_test}")
            continue
        seen: dict[str, list[tuple[float, float]]] = {}
        for _ in range(given.rounds):
            for kind in PEERS:
                if kind.name not in missing:
                    with tempfile.TemporaryDirectory(prefix="homing-clients-") as place:
                        seen.setdefault(kind.name, []).append(measure(kind(Path(place)), client))
        for name, rounds in seen.items():
            rates, cpu = zip(*rounds, strict=True)
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            print(f"{client:<10}{name:<18}{statistics.median(rates):>9,.0f}/s ({spread}), {statistics.median(cpu):.2f} CPU s per 100,000")
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
