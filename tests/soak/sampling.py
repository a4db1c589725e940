"""What is measured of a broker, from outside: its process, its files, its tables, and how long it takes to answer."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final

import homing
from homing.journal.read.queries import open_read_only
from homing.journal.store.directory import DATABASE_NAME
from tests.soak.curves import Measure

_MIB: Final = 1 << 20
MEMORY: Final = Measure("resident memory", "MiB", slack=4.0, share=0.05)
FILES: Final = Measure("open files", slack=8.0, share=0.1)
THREADS: Final = Measure("threads", slack=1.0)
DATABASE: Final = Measure("homing.db", "MiB", slack=2.0, share=0.1)
#: A checkpoint comes each 1 MiB here (load.CONFIG); a reader, as an export is, puts it off for as long as it reads.
WAL: Final = Measure("homing.db-wal", "MiB", slack=None, most=64.0)
PAGES: Final = Measure("pages in use", slack=400.0, share=0.1)
QUEUES: Final = Measure("queues", slack=5.0, share=0.2)
MESSAGES: Final = Measure("messages", slack=150.0, share=0.3)
CHARGED: Final = Measure("memory charged", "MiB", slack=1.0, share=0.3)
#: What it takes on a busy machine; that it does not become more is what is asked here.
ANSWER: Final = Measure("answer to a call", "ms", slack=50.0, share=0.5)
TABLES: Final = {
    name: Measure(f"rows of {name}", slack=slack, share=0.2)
    for name, slack in {
        "reference": 300.0, "message": 300.0, "gone": 5000.0, "failure": 300.0, "outcome": 300.0, "queue": 40.0, "address": 40.0,
        "declaration": 40.0, "producer": 200.0, "duplicate": 400.0, "committed": 300.0, "policy": 2.0, "quarantine": 0.0,
        "fault": 200.0, "fault_text": 200.0, "fault_count": 200.0,
    }.items()
}  # fmt: skip
Sample = dict[Measure, float]


class Sampler:
    """``take`` once in a while, with a connection of its own that stays."""

    def __init__(self, pid: int, data: Path, connection: homing.Connection) -> None:
        self._pid = pid
        self._data = data
        self._connection = connection

    async def take(self) -> Sample:
        began = time.monotonic()
        charged = (await self._connection.call("statistics"))["memory_bytes"]
        answered_ms = (time.monotonic() - began) * 1000
        queues = await self._connection.call("queues")
        return {
            **self._process(),
            QUEUES: float(len(queues)),
            MESSAGES: float(sum(queue["messages"] for queue in queues)),
            CHARGED: charged / _MIB,
            ANSWER: answered_ms,
            **self._tables(),
        }

    def _process(self) -> Sample:
        status = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        fields = {line.partition(":")[0]: line.split() for line in status}
        database = self._data / DATABASE_NAME
        wal = database.with_name(f"{DATABASE_NAME}-wal")
        return {
            MEMORY: int(fields["VmRSS"][1]) / 1024,
            FILES: float(len(list(Path(f"/proc/{self._pid}/fd").iterdir()))),
            THREADS: float(fields["Threads"][1]),
            DATABASE: database.stat().st_size / _MIB,
            WAL: (wal.stat().st_size if wal.exists() else 0) / _MIB,
        }

    def _tables(self) -> Sample:
        reading = open_read_only(self._data)
        try:
            counts = {measure: _count(reading, name) for name, measure in TABLES.items()}
            (all_pages,), (free_pages,) = (reading.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count"))
            return {**counts, PAGES: float(all_pages - free_pages)}
        finally:
            reading.close()


def _count(reading: sqlite3.Connection, table: str) -> float:
    return float(reading.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
