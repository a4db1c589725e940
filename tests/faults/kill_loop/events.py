"""What clients write down while brokers are killed under them, and how it is read back.

Each client has a file of its own with one JSON object a line: ``t`` and ``w`` (milliseconds of the monotonic and of the wall clock;
the monotonic one is the same for all processes of a machine), ``c`` (who), ``s`` (since when it has had its connection; monotonic), ``e``
(what) and what belongs to it:

    send      key, queue, delay_ms, ttl_ms, tx, of, durable  about to be sent; tx: within that transaction; of: in the place of that message
    sent      key, outcome                          ok: confirmed · unknown: nobody knows
    deliver   key, id, queue, count, mode           the application has it
    ack       id, queue, tx, edit, key              about to be acknowledged; edit: or, this key's, to be replaced by another
    acked     id, queue, outcome                    ok: known to be on disk · unknown
    fail      id, queue, count, delay_ms, how       about to be failed; delay_ms: it must stay away for at least that long
    failed    id, queue, outcome                    ok: known to be on disk · void: it never left this client
    commit    tx                                    about to be committed
    committed tx, outcome                           ok · fail: known to be rolled back · unknown
    retry     retry, queue, ids, way, delay_ms      these, or all that wait, are about to get another time: now, at_ms, hold or release
    retried   retry, outcome, cut                   ok: each of them has it; cut: nobody answered
    note      text                                  for people

Invocations are written before the call, outcomes after the answer.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

Event = dict[str, Any]

OK: Final = "ok"
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"
VOID: Final = "void"


def now_ms() -> float:
    return time.monotonic() * 1000


class ClientLog:
    """Where one client writes. Kept in memory and written by ``flush``: the clients of this test outlive the brokers."""

    def __init__(self, path: Path, client: str) -> None:
        self._path = path
        self._client = client
        #: One thread may add while another writes.
        self._lines = deque[str]()
        #: Since when there has been the connection that it speaks of.
        self.since_ms: float | None = None

    def __call__(self, event: str, **fields: Any) -> float:
        """Returns the wall clock's time that it wrote, in milliseconds."""
        wall_ms = round(time.time() * 1000, 3)
        line = {"t": round(now_ms(), 3), "w": wall_ms, "c": self._client, "s": self.since_ms, "e": event}
        self._lines.append(json.dumps(line | fields))
        if len(self._lines) >= 5000:
            self.flush()
        return wall_ms

    def flush(self) -> None:
        with self._path.open("a") as out:
            while self._lines:
                out.write(f"{self._lines.popleft()}\n")


def read_logs(paths: Iterable[Path]) -> list[Event]:
    """The events of all clients in the order in which they happened."""
    return sorted((event for path in paths for event in _lines(path)), key=lambda event: float(event["t"]))


def _lines(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in one queue, as the journal has it."""

    queue: str
    id: int
    key: str
    delivery_count: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the journal held while no broker ran. ``problems``: what ``homing journal check`` says is wrong with it; ``orderly``: after a
    stop, not a kill; ``stopping``: it had at least begun to stop; ``full_t``: since when its disk was full; ``spilled``: rows of messages
    that a kill has taken, on disk for want of memory."""

    name: str
    t: float
    entries: list[Entry]
    problems: list[str] = field(default_factory=list)
    orderly: bool = False
    stopping: bool = False
    full_t: float = inf
    spilled: int = 0
