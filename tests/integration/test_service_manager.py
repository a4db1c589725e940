"""The systemd unit, by a service manager that does with it what systemd would: its command line, sd_notify(3), its watchdog."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import homing as client
from homing.broker.cli.output import ExitCode
from tests import fork_server
from tests.process import ROOT

UNIT = ROOT / "deploy" / "systemd" / "homing.service"
CONFIG = "native: {port: 0}\n"
#: Shorter than the unit's, so that the test is.
WATCHDOG_S = 1.5


def setting(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


class Supervisor:
    """Starts what the unit says, hears what it says of itself, and when it no longer says anything ends it and starts it again."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.config = directory / "broker.yaml"
        self.config.write_text(CONFIG)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("")  # the system chooses a name
        places = {"${STATE_DIRECTORY}": str(directory / "state"), "/etc/homing/broker.yaml": str(self.config)}
        program, *self._arguments = [places.get(word, word) for word in shlex.split(setting("ExecStart"))]
        assert program == "/opt/homing/bin/homing"
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + self._socket.getsockname()[1:].decode())
        monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
        self.start()

    def start(self) -> None:
        with (self.directory / "log").open("a") as log:
            self.process = fork_server.start(self._arguments, self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def hear(self, wanted: str, timeout_s: float = 30.0) -> dict[str, str]:
        """The next notice that sets ``wanted``. Raises TimeoutError where none comes."""
        end = time.monotonic() + timeout_s
        while select.select([self._socket], [], [], max(0.0, end - time.monotonic()))[0]:
            said = dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())
            if wanted in said:
                return said
        raise TimeoutError(f"{wanted} was not said; the log says {(self.directory / 'log').read_text()[-2000:]}")

    def keep_alive(self) -> None:
        """Waits for the watchdog's hunger; then SIGABRT, which a stopped process only gets with SIGCONT, and a new start."""
        try:
            while True:
                self.hear("WATCHDOG", WATCHDOG_S)
        except TimeoutError:
            os.kill(self.process.pid, signal.SIGABRT)
            os.kill(self.process.pid, signal.SIGCONT)
        assert self.process.wait(30) == -signal.SIGABRT
        self.start()

    def close(self) -> None:
        self.process.kill()
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    started = Supervisor(tmp_path, monkeypatch)
    yield started
    started.close()


def address(ready: dict[str, str]) -> str:
    (found,) = re.findall(r"native=(\S+)", ready["STATUS"])
    return f"homing://{found}"


async def test_a_broker_says_how_it_is_and_one_that_hangs_is_started_again(supervisor: Supervisor) -> None:
    ready = supervisor.hear("READY")
    async with client.connect(address(ready)) as connection, connection.session(client.AckMode.AUTO) as session:
        await session.producer("orders").send(b"kept")
    for _ in range(3):
        supervisor.hear("WATCHDOG")

    before_us = time.monotonic_ns() // 1000
    os.kill(supervisor.process.pid, signal.SIGHUP)
    assert before_us <= int(supervisor.hear("RELOADING")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert supervisor.hear("READY")["STATUS"] == "reloaded"
    supervisor.config.write_text(f"{CONFIG}users: nobody\n")
    os.kill(supervisor.process.pid, signal.SIGHUP)
    assert "users" in supervisor.hear("READY")["STATUS"]
    supervisor.config.write_text(CONFIG)

    os.kill(supervisor.process.pid, signal.SIGSTOP)
    supervisor.keep_alive()
    ready = supervisor.hear("READY")
    async with client.connect(address(ready)) as connection, connection.session(client.AckMode.AUTO) as session:
        message = await session.consumer("orders").receive(20_000)
        assert message is not None
        assert message.body == b"kept"

    os.kill(supervisor.process.pid, signal.SIGTERM)
    assert supervisor.hear("STOPPING")["STATUS"] == "stopping"
    assert supervisor.process.wait(30) == 0
    assert (supervisor.directory / "state" / "homing.db").exists()


def test_what_a_start_does_not_mend_is_not_started_again() -> None:
    """As the page says of each exit code that there is."""
    page = (ROOT / "docs" / "operations.md").read_text().partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    again = {int(code): said for code, said in re.findall(r"^\| (\d+) \|.* \| ([^|]*?) ?\|$", page, re.MULTILINE)}
    assert set(again) == set(ExitCode)
    never = [ExitCode.CONFIG, ExitCode.JOURNAL, ExitCode.LOG_LOST]
    assert [code for code, said in again.items() if said == "**no**"] == never
    assert setting("RestartPreventExitStatus") == " ".join(str(int(code)) for code in never)
    assert setting("Restart") == "on-failure"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze; enable: install systemd")
    unit, nightly, timer = (tmp_path / f"homing{name}" for name in (".service", "-nightly.service", "-nightly.timer"))
    for each in (unit, nightly, timer):
        # What stands in the unit is not installed here.
        text = (UNIT.parent / each.name).read_text().replace("/opt/homing/bin/homing", sys.executable)
        each.write_text(text.replace("man:homing(1)", ""))
    drop_in = tmp_path / "homing.service.d" / "homing-cluster.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((UNIT.parent / drop_in.name).read_text().replace("/opt/homing/bin/homing", sys.executable))
    strict = ["security", "--offline=true", "--threshold=20", str(unit)]
    for command in (["verify", "--man=no", str(nightly), str(timer)], ["verify", "--man=no", str(unit)], strict):
        done = subprocess.run(["systemd-analyze", *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "homing" not in done.stderr, done.stderr
