"""``python -m tests.faults.memory.campaign`` (scripts/check-memory): does the broker keep to ``memory-limit``, whatever clients do?

A broker of its own for each attack (attacks.py) and limit. Told are the most memory that the process had (RSS) and what it says of itself
then (``statistics``); how long another client waited for its confirms while the attack went on; and what is left when everybody is gone and
all queues are purged, or deleted where something else stays with them. Fails where RSS passes 1.25 times the limit and 100 MiB, where 99
of 100 confirms take longer than 200 ms (unless the disk did not answer), or where RSS stays above what it was at the start and 60 MiB for
30 s.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from homing.broker.protocols.native.codec import Op
from tests.faults.crowding.campaign import Neighbour
from tests.faults.hostile import Raw
from tests.faults.memory.attacks import ATTACKS, Attack, pump
from tests.process import Server

MIB: Final = 1 << 20
P99_MS: Final = 200.0
LEFT_MIB: Final = 60
DRAIN_S: Final = 30.0


@dataclass(frozen=True)
class Seen:
    """Sizes in bytes. ``said``: the account's sum at the worst; ``left``: when all is gone, and what the account says then."""

    limit: int
    start: int
    sent: int
    peak: int
    said: int
    left: int
    left_said: int
    p99_ms: float
    worst_ms: float
    confirms: int
    lives: bool
    #: The disk did not answer for a while, and nobody's confirm came then.
    hung: bool

    @property
    def bounded(self) -> bool:
        return self.lives and self.peak <= self.limit * 1.25 + 100 * MIB

    @property
    def kept(self) -> bool:
        return self.bounded and (self.hung or self.p99_ms <= P99_MS) and self.left <= self.start + LEFT_MIB * MIB

    def __str__(self) -> str:
        sizes = f"limit {self.limit / MIB:.0f} -> RSS {self.peak / MIB:.0f} MiB, memory_bytes {self.said / MIB:.1f} MiB"
        left = f"left {self.left / MIB:.0f} of {self.start / MIB:.0f} MiB, {self.left_said:,} B"
        times = f"p99 {self.p99_ms:.0f} ms, worst {self.worst_ms:.0f} of {self.confirms}"
        return f"{sizes}; {times}; {left}; sent {self.sent / MIB:.0f} MiB{'' if self.lives else '; IT DIED'}"


def resident(server: Server, what: str = "VmRSS") -> int:
    try:
        lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(what)), 0)


def runs(server: Server) -> bool:
    return server.process is not None and server.process.poll() is None


def statistics(raw: Raw) -> dict[str, Any]:
    raw.send(Op.CALL, 9, "statistics", {})
    answer: dict[str, Any] = raw.until(Op.RESULT)[2]
    return answer


class Hanging(Server):
    """A broker whose disk does not answer while ``hang`` exists."""

    def __init__(self, directory: Path, config: dict[str, Any], shim: str) -> None:
        super().__init__(directory, config)
        self.hang = directory / "hang"
        self.runner = ["env", f"LD_PRELOAD={shim}", "HOMING_SHIM_PATH=homing.db", f"HOMING_SHIM_HANG={self.hang}"]


def built_shim(directory: Path) -> str:
    """io_shim.c as a library. Raises OSError without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise OSError("no C compiler for the I/O shim; install gcc")
    library, source = directory / "io_shim.so", Path(__file__).parents[1] / "io_shim.c"
    subprocess.run([compiler, "-std=gnu11", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=50)
    return str(library)


def attacked(attack: Attack, limit: int, seconds: float, directory: Path, drain_s: float = DRAIN_S) -> Seen:
    """One attack on one broker."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "native": {"port": 0},
        "amqp": {"port": 0},
        "stomp": {"port": 0},
        "broker": {"memory-limit": f"{limit // MIB}MiB"},
        **(attack.config or {}),
    }
    server = Hanging(directory, config, built_shim(directory)) if attack.hangs else Server(directory, config)
    server.start()
    try:
        with Raw(server.url) as watcher:
            # It is there before everybody else: some attacks leave no room for another connection.
            neighbour = Neighbour(server.url)
            time.sleep(1.0)
            start, began_s = resident(server), time.monotonic()
            clients = attack.clients(server, limit)
            if isinstance(server, Hanging):
                server.hang.touch()
            sent = pump(clients, seconds, int(attack.factor * limit), lambda: runs(server))
            lives = runs(server)
            said = statistics(watcher)["memory_bytes"] if lives else 0
            if isinstance(server, Hanging):
                time.sleep(1.0)
                server.hang.unlink()
            times = sorted(neighbour.end(began_s))
            time.sleep(1.0)
            peak = resident(server, "VmHWM")
            for client in clients:
                client.opened.close()
            for queue in attack.declared if lives else ():
                watcher.send(Op.CALL, 7, "delete-queue", {"queue": queue})
                watcher.until(Op.RESULT)
            left, left_said = drained(server, watcher, start, drain_s) if lives else (0, 0)
        lives = lives and server.stop() == 0
    finally:
        server.close()
    at99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    return Seen(limit, start, sent, peak, said, left, left_said, at99, times[-1], len(times), lives, attack.hangs)


def drained(server: Server, watcher: Raw, start: int, seconds: float) -> tuple[int, int]:
    """RSS and the account so long at most after everything was purged and nobody is there."""
    purge(watcher)
    end = time.monotonic() + seconds
    while True:
        left, memory_bytes = resident(server), statistics(watcher)["memory_bytes"]
        if left <= start + LEFT_MIB * MIB or time.monotonic() > end:
            return left, memory_bytes
        time.sleep(1.0)
        purge(watcher)


def purge(watcher: Raw) -> None:
    for queue in queues(watcher):
        if queue["pending"]:
            watcher.send(Op.CALL, 7, "purge", {"queue": queue["name"]})
            watcher.next(600)


def queues(watcher: Raw) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        watcher.send(Op.CALL, 8, "queues", {"limit": 250, "after": after})
        page = watcher.until(Op.RESULT)[2]
        yield from page["items"]
        after = page["next"]
        if after is None:
            return


def main(words: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/check-memory", description=__doc__, formatter_class=raw)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of: {', '.join(ATTACKS)} (default: all)")
    parser.add_argument("--limits", type=int, nargs="+", default=[64, 128, 512], help="memory-limit, in MiB (default 64 128 512)")
    parser.add_argument("--seconds", type=float, default=30, help="how long each attack sends at most (default 30)")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.attacks) - ATTACKS.keys():
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    bad = 0
    for name in chosen.attacks or ATTACKS:
        for limit in chosen.limits:
            with tempfile.TemporaryDirectory(prefix="homing-memory-", ignore_cleanup_errors=True) as folder:
                seen = attacked(ATTACKS[name], limit * MIB, chosen.seconds, Path(folder))
            bad += not seen.kept
            print(f"{name:<22}{'kept  ' if seen.kept else 'BROKEN'}  {seen}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
