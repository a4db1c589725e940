"""A cluster in the place of the one broker of a kill loop: whoever leads is the broker, and what ends is started again and stands by."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Final

import asyncpg

from homing.journal.follower import Follower
from homing.journal.options import JournalOptions
from homing.journal.replication.postgresql import Access, Member, PostgresLog
from tests.faults.kill_loop.processes import Broker
from tests.process import free_port

_START_S: Final = 60.0
#: Another node leads.
DEPOSED: Final = 72
#: What a node that was paused, and found that another one leads, has to say of it.
_MEANT: Final = ("journal-fenced", "log-away")
_UNDER_WAY: Final = (
    "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()"
    " AND query LIKE '%INSERT INTO homing_log%'"
)


class Node(Broker):
    """``leads``: it said so and has not ended since."""

    def __init__(self, directory: Path, config: dict[str, Any], port: int, module: str) -> None:
        super().__init__(directory, config, port, module)
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
        self.leads = self.leads or any("standby" not in json.loads(line) for line in lines)
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

    def complaints(self) -> list[str]:
        return [line for line in super().complaints() if not any(each in line for each in _MEANT)]


class Nodes:
    """See processes.Broker."""

    def __init__(self, directory: Path, config: dict[str, Any], module: str, database: str, number: int, fail_over_after: str) -> None:
        self._database = database
        amqp_ports = [config["amqp"]["port"], *(free_port() for _ in range(number - 1))]
        self._nodes = []
        for name, amqp_port in zip("abcdefgh"[:number], amqp_ports, strict=True):
            replication = {"url": database, "node": name, "fail-over-after": fail_over_after, "storage-is-replicated": True}
            own = {**config, "amqp": {"port": amqp_port}, "journal": {**config["journal"], "replication": replication}}
            self._nodes.append(Node(directory / name, own, free_port(), module))
        self._leader, self._begun = self._nodes[0], False
        self.url = "homing://" + ",".join(f"127.0.0.1:{node.port}" for node in self._nodes)

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
        """Until somebody leads."""
        end = time.monotonic() + _START_S
        while not any(node.leads for node in self._nodes):
            assert time.monotonic() < end, f"nobody leads:\n{self.log_tail()}"
            self._look()
            time.sleep(0.02)
        self._leader, self._begun = next(node for node in self._nodes if node.leads), True

    def _look(self) -> None:
        for node in self._nodes:
            if node.runs:
                node.look()
        self.spawn()

    def check_alive(self) -> None:
        """Whoever leads by now: a busy machine may have taken the lead from one to another."""
        self._look()
        self.wait_until_ready()

    def kill(self) -> None:
        self._leader.kill()
        self._leader.leads = False

    def pause(self) -> Node:
        """The leader, as a virtual machine is, which does not know of it; returns it."""
        os.kill(self._leader.pid, signal.SIGSTOP)
        self._leader.leads = False
        return self._leader

    def stop_leader(self) -> int:
        """In order, and before ``follow`` nobody leads after it; returns its exit code."""
        self._leader.leads = False
        for node in self._nodes:
            if node.runs and node is not self._leader:
                os.kill(node.pid, signal.SIGSTOP)
        return self._leader.stop()

    def follow(self) -> None:
        for node in self._nodes:
            if node.runs and node is not self._leader:
                os.kill(node.pid, signal.SIGCONT)

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

    def complaints(self) -> list[str]:
        return [line for node in self._nodes for line in node.complaints()]

    def copy(self, directory: Path) -> Path:
        """What is there of the journal of who led last, who writes no more: its own file, and behind that the log."""
        return asyncio.run(_copy(self._database, self._leader.data, directory))

    def leads_still(self) -> bool:
        """Whether nobody else has taken the lead from whoever led last."""
        ((leader,),) = asyncio.run(_ask(self._database, "SELECT leader FROM homing_cell"))
        return str(leader).partition(" ")[0] in ("", self._leader.directory.name)


async def _ask(database: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(database)
    try:
        return list(await connection.fetch(sql))
    finally:
        await connection.close()


async def _copy(database: str, data: Path, directory: Path) -> Path:
    shutil.copytree(data, directory, ignore=shutil.ignore_patterns("*-shm", "*.lock", "backups"))
    # What was sent before a process ended is taken yet.
    while await _ask(database, _UNDER_WAY):  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)
    log = PostgresLog(Access(database, "main"), Member("", "", "{}"))
    try:
        options = JournalOptions(disk_reserve_bytes=1 << 20)
        follower = await Follower.open(directory, options, lambda: round(time.time() * 1000), await log.begin(True))
        try:
            while entries := await log.read(follower.at.number):
                await follower.apply(entries)
        finally:
            await follower.close()
    finally:
        log.cut()
    return directory
