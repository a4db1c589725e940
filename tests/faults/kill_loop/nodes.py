"""A cluster in the place of the one broker of a kill loop: whoever leads is the broker, and what ends is started again and stands by."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from homing.journal.replication.cell import Cell
from homing.journal.replication.leader import ask
from homing.journal.replication.postgresql import Access, PostgresLog
from tests import fork_server
from tests.faults.kill_loop.processes import Broker
from tests.faults.small_disk import mount, unmount
from tests.process import ROOT, free_port

_START_S: Final = 60.0
#: Another node leads.
DEPOSED: Final = 72
#: What a node says that was paused and finds that another one leads, that the log is away from, or that begins anew.
_MEANT: Final = ("journal-fenced", "log-away", "rebuilding: journal-left-behind")


class Node(Broker):
    """``leads``: it said so last, and has not ended since. ``mebibytes``: of a disk that it has for itself; 0: it has none."""

    def __init__(self, directory: Path, config: dict[str, Any], port: int, module: str, mebibytes: int) -> None:
        self.disk = directory / "disk" if mebibytes else None
        if self.disk is not None:
            if why := mount(self.disk, mebibytes):
                raise OSError(why)
            config = {**config, "data-directory": "disk/data"}
        super().__init__(directory, config, port, module)
        if self.disk is not None:
            self.data = self.disk / "data"
        self.leads = False
        self._said = b""

    @property
    def runs(self) -> bool:
        return self._process is not None

    def look(self) -> None:
        """What it has said, and whether it has ended. Raises AssertionError where it ended for no reason of the cluster's."""
        process = self._running()
        assert process.stdout is not None
        while select.select([process.stdout], [], [], 0)[0] and (more := os.read(process.stdout.fileno(), 65_536)):
            self._said += more
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            self.leads = "standby" not in json.loads(line)
        code = process.poll()
        if code is not None:
            self.leads, self._said = False, b""
            self._reap()
            assert code == DEPOSED, f"a node ended by itself (exit code {code}):\n{self.log_tail()}"

    def go_on(self) -> int:
        """After a pause, and until it ended; returns its exit code."""
        os.kill(self.pid, signal.SIGCONT)
        self.leads, self._said = False, b""
        return self._reap()

    def close(self) -> None:
        super().close()
        if self.disk is not None:
            # For who looks into it later.
            shutil.copytree(self.data, self.directory / "data", ignore=shutil.ignore_patterns("before-*", "*.reserve", "*.lock"))
            unmount(self.disk)

    def complaints(self) -> list[str]:
        return [line for line in super().complaints() if not any(each in line for each in _MEANT)]


class Nodes:
    """See processes.Broker. ``nodes``: each one's journal.replication."""

    def __init__(
        self, directory: Path, config: dict[str, Any], module: str, database: str, nodes: dict[str, dict[str, Any]], mebibytes: int = 0
    ) -> None:
        self._database = database
        amqp_ports = [config["amqp"]["port"], *(free_port() for _ in range(len(nodes) - 1))]
        self._nodes = []
        for (name, replication), amqp_port in zip(nodes.items(), amqp_ports, strict=True):
            replication = {**replication, "node": name}
            own = {**config, "amqp": {"port": amqp_port}, "journal": {**config["journal"], "replication": replication}}
            self._nodes.append(Node(directory / name, own, free_port(), module, mebibytes))
        #: What listens for clients, of each node: native, then AMQP.
        self.listeners = [(node.directory.name, node.port) for node in self._nodes]
        self.ports = [node.port for node in self._nodes]
        self.listeners += [(name, port) for (name, _), port in zip(self.listeners, amqp_ports, strict=True)]
        #: Of those that began anew, the process before.
        self._before: dict[str, str] = {}
        self._leader, self._begun = self._nodes[0], False
        self.url = "homing://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def data(self) -> Path:
        """Of who leads, or led last."""
        return self._leader.data

    @property
    def port(self) -> int:
        return self._leader.port

    @property
    def pid(self) -> int:
        return self._leader.pid

    def spawn(self) -> None:
        """Those that do not run; before anybody led the first alone, so that it leads."""
        for node in self._nodes if self._begun else self._nodes[:1]:
            if not node.runs:
                node.spawn()

    def wait_until_ready(self) -> None:
        """Until the node that leads by the database says so, too."""
        end = time.monotonic() + _START_S
        while True:
            self._look()
            _, name = self.led_by()
            leader = next((node for node in self._nodes if node.directory.name == name and node.leads), None)
            if leader is not None:
                break
            assert time.monotonic() < end, f"nobody leads:\n{self.log_tail()}"
            time.sleep(0.02)
        self._leader, self._begun = leader, True

    def _look(self) -> None:
        for node in self._nodes:
            if node.runs:
                node.look()
        self.spawn()

    def check_alive(self) -> None:
        """Whoever leads by now: a busy machine may have taken the lead from one to another."""
        self.wait_until_ready()

    @property
    def names(self) -> list[str]:
        return [node.directory.name for node in self._nodes]

    @property
    def leader(self) -> str:
        """Who leads, or led last."""
        return self._leader.directory.name

    @property
    def journals(self) -> dict[str, Path]:
        return {node.directory.name: node.data for node in self._nodes}

    @property
    def disk(self) -> Path:
        """Of who leads, or led last."""
        assert self._leader.disk is not None
        return self._leader.disk

    def kill(self) -> None:
        self._leader.kill()
        self._leader.leads = False

    def pause(self) -> Node:
        """The leader, as a virtual machine is, which does not know of it; returns it."""
        os.kill(self._leader.pid, signal.SIGSTOP)
        self._leader.leads = False
        return self._leader

    def switch_over(self) -> fork_server.Forked:
        """The command, which goes on by itself: the leader hands over."""
        words = ["cluster", "switch-over", "--config", str(self._leader.config)]
        with self._switched.open("a") as log:
            return fork_server.start(words, ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def had_no_standby(self) -> bool:
        """Whether the last such command was refused for that."""
        return "no-standby" in self._switched.read_text().rpartition("error")[2]

    @property
    def _switched(self) -> Path:
        return self._leader.directory / "switch-over.log"

    def begin_anew(self) -> str:
        """A standby, which loses its disk; returns its name."""
        node = next(each for each in self._nodes if each is not self._leader)
        name = node.directory.name
        member = asyncio.run(_described(self._database)).member(name)
        self._before[name] = "" if member is None else member.process
        node.kill()
        shutil.rmtree(node.data)
        node.spawn()
        return name

    def stop_leader(self) -> int:
        """In order; returns its exit code."""
        self._leader.leads = False
        return self._leader.stop()

    def kill_while_replaying(self, name: str) -> bool:
        """Who has taken the lead and has not said so yet; False: it has."""
        node = next(each for each in self._nodes if each.directory.name == name)
        node.look()
        if node.leads:
            return False
        node.kill()
        return True

    def stop(self) -> int:
        """All of them, the leader last."""
        for node in [*(each for each in self._nodes if each is not self._leader and each.runs), self._leader]:
            if code := node.stop():
                return code
        return 0

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def log_tail(self) -> str:
        return "\n".join(f"{node.directory.name}:\n{node.log_tail()}" for node in self._nodes)

    def said(self, *words: str) -> int:
        """How many lines of their logs have one of them."""
        return sum(any(word in line for word in words) for node in self._nodes for line in node.lines())

    def complaints(self) -> list[str]:
        return [line for node in self._nodes for line in node.complaints()]

    def behind(self, name: str) -> int:
        """How many entries that node lacks, as it has said since it began anew."""
        cell = asyncio.run(_described(self._database))
        member = cell.member(name)
        return cell.standing.last if member is None or member.process == self._before[name] else cell.behind(member)

    def led_by(self) -> tuple[int, str]:
        """The epoch and the node that leads in it, "" where nobody does, as the database says, which is waited for."""
        return asyncio.run(_led_by(self._database))


async def _described(database: str) -> Cell:
    async with PostgresLog(Access(database, "main")) as log:
        return await log.describe()


async def _led_by(database: str) -> tuple[int, str]:
    async with PostgresLog(Access(database, "main")) as log:
        seen = await ask(log.look, asyncio.sleep)
        return seen.epoch, seen.node
