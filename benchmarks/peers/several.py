"""Brokers of several nodes on this machine: three of RabbitMQ with a quorum queue; two of Homing, whose log a PostgreSQL and a synchronous
standby keep. Clients talk to the first node, and its cost is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.load import LoadError
from benchmarks.measure import processes
from benchmarks.peers.homing_amqp import HomingAmqp
from benchmarks.peers.peer import START_TIMEOUT_S, free_port
from benchmarks.peers.rabbitmq import RabbitMQQuorum, node_environment

#: PostgreSQL refuses to run as root.
_USER: Final = "nobody" if os.getuid() == 0 else None


class Beside:
    """The other processes of a peer; ended in the reverse order."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: list[str], environment: dict[str, str], user: str | None = None) -> int:
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd="/" if user else self._directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
            )
        self._processes.append(process)
        return process.pid

    def end(self) -> None:
        for process in reversed(self._processes):
            for pid in reversed(list(processes(process.pid))):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()
        self._processes.clear()


def _until(there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while not there():
        if time.monotonic() > end:
            raise LoadError(f"{what}: not within {START_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


class RabbitMQThree(RabbitMQQuorum):
    name = "rabbitmq-quorum-3"
    scenarios = frozenset({"S1", "S3", "S6"})

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._others = Beside(directory)

    def _wait_until_listening(self) -> None:
        super()._wait_until_listening()
        for _ in range(2):
            self._join()

    def _join(self) -> None:
        port = free_port()
        directory = self.directory / f"node{port}"
        directory.mkdir()
        # The same secret as the first node's.
        environment = {**node_environment(directory, "bench", port, self._epmd_port, free_port()), "HOME": str(self.directory)}
        conf = (self.directory / "rabbitmq.conf").read_text().replace(str(self.port), str(port))
        first = "cluster_formation.peer_discovery_backend = classic_config\ncluster_formation.randomized_startup_delay_range.max = 0\n"
        (directory / "rabbitmq.conf").write_text(f"{conf}{first}cluster_formation.classic_config.nodes.1 = bench{self.port}@localhost\n")
        (directory / "plugins").write_text("[].\n")
        self._others.start(f"node{port}", self.command(), environment)
        running = [str(Path("/usr/lib/rabbitmq/bin/rabbitmqctl")), "-q", "-n", f"bench{port}@localhost", "await_startup"]
        _until(
            lambda: not subprocess.run(running, env={**os.environ, **environment}, capture_output=True, check=False).returncode, self.name
        )

    def close(self) -> None:
        self._others.end()
        super().close()


class HomingCluster(HomingAmqp):
    name = "homing-cluster"
    scenarios = frozenset({"S1", "S3", "S6"})
    journal: ClassVar[dict[str, Any]] = {}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._others = Beside(directory)
        self._databases = directory / "postgresql"
        self._replication: dict[str, Any] = {}
        #: The process that stands by.
        self.standby_pid = 0

    @classmethod
    def missing(cls) -> str | None:
        there = (_programs() / "initdb").exists()
        return super().missing() or (None if there else "PostgreSQL is not installed; benchmarks/install_peers does that")

    def command(self) -> list[str]:
        url = f"postgresql://homing@127.0.0.1:{self._start_databases()}/postgres"
        self._replication = {"url": url}
        command = self._node("a", self.port, self._native_port)
        config = command[command.index("--config") + 1]
        init = [sys.executable, "-m", "homing", "cluster", "init", "--config", config]
        subprocess.run(init, env={**os.environ, **self.environment()}, check=True, capture_output=True, timeout=60)
        return command

    def _node(self, name: str, port: int, native_port: int) -> list[str]:
        config = self.directory / f"{name}.yaml"
        journal = {**self.journal, "replication": {**self._replication, "node": name}}
        config.write_text(json.dumps({"native": {"port": native_port}, "amqp": {"port": port}, "journal": journal}))
        data = self.data if name == "a" else self.directory / name
        return [sys.executable, "-m", "homing", "serve", "--config", str(config), "--data", str(data), "--json"]

    def _start_databases(self) -> int:
        """The primary's port."""
        port, other = free_port(), free_port()
        self._databases.mkdir()
        # Other users reach it by its whole path only.
        for place in (self._databases, self.directory, self.directory.parent):
            place.chmod(0o755)
        shutil.chown(self._databases, _USER or os.getuid())
        first, second = self._databases / "first", self._databases / "second"
        self._run("initdb", "--auth=trust", "--username=homing", "--encoding=UTF8", "--locale=C", f"--pgdata={first}")
        self._serve("first", port, "synchronous_standby_names=*")
        origin = f"--dbname=host=127.0.0.1 port={port} user=homing"
        self._run("pg_basebackup", f"--pgdata={second}", "--checkpoint=fast", "--write-recovery-conf", origin)
        self._serve("second", other)
        return port

    def _serve(self, name: str, port: int, *more: str) -> None:
        said = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *more)
        command = [str(_programs() / "postgres"), "-D", str(self._databases / name), *(f"--{each}" for each in said)]
        self._others.start(f"postgresql-{name}", command, {}, _USER)
        ready = [str(_programs() / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
        _until(lambda: not subprocess.run(ready, check=False).returncode, f"PostgreSQL, {name}")

    @staticmethod
    def _run(program: str, *words: str) -> None:
        subprocess.run([str(_programs() / program), *words], user=_USER, cwd="/", check=True, capture_output=True, timeout=120)

    def _wait_until_listening(self) -> None:
        super()._wait_until_listening()
        command = self._node("b", port := free_port(), free_port())
        self.standby_pid = self._others.start("standby", command, self.environment())
        _until(lambda: self.accepts(port), "the standby")

    def close(self) -> None:
        self.kill()
        self._others.end()
        super().close()


class HomingClusterAllRows(HomingCluster):
    name = "homing-cluster-all-rows"
    scenarios = frozenset({"S1"})
    journal: ClassVar[dict[str, Any]] = {"elide": False}


def _programs() -> Path:
    """Of PostgreSQL; a place that is not there where it is not installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve()] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[0].parent if places else Path("/usr/lib/postgresql")
