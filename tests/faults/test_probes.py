"""What the probes say beside a disk that hangs and while the broker stops; test_disk_full.py has the disk that is full."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import homing
from tests.integration.test_http import HTTP, ask, figures
from tests.process import Server, wait_until


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    """While this file is there the disk does not answer."""
    return tmp_path / "hang"


@pytest.fixture
def server(tmp_path: Path, shim: str, hang: Path) -> Iterator[Server]:
    server = Server(tmp_path / "broker", HTTP)
    server.runner = ["env", f"LD_PRELOAD={shim}", "HOMING_SHIM_PATH=homing.db", f"HOMING_SHIM_HANG={hang}"]
    yield server.start()
    server.close()


def state(server: Server) -> tuple[int, str, list[str]]:
    code, said = ask(server, "/readyz")
    found = json.loads(said)
    return code, found["state"], found["degraded"]


async def test_a_disk_that_hangs_is_named_and_a_stop_beside_it_tells_clients_in_time(server: Server, hang: Path) -> None:
    connection = await homing.connect(server.url, close_timeout_ms=100)
    session = connection.session()
    producer = session.producer("orders")
    await producer.send(b"confirmed")
    assert await asyncio.to_thread(state, server) == (200, "ready", [])
    await asyncio.to_thread(hang.touch)
    unconfirmed = producer.send_nowait(b"on its way")
    await asyncio.to_thread(wait_until, "the disk is named", lambda: state(server) == (200, "ready", ["disk"]))
    assert ask(server, "/livez") == (200, "ok\n")
    assert figures(server)["homing_disk_waits_seconds", ()] > 5
    os.kill(server.pid, signal.SIGTERM)
    await asyncio.to_thread(wait_until, "it stops", lambda: state(server) == (503, "stopping", []))
    lost = asyncio.Event()
    connection.on_state.append(lambda state: lost.set())
    await asyncio.wait_for(lost.wait(), 30)
    assert not unconfirmed.done
    assert ask(server, "/livez") == (200, "ok\n"), "it waits for the disk"
    await asyncio.to_thread(hang.unlink)
    assert await asyncio.to_thread(server.wait) == 0
    with pytest.raises(homing.CloseIncomplete, match="1 sends without a confirm"):
        await connection.close()
    assert "disk-slow: " in server.log_path.read_text()
