"""A PostgreSQL of the tests' own, on a free port of loopback: started from nothing, ended by its own pid."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.process import free_port, wait_until

#: A server that runs as root refuses; tests that do run it as somebody else.
_USER = "nobody" if os.getuid() == 0 else None
#: Nothing is to survive the machine, but for a test that says so.
_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=60", "shared_buffers=16MB", "wal_level=replica", "max_wal_senders=4")


def programs() -> Path:
    """Where they are. Skips the test where there are none."""
    found = shutil.which("initdb")
    for initdb in [Path(found).resolve()] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return initdb.parent
    pytest.skip("no PostgreSQL; enable: apt-get install postgresql")


class Postgres:
    """Whoever connects from this machine is the user ``homing``, who owns everything."""

    def __init__(self) -> None:
        self._programs = programs()
        # Not below pytest's directory, into which nobody else may look.
        self.directory = Path(tempfile.mkdtemp(prefix="homing-postgresql-"))
        self.port = free_port()
        if _USER is not None:
            shutil.chown(self.directory, _USER)
        made = ["--auth=trust", "--username=homing", "--no-sync", "--encoding=UTF8", "--locale=C", f"--pgdata={self.directory / 'data'}"]
        subprocess.run([str(self._programs / "initdb"), *made], user=_USER, check=True, capture_output=True, cwd="/", timeout=60)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://homing@127.0.0.1:{self.port}/postgres"

    async def database(self, name: str) -> str:
        """A new one; returns its URL."""
        await self.sql(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres", f"/{name}")

    def start(self) -> Postgres:
        said = (*_QUICK, f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=")
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data"), *(f"--{each}" for each in said)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, user=_USER, stdout=log, stderr=log, cwd="/")
        wait_until("PostgreSQL answers", self._answers)
        return self

    def _answers(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """At once, as after a power cut, and nothing is left of it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)
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
