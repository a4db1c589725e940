"""docs/semantics.md, section 13: exit codes, the ready line, where the data is."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from homing import client
from homing.client import blocking
from homing.journal.store.directory import DATABASE_NAME
from tests.acceptance.semantics_support import running
from tests.process import ROOT, HomingCommand, Server


def serve(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """``homing serve`` in the directory above the configuration's."""
    config = directory / "conf" / "broker.yaml"
    config.parent.mkdir(exist_ok=True)
    if not config.exists():
        config.write_text("native: {port: 0}\n")
    command = [sys.executable, "-m", "homing", "serve", "--config", str(config), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], timeout_s: float = 30.0) -> tuple[int, str]:
    try:
        _, errors = process.communicate(timeout=timeout_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("as_json", [False, True])
def test_one_ready_line_and_a_clean_stop(tmp_path: Path, number: signal.Signals, as_json: bool) -> None:
    process = serve(tmp_path, *(["--json"] if as_json else []))
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        if as_json:
            reported = json.loads(line)
        else:
            assert line.startswith("homing ready native=127.0.0.1:")
            reported = dict(word.split("=", 1) for word in line.split()[2:])
        assert int(reported["pid"]) == process.pid
        host, _, port = reported["native"].rpartition(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        with blocking.connect(f"homing://{reported['native']}") as connection:
            assert connection.call("queues") == []
        # The data lies beside the file that names it, not where the command was given.
        assert (tmp_path / "conf" / "homing-data" / DATABASE_NAME).is_file()
    finally:
        os.kill(process.pid, number)
        code, _ = ended(process)
    assert code == 0


def test_data_can_be_named(tmp_path: Path) -> None:
    process = serve(tmp_path, "--data", "elsewhere")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.terminate()
    assert ended(process)[0] == 0
    assert (tmp_path / "elsewhere" / DATABASE_NAME).is_file()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ["queues"]),
        (1, ["receive", "orders", "--selector", "k ="]),
        (2, ["no-such-command"]),
        (2, ["queues", "--no-such-option"]),
        (3, ["queues", "--url", "homing://127.0.0.1:9"]),
        (4, ["history", "123456789"]),
        (4, ["peek", "no.such.queue"]),
        (5, ["config", "check", "broken.yaml"]),
        (5, ["serve", "--config", "broken.yaml"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(server: Server, homing: HomingCommand, code: int, words: list[str]) -> None:
    (homing.directory / "broken.yaml").write_text("native: {port: many}\n")
    done = homing(*words, url=server.url)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 5:
        assert "native.port" in done.stderr


@pytest.mark.parametrize("harm", ["newer", "damaged"])
def test_a_journal_that_is_newer_or_damaged_is_6(tmp_path: Path, harm: str) -> None:
    with running(tmp_path) as server:
        with blocking.connect(server.url) as connection:
            connection.session().producer("orders").send(b"x")
        server.stop()
    database = server.data / DATABASE_NAME
    if harm == "newer":
        with closing(sqlite3.connect(database)) as connection_:
            connection_.execute("PRAGMA user_version = 999")
    else:
        database.write_bytes(b"\x00" * 100 + database.read_bytes()[100:])
    again = serve(tmp_path, "--data", str(server.data))
    code, errors = ended(again)
    assert code == 6
    assert "journal" in errors
    assert "Traceback" not in errors


def test_an_input_or_output_error_is_70_and_nobody_is_answered(tmp_path: Path) -> None:
    """The journal may not grow beyond a size from here on: the write fails in the middle."""
    with running(tmp_path) as server, blocking.connect(server.url, reconnect=False, close_timeout_ms=500) as connection:
        producer = connection.session().producer("orders")
        producer.send(b"kept")
        size = (server.data / f"{DATABASE_NAME}-wal").stat().st_size + 150_000
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, size))
        with pytest.raises(client.HomingError) as lost:
            producer.send_many([b"x" * 100_000] * 10)
        assert lost.value.connection_lost
        assert server.wait() == 70
        server.start()
        with blocking.connect(server.url) as after:
            assert after.call("peek", queue="orders", limit=1)["messages"][0]["body"] == b"kept"
