"""What a broker cost, read from outside it: CPU, memory, bytes written, disk, and how fast this machine syncs at this moment."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Of a process and all its descendants, since they started."""

    cpu_s: float
    #: Sum of each process's own peak (VmHWM): never too small, and for brokers of one big process exact.
    peak_rss_bytes: int
    rss_bytes: int
    #: What the processes caused to be written to storage (``write_bytes`` of /proc/PID/io).
    written_bytes: int


def processes(pid: int) -> Iterator[int]:
    """The process and its living descendants."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from processes(child)


def usage(pid: int) -> Usage:
    """CPU includes children that have ended. A process that ends between two reads is left out."""
    total = Usage(0.0, 0, 0, 0)
    for each in processes(pid):
        try:
            one = _usage_of_one(each)
        except (FileNotFoundError, ProcessLookupError):
            continue
        total = Usage(
            total.cpu_s + one.cpu_s,
            total.peak_rss_bytes + one.peak_rss_bytes,
            total.rss_bytes + one.rss_bytes,
            total.written_bytes + one.written_bytes,
        )
    return total


def _usage_of_one(pid: int) -> Usage:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_ticks = sum(int(field) for field in stat[11:15])  # utime, stime and those of children that were waited for
    status = _colon_fields(Path(f"/proc/{pid}/status"))
    written = int(_colon_fields(Path(f"/proc/{pid}/io"))["write_bytes"])
    return Usage(cpu_ticks / _TICKS_PER_S, _kib(status.get("VmHWM")), _kib(status.get("VmRSS")), written)


def _colon_fields(path: Path) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in path.read_text().splitlines())}


def _kib(text: str | None) -> int:
    return int(text.split()[0]) * 1024 if text else 0


def disk_bytes(directory: Path) -> int:
    """What the files below take on disk; a file that vanishes meanwhile counts nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def machine() -> dict[str, str | int | float]:
    """What a reader needs to judge the figures by."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "unknown"
    )
    return {
        "cpu": model,
        "cpus": os.cpu_count() or 0,
        "kernel": os.uname().release,
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
    }


def syncs_per_s(directory: Path, probe_s: float) -> float:
    """4 KiB appended and fdatasync'ed, one after another."""
    path = directory / "probe"
    block = os.urandom(4096)
    with path.open("wb", buffering=0) as out:
        count, rate = 0, 0.0
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < probe_s:
            out.write(block)
            os.fdatasync(out.fileno())
            count += 1
            rate = count / elapsed if elapsed else 0.0
    path.unlink()
    return rate


def sqlite_commits_per_s(directory: Path, probe_s: float) -> float:
    """One row of 1 KiB a transaction, WAL, synchronous=FULL: what one-at-a-time confirms are measured against."""
    path = directory / "probe.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA page_size=16384; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (b BLOB NOT NULL) STRICT;"
    )
    body = os.urandom(1024)
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < probe_s:
        connection.execute("INSERT INTO t VALUES (?)", (body,))
        count += 1
    rate = count / (time.perf_counter() - started)
    connection.close()
    for each in directory.glob("probe.sqlite*"):
        each.unlink()
    return rate
