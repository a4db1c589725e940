"""``python -m tests.faults.crowding.campaign`` (scripts/check-neighbours): what others notice while one client sends to very many queues.

A broker of its own for each attack. A neighbour on another connection, in another process, sends one durable message after the other and
waits for each confirm; told is how long those took: half of them, 99 of 100, and the worst.

Who attacks does so at the lowest priority, as if it sat on another machine: the broker and the neighbour have the processors.

Fails where the broker ends, or where the neighbour waits longer than it may (99 of 100 within 100 ms, every one within 1 s; while another
client's single request is worked on, however much it concerns, 50 and 250 ms).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.faults.crowding.attacks import ATTACKS as CROWDS
from tests.faults.crowding.attacks import Attack
from tests.faults.crowding.requests import REQUESTS
from tests.faults.crowding.routes import NEW_KEYS, ROUTES
from tests.process import ROOT, Server

P99_MS: Final = 100.0
WORST_MS: Final = 1000.0
#: While one request is worked on, however much it concerns.
REQUEST_P99_MS: Final = 50.0
REQUEST_WORST_MS: Final = 250.0
ATTACKS: Final[dict[str, Attack]] = {**CROWDS, **NEW_KEYS, **REQUESTS, **ROUTES}


@dataclass(frozen=True)
class Seen:
    """What the neighbour saw: confirms, and how long they took, in milliseconds; and how far the attack had come by then."""

    confirms: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    confirmed: int
    references: int
    #: Until all of the attack was answered, or it was watched no longer.
    took_s: float
    #: Of the broker's own steps the longest, by its own figure: up to so many seconds, and of what kind.
    longest_step: str
    peak_rss_bytes: int
    exit_code: int

    def __str__(self) -> str:
        times = f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, worst {self.worst_ms:.0f} ms of {self.confirms:,} confirms"
        times += f"; {self.references:,} references confirmed in {self.took_s:.2f} s; steps {self.longest_step}"
        return f"{times}; peak RSS {self.peak_rss_bytes >> 20} MiB; exit {self.exit_code}"


class Neighbour:
    """Its process: from the start until ``end`` it sends and waits."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.faults.crowding.neighbour", url]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the neighbour did not start"

    def end(self, since_s: float = 0.0) -> list[float]:
        """How long each confirm took that came after this (monotonic clock), in milliseconds; the last may not have come."""
        out, _ = self._process.communicate("\n", timeout=60)
        times: list[tuple[float, float]] = json.loads(out)
        return [took_ms for began_s, took_ms in times if began_s + took_ms / 1000 >= since_s]


def crowd(attack: Attack, seconds: float, directory: Path, config: dict[str, Any] | None = None) -> Seen:
    """One attack, watched for so long, or until it is through."""
    server = Server(directory, {"native": {"port": 0}, "amqp": {"port": 0}, "http": {"port": 0}, **(config or {})})
    server.measured = True
    server.start()
    try:
        attack.prepare(server)
        neighbour = Neighbour(server.url)
        try:
            going = attack.begin(server)
            end = time.monotonic() + seconds
            while time.monotonic() < end and not going.done() and server.process is not None and server.process.poll() is None:
                time.sleep(0.05)
            if going.done():
                # What follows of it is to be seen, too.
                time.sleep(1)
            confirmed, took_s = going.confirmed(), going.took_s()
            rss, longest = _peak_rss(server), _longest_step(server)
        finally:
            times = sorted(neighbour.end())
        going.close()
        code = server.stop()
    finally:
        if server.process is not None:
            server.kill()

    def at(part: float) -> float:
        return times[min(len(times) - 1, int(part * len(times)))]

    return Seen(len(times), at(0.5), at(0.99), times[-1], confirmed, confirmed * attack.queues, took_s, longest, rss, code)


def _longest_step(server: Server) -> str:
    """What ``homing_step_seconds`` says of them."""
    try:
        with urllib.request.urlopen(f"http://{server.ready['http']}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return "not known"
    longest: dict[str, float] = {}
    for kind, bound, number in re.findall(r'^homing_step_seconds_bucket\{kind="([^"]+)",le="([^"]+)"\} (\S+)$', text, re.MULTILINE):
        if number != text.partition(f'homing_step_seconds_count{{kind="{kind}"}} ')[2].partition("\n")[0]:
            longest[kind] = float(bound)
    # A bound that not all steps kept: the longest took more than it.
    kind = max(longest, key=lambda each: longest[each], default="")
    return f"of more than {longest[kind] * 1000:g} ms ({kind})" if kind else "of 1 ms at most"


def _peak_rss(server: Server) -> int:
    try:
        lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def main(words: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/check-neighbours", description=__doc__, formatter_class=raw)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of: {', '.join(ATTACKS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=30, help="how long each is watched at most (default 30)")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.attacks) - ATTACKS.keys():
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    bad = 0
    for name in chosen.attacks or ATTACKS:
        with tempfile.TemporaryDirectory(prefix="homing-crowding-", ignore_cleanup_errors=True) as folder:
            seen = crowd(ATTACKS[name], chosen.seconds, Path(folder))
        p99_ms, worst_ms = (REQUEST_P99_MS, REQUEST_WORST_MS) if name in REQUESTS or name in ROUTES else (P99_MS, WORST_MS)
        kept = seen.exit_code == 0 and seen.p99_ms <= p99_ms and seen.worst_ms <= worst_ms
        bad += not kept
        print(f"{name:<24}{'kept  ' if kept else 'BROKEN'}  {seen}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
