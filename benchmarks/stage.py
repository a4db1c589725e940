"""One measurement of one broker: starts it fresh, runs load clients against it, and takes its cost between two moments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.load import Load, LoadError
from benchmarks.measure import Usage, disk_bytes
from benchmarks.peers.peer import Peer

Figures = dict[str, float]
MIB = 1 << 20


@dataclass
class Stage:
    """``with Stage(peer) as stage``: the broker is ended and its data removed at the end, whatever happens."""

    peer: Peer
    body_bytes: int = 1024
    deadline_s: float = 60.0
    counting_syncs: Path | None = None
    start_s: float = 0.0
    _loads: list[Load] = field(default_factory=list)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for load in self._loads:
            load.close()
        try:
            if error is None:
                self.peer.stop()
        finally:
            self.peer.close()

    def start(self, queue: str, **setup: object) -> None:
        if self.peer.set_up_before_start:
            self.peer.set_up(queue, **setup)
        self.start_s = self.peer.start(self.counting_syncs)
        if not self.peer.set_up_before_start:
            self.peer.set_up(queue, **setup)

    def load(self, role: str, **options: object) -> Load:
        """A client that is connected and waits for its go (with ``late=1``: waits unconnected)."""
        load = self.peer.load(role, self.deadline_s, body=self.body_bytes, **options)
        self._loads.append(load)
        return load.ready()

    def run(self, role: str, count: int, **options: object) -> dict[str, Any]:
        """One client alone, from go to result."""
        load = self.load(role, count=count, **options)
        load.go()
        return self.complete(load, count)

    def run_both(
        self, count: int, produce: dict[str, object], consume: dict[str, object], copies: int = 1
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Producer and consumer side by side; ``copies``: deliveries of each message."""
        consumer = self.load("consume", count=count * copies, **consume)
        producer = self.load("produce", count=count, **produce)
        consumer.go()
        producer.go()
        return self.complete(producer, count), self.complete(consumer, count * copies)

    def complete(self, load: Load, count: int) -> dict[str, Any]:
        """The result; raises LoadError when not everything was done within the deadline."""
        result = load.result()
        if result["count"] < count or result.get("refused"):
            refused = f", {result['refused']} refused" if result.get("refused") else ""
            raise LoadError(f"{self.peer.name}: {load.role} did {result['count']:,} of {count:,} within {self.deadline_s:.0f} s{refused}")
        return result

    def wait_for_depth(self, queue: str, count: int, timeout_s: float = 30.0) -> None:
        """Raises LoadError when the queue does not come to hold exactly ``count`` messages."""
        end = time.monotonic() + timeout_s
        while (depth := self.peer.depth(queue)) != count:
            if time.monotonic() > end:
                raise LoadError(f"{self.peer.name}: queue {queue} holds {depth} messages, expected {count}")
            time.sleep(0.1)

    def disk_bytes(self) -> int:
        return disk_bytes(self.peer.data)


@dataclass
class Cost:
    """What the broker spent between making this and ``figures``."""

    stage: Stage

    def __post_init__(self) -> None:
        self._before = self.stage.peer.usage()
        self._rows = self.stage.peer.rows_written()

    def figures(self, count: int) -> Figures:
        """CPU seconds per 100,000 messages, MiB written for them, peak RSS since the start, rows per message where known."""
        after: Usage = self.stage.peer.usage()
        rows = self.stage.peer.rows_written()
        figures = {
            "cpu_s_per_100k": (after.cpu_s - self._before.cpu_s) * 100_000 / count,
            "written_mib_per_100k": (after.written_bytes - self._before.written_bytes) / MIB * 100_000 / count,
            "peak_rss_mib": after.peak_rss_bytes / MIB,
        }
        if rows is not None and self._rows is not None:
            figures["rows_per_message"] = (rows - self._rows) / count
        return figures
