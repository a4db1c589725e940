"""A PostgreSQL of the tests' own, on a free port of loopback: started from nothing, ended by its own pid. By itself, or with standbys."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from homing.journal.replication.entry import Position, beginning
from homing.journal.replication.postgresql import Access, Member, PostgresLog
from tests.faults.small_disk import mount, unmount
from tests.process import free_port, wait_until

#: A server that runs as root refuses; tests that do run it as somebody else.
_USER = "nobody" if os.getuid() == 0 else None
#: Nothing is to survive the machine, but for a test that says so.
_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=60", "shared_buffers=16MB", "wal_level=replica", "max_wal_senders=6")
#: What its standbys lack is kept, however much there is of it.
_ON_SMALL_DISK = ("max_wal_size=128MB", "wal_keep_size=384MB")
#: How far a standby is: since it was started it may have received nothing.
_HAS = "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')"
#: Until a server that crashed has begun anew, and clients have looked.
_SEEN_S = 3.0


def programs() -> Path:
    """Where they are. Skips the test where there are none."""
    found = shutil.which("initdb")
    for initdb in [Path(found).resolve()] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return initdb.parent
    pytest.skip("no PostgreSQL; enable: apt-get install postgresql")


class Postgres:
    """Whoever connects from this machine is the user ``homing``, who owns everything. ``synchronous``: what its commits wait for."""

    def __init__(self, synchronous: str = "", mebibytes: int = 0) -> None:
        self._programs = programs()
        # Not below pytest's directory, into which nobody else may look.
        self.directory = Path(tempfile.mkdtemp(prefix="homing-postgresql-"))
        self.port = free_port()
        self._mebibytes = mebibytes
        if mebibytes:
            if why := mount(self.data, mebibytes):
                raise OSError(why)
            self.data.chmod(0o700)
        self._said = [
            *_QUICK,
            *(_ON_SMALL_DISK if mebibytes else ()),
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
        ]
        self._said += [f"synchronous_standby_names={synchronous}"] if synchronous else []
        for made in (self.directory, self.data):
            if _USER is not None and made.exists():
                shutil.chown(made, _USER)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://homing@127.0.0.1:{self.port}/postgres"

    async def database(self, name: str) -> str:
        """A new one; returns its URL."""
        await self.sql(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres", f"/{name}")

    def make(self) -> None:
        made = ["--auth=trust", "--username=homing", "--no-sync", "--encoding=UTF8", "--locale=C", f"--pgdata={self.data}"]
        self._run("initdb", *made)

    def copy(self, primary: Postgres, name: str) -> None:
        """A standby of it, that calls itself ``name``, in place of what was there."""
        for each in self.data.glob("*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        origin = f"host=127.0.0.1 port={primary.port} user=homing application_name={name}"
        said = (f"--pgdata={self.data}", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", f"--dbname={origin}")
        self._run("pg_basebackup", *said)

    def start(self) -> Postgres:
        if not (self.data / "PG_VERSION").exists():
            self.make()
        command = [str(self._programs / "postgres"), "-D", str(self.data), *(f"--{each}" for each in self._said)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, user=_USER, stdout=log, stderr=log, cwd="/")
        wait_until("PostgreSQL answers", self._answers)
        return self

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        subprocess.run(command, user=_USER, check=True, capture_output=True, cwd="/", timeout=60)

    def _answers(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        return subprocess.run(asked, check=False).returncode == 0

    @property
    def has_ended(self) -> bool:
        """By itself."""
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        """At once, as a power cut does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)
        self.process = None

    def pause(self) -> list[int]:
        """All of it, until ``go_on`` is called with what this returns."""
        assert self.process is not None
        parent = self.process.pid
        # First whoever makes others.
        os.kill(parent, signal.SIGSTOP)
        pids = [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    @staticmethod
    def go_on(pids: list[int]) -> None:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)

    async def write_wal(self) -> None:
        """More than it has room for, as much as it takes."""
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            for _ in range(64):
                await self.sql("SELECT pg_logical_emit_message(false, 'full', repeat('x', 16000000))")

    def stop(self) -> None:
        """At once, and nothing is left of it."""
        if self.process is not None:
            self.kill()
        if self._mebibytes:
            unmount(self.data)
        shutil.rmtree(self.directory)

    async def ask(self, sql: str, *values: object) -> list[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await connection.close()

    async def sql(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            for each in statements:
                await connection.execute(each)
        finally:
            await connection.close()


class Standbys:
    """A primary and two standbys of which one has each commit before it is answered. All keep their ports; who is primary changes."""

    def __init__(self, mebibytes: int = 0) -> None:
        """``mebibytes``: of the disk that each has for itself; 0: all have this machine's."""
        names = [f"db{number}" for number in range(3)]
        self.servers = {name: Postgres(f"ANY 1 ({', '.join(names)})", mebibytes) for name in names}
        self._primary = names[0]

    @property
    def primary(self) -> Postgres:
        return self.servers[self._primary]

    @property
    def others(self) -> list[Postgres]:
        return [server for name, server in self.servers.items() if name != self._primary]

    @property
    def url(self) -> str:
        return url_of(server.port for server in self.servers.values())

    def start(self) -> Standbys:
        self.primary.start()
        for name in self.servers:
            self._copy(name)
        return self

    def _copy(self, name: str) -> None:
        if name != self._primary:
            self.servers[name].copy(self.primary, name)
            self.servers[name].start()

    def kill_primary(self) -> None:
        self.primary.kill()

    async def lose_what_waits(self) -> None:
        """The primary alone has what waits for a standby; it begins anew, so all see that; then it is lost with it."""
        others, primary = self.others, self.primary
        for each in others:
            each.kill()
        waiting: list[Any] = []
        while not waiting:
            waiting = await primary.ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INSERT INTO%'")
        # Where a session dies all of them do, as what they share may be damaged.
        os.kill(waiting[0][0], signal.SIGKILL)
        await asyncio.sleep(_SEEN_S)
        self.kill_primary()
        for each in others:
            each.start()
        await asyncio.sleep(1)  # until each has replayed all that it has
        await self.promote()

    async def promote(self) -> None:
        """Whoever has most; the other follows it, and who was killed comes back as a standby."""
        killed = self._primary
        received = {}
        for name, server in self.servers.items():
            if name != killed:
                ((received[name],),) = await server.ask(_HAS)
        self._primary = max(received, key=lambda name: received[name])
        await self.primary.ask("SELECT pg_promote()")
        for name in received.keys() - {self._primary}:
            origin = f"host=127.0.0.1 port={self.primary.port} user=homing application_name={name}"
            await self.servers[name].sql(f"ALTER SYSTEM SET primary_conninfo = '{origin}'", "SELECT pg_reload_conf()")
        self._copy(killed)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


def url_of(ports: Iterable[int]) -> str:
    """Servers on this machine, of which one is the primary."""
    return f"postgresql://homing@{','.join(f'127.0.0.1:{port}' for port in ports)}/postgres"


def log_of(postgres: Postgres, cell: str, node: str = "a", process: str = "1") -> PostgresLog:
    return PostgresLog(Access(postgres.url, cell), Member(node, process))


async def begun(log: PostgresLog, broker_id: str = "broker") -> Position:
    await log.make(broker_id, beginning(broker_id))
    assert await log.begin(True) == broker_id
    return beginning(broker_id)
