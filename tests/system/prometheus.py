"""A real Prometheus that watches a real broker: the alert rules by themselves, the first dead letter, and every query of the dashboard."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import homing
from homing import AckMode
from tests.certificates import Authority
from tests.postgresql import Postgres
from tests.process import ROOT, Server
from tests.system.check import Failed, Place, check, expect, run, tool

RULES: Final = ROOT / "deploy" / "prometheus"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "homing.json"
SCRAPE_S: Final = 5
#: Within this an alert tells of a queue's first dead letter.
ALERT_S: Final = 60.0
_PATIENCE_S: Final = 120.0


@check
def prometheus_rules(place: Place) -> str:
    promtool = tool("promtool")
    run([promtool, "check", "rules", "--lint=all", "--lint-fatal", "homing.rules.yaml"], RULES, "promtool check")
    run([promtool, "test", "rules", "homing.rules.test.yaml"], RULES, "promtool test")
    return "promtool found nothing, and each alert rose when it should"


@check
def prometheus_watches(place: Place) -> str:
    authority = Authority(place.directory)
    certificate = str(authority.issue("broker"))
    postgres = Postgres()
    config = {
        "amqp": {"port": 0},
        "native": {"port": 0, "tls-port": 0},
        "http": {"port": 0},
        "tls": {"certificate": certificate, "key": certificate},
        "address-settings": {"#": {"redelivery-delay": "1s", "max-delivery-attempts": 2}},
        "journal": {"replication": {"url": postgres.url, "node": "a", "storage-is-replicated": True}},
    }
    server = Server(place.directory / "broker", config)
    try:
        postgres.start()
        init = [sys.executable, "-m", "homing", "cluster", "init", "--config", str(server.write_config())]
        run(init, place.directory, "homing cluster init")
        with _prometheus(place.directory, server.start().ready["http"]) as ask:
            return asyncio.run(_play(server, ask))
    finally:
        server.close()
        postgres.stop()


@contextmanager
def _prometheus(directory: Path, broker: str) -> Iterator[Callable[..., Any]]:
    """Yields what asks its API."""
    scrape = {"job_name": "homing", "static_configs": [{"targets": [broker]}]}
    every = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
    config = directory / "prometheus.json"  # YAML as well
    config.write_text(json.dumps({"global": every, "rule_files": [str(RULES / "homing.rules.yaml")], "scrape_configs": [scrape]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )

    def ask(what: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            said = json.load(answer)
        if said["status"] != "success":
            raise Failed(f"{parameters}: {said}")
        return said["data"]

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(20)


async def _until(what: str, holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        try:
            if found := await asyncio.to_thread(holds):
                return found
        except OSError:
            pass  # it starts
        await asyncio.sleep(0.5)
    raise Failed(f"waited {_PATIENCE_S:.0f} s in vain until {what}")


async def _play(server: Server, ask: Callable[..., Any]) -> str:
    await _until("the broker was scraped for a minute", lambda: ask("query", query='min_over_time(up{job="homing"}[1m])')["result"])
    await asyncio.sleep(60)
    async with homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        await session.producer("orders").send(b"dies")
        consumer = session.consumer("orders")
        for _ in range(2):
            message = await consumer.receive(20_000)
            assert message is not None
            await message.nack()
        died = time.monotonic()
        load = asyncio.create_task(_load(connection))
        try:
            alert = await _until("an alert tells of the dead letter", lambda: _firing(ask, "HomingQueueDeadLetters", "DLQ.orders"))
            took_s = time.monotonic() - died
            expect(alert["event"], "moved_in")
            if took_s > ALERT_S:
                raise Failed(f"the alert came after {took_s:.0f} s")
            expressions = _expressions()
            for title, expression in expressions:
                await _until(f"there is something to see of {title!r}: {expression}", lambda: ask("query", query=expression)["result"])  # noqa: B023
        finally:
            load.cancel()
    return (
        f"an alert told of a queue's first dead letter after {took_s:.0f} s; all {len(expressions)} queries of the dashboard had an answer"
    )


async def _load(connection: homing.Connection) -> None:
    """Something of everything, again and again."""
    async with connection.session(AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer("busy"), session.consumer("busy", prefetch=10)
        await session.producer("later").send(b"x", delay_ms=3_600_000)
        held = session.consumer("held")
        await session.producer("held").send(b"x")
        await held.receive(20_000)
        for number in range(1_000_000):
            await producer.send(b"x" * 100)
            await session.producer("dying").send(b"x", ttl_ms=1)
            message = await consumer.receive(20_000)
            if message is not None:
                if number % 3:
                    await message.acknowledge()
                else:
                    await message.nack()
            await asyncio.sleep(0.05)


def _firing(ask: Callable[..., Any], name: str, queue: str) -> dict[str, str] | None:
    firing = [each["labels"] for each in ask("alerts")["alerts"] if each["state"] == "firing"]
    return next((each for each in firing if (each["alertname"], each.get("queue")) == (name, queue)), None)


def _expressions() -> list[tuple[str, str]]:
    """(title, query) of all panels, with the dashboard's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    filled = [
        (panel["title"], target["expr"].replace("$instance", ".+").replace("$__rate_interval", "1m"))
        for panel in panels
        for target in panel.get("targets", ())
    ]
    if left := [expression for _, expression in filled if "$" in expression]:
        raise Failed(f"these have variables that nobody fills in: {left}")
    return filled
