"""What ``homing instrument`` costs a consumer while nothing fails: instructions of its process a delivery, counted by valgrind, beside the
same consumer without it, twice. CPU time differs by more than one percent from one process to the next of the same program. And what a
failure costs with its traceback, consumer and broker.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pika
from celery import Celery

from tests.amqp_support import amqp_url, connection
from tests.instrumented.story import AS_IT_IS, INSTRUMENTED, Worker
from tests.process import Server
from tests.system.check import CHECKS, Check, Failed, Place, tool

FAILING_TURNS: Final = 5
FAILING: Final = 5_000
#: What more is counted for these many more is the deliveries'.
FEW: Final = 200
MANY: Final = 600
MOST_PERCENT: Final = 1.0
#: How the programs are started, behind ``python``.
CONSUMERS: Final = {
    "pika": ["counting_pika.py"],
    "aio-pika": ["counting_aio_pika.py"],
    "celery": ["-m", "celery", "-A", "counting_celery", "worker", "-P", "solo", "-l", "error"],
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


def _worker(place: Place, name: str, run: str, count: int, environment: dict[str, str], before: Sequence[str] = ()) -> Worker:
    """That is given so many deliveries of a queue of its own."""
    _fill(place.server, run, count)
    command = [*before, sys.executable, "-W", "ignore", *CONSUMERS[name]]
    worker = Worker(place.directory / run, amqp_url(place.server), run, command)
    worker.environment |= {"TEST_COUNT": str(count), **environment}
    return worker


def _failing_s(place: Place, turn: int, way: str) -> tuple[float, float]:
    """CPU of consumer and broker, for 100,000 deliveries that all fail."""
    worker = _worker(place, "pika", f"{turn}-{way.replace(' ', '-')}", FAILING, {"TEST_FAILS": "GBP"})
    before_s = _used_s(place.server)
    try:
        worker.start(way)
        worker.wait_for("took", timeout_s=120)
        broker_s = _used_s(place.server) - before_s
    finally:
        worker.kill()
    consumer_s = float(worker.notes.read_text().split()[1])
    return consumer_s / (FAILING - FAILING // 10) * 100_000, broker_s / FAILING * 100_000


def _used_s(server: Server) -> float:
    """CPU of the broker so far."""
    user, system = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _of_failures(place: Place) -> str:
    seen: dict[str, list[tuple[float, float]]] = {AS_IT_IS: [], INSTRUMENTED: []}
    for turn in range(FAILING_TURNS):
        for way in sorted(seen, reverse=turn % 2 == 1):
            seen[way].append(_failing_s(place, turn, way))
    told = [f"{way} {min(one for one, _ in each):.1f} s, broker {min(other for _, other in each):.1f} s" for way, each in seen.items()]
    return f"CPU of a consumer of pika for 100,000 failures, with error and traceback where instrumented: {'; '.join(told)}"


def _instructions(name: str, place: Place, way: str, run: str) -> float:
    """A delivery."""
    few, many = (_counted(name, place, way, f"{run}-{count}", count) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _counted(name: str, place: Place, way: str, run: str, count: int) -> int:
    """From its start to the last of so many deliveries."""
    # Sets and dictionaries are then laid out alike in each.
    environment = {"TEST_ENDS": "1", "PYTHONHASHSEED": "0"}
    valgrind = [tool("valgrind"), "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    worker = _worker(place, name, run, count, environment, valgrind)
    try:
        worker.start(way)
        worker.wait(timeout_s=400)
    finally:
        worker.kill()
    found = re.search(r"Collected : (\d+)", worker.log())
    if found is None:
        raise Failed(f"{name}, {way}: {worker.log()}")
    return int(found[1])


def _cost(name: str, place: Place) -> str:
    without, again = (_instructions(name, place, AS_IT_IS, run) for run in ("once", "again"))
    with_it = _instructions(name, place, INSTRUMENTED, "instrumented")
    more, apart = (100 * (each / without - 1) for each in (with_it, again))
    said = f"{without:,.0f} instructions a delivery, {with_it:,.0f} instrumented: {more:+.2f} %; without it again: {apart:+.2f} %"
    if more > MOST_PERCENT:
        raise Failed(f"{said}; more than {MOST_PERCENT:g} %")
    return said


for _name in CONSUMERS:
    CHECKS.append(Check(f"instrument-cost-{_name}", partial(_cost, _name)))
CHECKS.append(Check("instrument-cost-of-failures", _of_failures))
