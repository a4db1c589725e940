"""What ``homing instrument`` costs a consumer while nothing fails, in CPU, in turns with the same consumer without it. Only a machine that
does nothing else can tell one percent. And what a failure costs with its traceback, consumer and broker.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pika
from celery import Celery

from tests.amqp_support import AMQP, amqp_url, connection
from tests.instrumented.story import AS_IT_IS, INSTRUMENTED, Worker
from tests.process import Server
from tests.system.check import CHECKS, Check, Failed, Place

TURNS: Final = 25
FAILING_TURNS: Final = 5
MOST_PERCENT: Final = 1.0
#: How many deliveries a turn has, and how the program is started.
CONSUMERS: Final = {
    "pika": (5_000, ["counting_pika.py"]),
    "aio_pika": (3_000, ["counting_aio_pika.py"]),
    "celery": (2_000, ["-m", "celery", "-A", "counting_celery", "worker", "-P", "solo", "-l", "error"]),
}


def _fill(server: Server, queue: str, count: int) -> None:
    """With tasks as Celery sends them, which are as good as any message to others."""
    with Celery("counting", broker=amqp_url(server), set_as_current=False) as app:
        headers, properties, body, _ = app.amqp.as_task_v2("7", "counting.done")
    kind = {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": 2}
    said = pika.BasicProperties(headers=headers, correlation_id=properties["correlation_id"], **kind)
    with connection(server) as opened:
        channel = opened.channel()
        channel.queue_declare(queue, durable=True)
        for _ in range(count):
            channel.basic_publish("", queue, json.dumps(body), said)


def _cpu_s(place: Place, server: Server, name: str, turn: int, way: str, fails: str = "") -> tuple[float, float]:
    """Of consumer and broker, for 100,000 deliveries. ``fails``: each, so."""
    count, command = CONSUMERS[name]
    queue = f"{name}-{turn}-{way.replace(' ', '-')}"
    _fill(server, queue, count)
    worker = Worker(place.directory / queue, amqp_url(server), queue, [sys.executable, "-W", "ignore", *command])
    worker.environment |= {"TEST_COUNT": str(count), "TEST_FAILS": fails}
    before_s = _used_s(server)
    try:
        worker.start(way)
        worker.wait_for("took", timeout_s=120)
        broker_s = _used_s(server) - before_s
    finally:
        worker.kill()
    consumer_s = float(worker.notes.read_text().split()[1])
    return consumer_s / (count - count // 10) * 100_000, broker_s / count * 100_000


def _used_s(server: Server) -> float:
    """CPU of the broker so far."""
    user, system = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _of_failures(place: Place) -> str:
    server = Server(place.directory / "failing", AMQP).start()
    seen: dict[str, list[tuple[float, float]]] = {AS_IT_IS: [], INSTRUMENTED: []}
    try:
        for turn in range(FAILING_TURNS):
            for way in sorted(seen, reverse=turn % 2 == 1):
                seen[way].append(_cpu_s(place, server, "pika", turn, way, fails="GBP"))
    finally:
        server.close()
    told = [f"{way} {min(one for one, _ in each):.1f} s, broker {min(other for _, other in each):.1f} s" for way, each in seen.items()]
    return f"CPU of a consumer of pika for 100,000 failures, with error and traceback where instrumented: {'; '.join(told)}"


def _cost(name: str, place: Place) -> str:
    server = Server(place.directory / name, AMQP).start()
    seen: dict[str, list[float]] = {AS_IT_IS: [], INSTRUMENTED: []}
    try:
        for turn in range(TURNS):
            for way in sorted(seen, reverse=turn % 2 == 1):
                seen[way].append(_cpu_s(place, server, name, turn, way)[0])
    finally:
        server.close()
    # What else the machine does adds to each, and takes from none.
    without, with_it = min(seen[AS_IT_IS]), min(seen[INSTRUMENTED])
    more = 100 * (with_it / without - 1)
    said = f"{without:.2f} s of CPU for 100,000 deliveries, {with_it:.2f} s instrumented, the least of {TURNS} turns: {more:+.1f} %"
    if more > MOST_PERCENT:
        raise Failed(f"{said}, more than {MOST_PERCENT:g} %")
    return said


for _name in CONSUMERS:
    CHECKS.append(Check(f"instrument-cost-{_name}".replace("_", "-"), partial(_cost, _name)))
CHECKS.append(Check("instrument-cost-of-failures", _of_failures))
