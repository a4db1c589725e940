"""What a process and all its children cost, read from /proc; and a command run to see that: ``python -m benchmarks.analytics.processes
COMMAND…`` prints seconds, CPU seconds and peak memory by role, and ends as the command did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: What the command line of a process has in it -> its role.
ROLES = {
    "CoarseGrainedExecutorBackend": "executor",
    "deploy.SparkSubmit": "driver",
    "deploy.master.Master": "master",
    "deploy.worker.Worker": "worker",
    "python": "python",
}
PAUSE_S = 0.1


def tree(root: int) -> list[int]:
    """``root`` and all its descendants that live."""
    found = [root]
    for pid in found:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:  # has just ended
            continue
    return found


def cpu_s(root: int) -> float:
    """User and system time of the tree so far."""
    return sum(_costs(root).values())


def _costs(root: int) -> dict[int, float]:
    costs = {}
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        costs[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return costs


def peak_mb(root: int) -> dict[str, int]:
    """The greatest resident memory that any process of a role has had."""
    peaks: dict[str, int] = {}
    for pid in tree(root):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        role = next((role for word, role in ROLES.items() if word in line), None)
        if role is not None and "VmHWM:" in status:
            peaks[role] = max(peaks.get(role, 0), int(status.partition("VmHWM:")[2].split()[0]) >> 10)
    return peaks


def main(command: Sequence[str]) -> int:
    began = time.perf_counter()
    costs: dict[int, float] = {}
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        while process.poll() is None:
            costs |= _costs(process.pid)
            for role, megabytes in peak_mb(process.pid).items():
                peaks[role] = max(peaks.get(role, 0), megabytes)
            time.sleep(PAUSE_S)
    spent = {"wall_s": round(time.perf_counter() - began, 1), "cpu_s": round(sum(costs.values()), 1)}
    print(json.dumps(spent | {"peak_mb": peaks, "exit": process.returncode}), flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
