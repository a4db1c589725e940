"""``check`` by a process of its own, beside the broker: at leisure, and no longer than its parent is there."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from .. import apart
from ..errors import JournalError
from .check import check


class Found(NamedTuple):
    """How many findings there are, and the first of them."""

    findings: int = 0
    first: str = ""
    #: Why it could not be checked; "" where it was.
    failed: str = ""


async def check_apart(directory: Path, rest: float) -> Found:
    """The quick check, which rests so many times as long as it worked. Cancelled, its process has ended."""
    child = await apart.start("homing.journal.read.check_apart", str(directory), str(rest))
    assert child.stdout is not None
    try:
        line = await child.stdout.readline()
        await child.wait()
    finally:
        await apart.end(child)
    return Found(**json.loads(line)) if line.endswith(b"\n") else Found(failed="the process that checks it ended early")


def main() -> int:
    """``DIRECTORY REST``: answers a line of JSON."""
    directory, rest = Path(sys.argv[1]), float(sys.argv[2])
    os.nice(10)
    Thread(target=_end_with_parent, daemon=True).start()
    worked_since_s = time.monotonic()

    def pause(step: str, done: int, total: int) -> None:
        nonlocal worked_since_s
        time.sleep((time.monotonic() - worked_since_s) * rest)
        worked_since_s = time.monotonic()

    try:
        problems = check(directory, pause, quick=True).problems
        found = Found(len(problems), next(iter(problems), ""))
    except JournalError as error:
        found = Found(failed=str(error))
    print(json.dumps(found._asdict()), flush=True)
    return 0


def _end_with_parent() -> None:
    """Standard input is its parent's, and ends with it; whatever is read then is not waited for."""
    sys.stdin.read()
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
