"""HAProxy in front of two nodes, with the configuration that the page names: it goes to whoever leads, and programs with it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.postgresql import Postgres
from tests.process import ROOT, Server, free_port
from tests.system.check import Failed, Place, check, expect, run, tool

_CONFIG: Final = ROOT / "deploy" / "haproxy" / "homing.cfg"
_PATIENCE_S: Final = 40.0
_PORTS: Final = {"native": 7171, "amqp": 5672, "http": 7172}


@check
def haproxy(place: Place) -> str:
    haproxy, postgres = tool("haproxy"), Postgres()
    nodes = {name: _node(place.directory / name, name, postgres.url) for name in "ab"}
    front = {name: free_port() for name in ("native", "amqp")}
    path = place.directory / "homing.cfg"
    path.write_text(_in_front_of(_CONFIG.read_text(), nodes, front))
    run([haproxy, "-c", "-f", str(path)], place.directory, "haproxy -c")
    url, proxy = f"homing://127.0.0.1:{front['native']}", None
    try:
        postgres.start()
        _homing(place.directory, "cluster", "init", "--config", str(nodes["a"].write_config()))
        for node in nodes.values():
            node.start()
        with (place.directory / "haproxy.log").open("w") as log:
            proxy = subprocess.Popen([haproxy, "-db", "-f", str(path)], stdout=log, stderr=log)
        _send(place.directory, url, "first")
        nodes["a"].kill()
        _send(place.directory, url, "killed")
        nodes["a"].start()
        _homing(place.directory, "cluster", "switch-over", "--config", str(nodes["a"].config_path), "--to", "a")
        _send(place.directory, url, "asked")
        leader = json.loads(_homing(place.directory, "cluster", "status", "--config", str(nodes["a"].config_path), "--json"))["leader"]
        expect(leader, "a")
        read = _homing(place.directory, "receive", "kept", "--count", "3", "--json", "--url", url).splitlines()
        expect([json.loads(line)["body"] for line in read], ["first", "killed", "asked"])
        expect(asyncio.run(_amqp(front["amqp"])), "through HAProxy")
        return "what two leaders confirmed through HAProxy came from the third; it went to whoever led, native and AMQP"
    finally:
        if proxy is not None:
            proxy.kill()
            proxy.wait()
        for node in nodes.values():
            node.close()
        postgres.stop()


def _node(directory: Path, name: str, database: str) -> Server:
    replication = {"url": database, "node": name, "storage-is-replicated": True}
    ports = {protocol: {"port": free_port()} for protocol in _PORTS}
    node = Server(directory, {**ports, "console": None, "journal": {"replication": replication}})
    node.measured = True  # what begins anew has to be a process of its own
    return node


def _in_front_of(config: str, nodes: dict[str, Server], front: dict[str, int]) -> str:
    for protocol, port in _PORTS.items():
        for name, node in nodes.items():
            there = f"127.0.0.1:{node.config[protocol]['port']} check port {node.config['http']['port']}"
            config = config.replace(f"server {name} {name}.example:{port}", f"server {name} {there}")
        if protocol in front:
            config = config.replace(f"bind :{port}", f"bind 127.0.0.1:{front[protocol]}")
    return config


def _homing(directory: Path, *words: str) -> str:
    return run([sys.executable, "-m", "homing", *words], directory, f"homing {' '.join(words)}")


def _send(directory: Path, url: str, body: str) -> None:
    """As a program does that connects again."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            _homing(directory, "send", "kept", "--body", body, "--url", url)
            return
        except Failed:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


async def _amqp(port: int) -> str:
    import aio_pika

    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("proxied", durable=True)
        message = aio_pika.Message(b"through HAProxy", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key="proxied")
        found = await queue.get(timeout=10)
        async with found.process():
            return found.body.decode()
