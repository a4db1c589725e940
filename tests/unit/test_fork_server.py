"""What a test starts by forking is a process like any other."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests import fork_server
from tests.process import ROOT, HomingCommand, Server


def test_streams_exit_codes_and_the_directory_are_those_of_a_process(homing: HomingCommand) -> None:
    done = homing("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("homing ")
    wrong = homing("no-such-command")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no-such-command" in wrong.stderr
    (homing.directory / "broker.yaml").write_text("nonsense: 1\n")
    assert homing("config", "check").returncode == 5
    assert homing("queues", url="homing://127.0.0.1:1").returncode == 3
    assert homing("queues", url="nonsense").returncode == 2


def test_a_server_is_a_process_that_can_be_stopped_killed_and_asked(tmp_path: Path) -> None:
    server = Server(tmp_path).start()
    assert server.process is not None
    assert server.pid != os.getpid()
    assert server.ready["pid"] == server.pid
    assert server.process.poll() is None
    assert server.stop() == 0
    server.start()
    assert server.kill() == -signal.SIGKILL


def test_what_a_shell_starts_is_in_its_pipes_and_it_is_told_how_that_ended(tmp_path: Path) -> None:
    with fork_server.on_path(tmp_path) as path:
        refused, piped, real = (
            "homing send q --url nonsense || echo ended $?",
            "homing --version | tr a-z A-Z",
            "homing serve --config none.yaml",
        )
        script = f"echo '{{}}' | {refused}; {piped}; {real} || echo $?"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    first, version, *_, last = done.stdout.splitlines()
    assert (first, last) == ("ended 2", "5")
    assert version.startswith("HOMING ")
    assert "none.yaml" in done.stderr
