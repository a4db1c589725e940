"""What docs/deploy.md tells a first-time operator to type, typed: here on one machine, by scripts/check-system on two."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests import fork_server
from tests.deployment import scripts
from tests.process import ROOT, wait_until


def typed(script: str, directory: Path) -> str:
    with fork_server.on_path(directory) as path:
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}
        command = ["bash", "-euc", script]
        done = subprocess.run(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_page_leads_to_an_encrypted_broker_with_two_users(tmp_path: Path) -> None:
    here, there = tmp_path / "broker", tmp_path / "client"
    here.mkdir()
    there.mkdir()
    played = scripts()
    on_loopback = played.broker.replace("broker.example", "localhost").replace("tls-host: 0.0.0.0", "tls-port: 0")
    typed(on_loopback, here)
    try:
        (port,) = re.findall(r"native-tls=127\.0\.0\.1:(\d+) amqp-tls=", (here / "ready").read_text())
        for name in ("tls/ca.pem", "shop.secret", "admin.secret"):
            shutil.copy(here / name, there)
        said = typed(played.client.replace("broker.example:7173", f"localhost:{port}"), there)
    finally:
        pid = int((here / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until("the broker has ended", lambda: not Path(f"/proc/{pid}").exists(), 60)
    assert "hello over there" in said
    assert re.search(r"access-refused .* user 'shop'", said), said
    assert re.search(r"^admin .*administrator", said, re.MULTILINE), said
