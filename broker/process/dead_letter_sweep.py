"""Dead letters that have stayed too long, or are too many of one source, are archived and then removed; never the one without the other."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from homing.journal.errors import JournalError
from homing.journal.export.archiver import Archiver
from homing.journal.read.queries import JournalReader

from ..broker import Broker
from ..core.dead_letter_life import Excess, excess, limits_anything
from ..core.message import Where
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.settings.units import counted
from ..entries.in_memory import records as records_in_memory
from ..management.process import in_steps

log = logging.getLogger("homing")

#: Between two looks, in seconds: so many, or so many times what it took to count.
_EVERY_S: Final = 2.0
_TIMES: Final = 30
#: Removed, and written into one archive, at a time.
_BATCH: Final = 5_000
#: The same where some are in memory alone: those are handed to who archives with their bodies.
_IN_MEMORY: Final = 250
#: What cannot be archived is logged so often.
_WARN_EVERY_S: Final = 600.0


class DeadLetterSweep:
    """``reader``: asked in a thread. ``data``: the journal's directory; ``place``: where archives go, relative to that."""

    def __init__(
        self,
        broker: Broker,
        data: Path,
        place: str,
        reader: Callable[[], JournalReader],
    ) -> None:
        self._broker = broker
        self._archiver = Archiver(data, data / place)
        self._reader = reader
        self._warned_at = float("-inf")
        self._counting_s = 0.0
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="dead letters")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close_archiver(self) -> None:
        """For those who look themselves, without ``start``."""
        await self._archiver.close()

    async def _run(self) -> None:
        """Looks again and again; what goes wrong once is logged, and tried again the next time."""
        try:
            while True:
                await asyncio.sleep(max(_EVERY_S, _TIMES * self._counting_s))
                try:
                    await self.look()
                    await self._archiver.rest()
                except Exception:
                    log.exception("dead-letter-sweep-failed: dead letters that are too old or too many stay for now")
        finally:
            await self._archiver.close()

    async def look(self) -> int:
        """Returns how many were removed. What cannot be archived stays, and the log says why."""
        if not limits_anything(self._broker.settings.repository):
            return 0
        await self._on_disk()
        now_ms = self._broker.now_ms()
        began = time.monotonic()
        dead = await asyncio.to_thread(self._reader().dead)
        dead += await in_steps(self._broker, self._broker.counting.dead_in_memory())
        self._counting_s = time.monotonic() - began
        queues = self._broker.post_office.queues_by_id
        found = list(excess(dead, self._broker.in_force.of, now_ms))
        removed = 0
        for each in found:
            if (queue := queues.get(each.queue_id)) is not None:
                try:
                    removed += await self._take(queue, each)
                except JournalError as error:
                    self._warn(error)
        return removed

    async def _take(self, queue: Queue, over: Excess) -> int:
        """A batch after the other, the oldest first."""
        meant = Filter(from_queue=over.source, until_ms=over.until_ms)
        which, others = (
            self._broker.counting.choice(meant),
            await in_steps(self._broker, self._broker.counting.sequences_in_memory(queue, meant)),
        )
        removed, after, left = 0, 0, over.number
        while left is None or left > 0:
            most = _IN_MEMORY if others else _BATCH
            wanted = most if left is None else min(most, left)
            sequences = await asyncio.to_thread(self._reader().chosen, queue.queue_id, which, after, wanted)
            sequences = sorted([*sequences, *others[:wanted]])[:wanted]
            others = others[bisect_right(others, sequences[-1]) :] if sequences else []
            going = [sequence for sequence in sequences if not _is_held(queue, sequence)]
            if going:
                removed += await self._remove(queue, over, going)
            if len(sequences) < wanted:
                break
            after, left = sequences[-1], None if left is None else left - len(sequences)
        return removed

    async def _remove(self, queue: Queue, over: Excess, sequences: list[int]) -> int:
        now_ms, where = self._broker.now_ms(), "not archived, as dead-letter-archive says"
        in_memory = [(queue.name, record) for record in records_in_memory(queue, sequences)]
        if over.archived:
            # What was archived before the process ended is so again, under another name.
            self._number += 1
            name = f"{time.strftime('%Y-%m-%dT%H-%M-%S', time.gmtime(now_ms / 1000))}-{os.getpid()}-{self._number}"
            out, entries = await self._archiver.archive(name, sequences, over.why, now_ms, in_memory)
            where = f"archived in {out}"
        else:
            entries = await asyncio.to_thread(self._reader().message_ids, sequences)
            entries |= {record.sequence: record.message.message_id for _, record in in_memory}
        number = await in_steps(self._broker, self._broker.chosen.drop(queue, entries, over.why))
        await self._on_disk()
        self._broker.events.removed(over.source, queue.name, number, over.why)
        log.warning(
            "dead-letters-removed: queue %s: %s of %s%s, the oldest, by %s; %s",
            queue.name,
            counted(number, "dead letter"),
            over.source,
            self._broker.in_force.of(over.source).whose,
            over.why,
            where,
        )
        return number

    async def _on_disk(self) -> None:
        """Everything up to now is, for who reads it there."""
        done = asyncio.Event()
        self._broker.journal.when_readable(done.set)
        await done.wait()

    def _warn(self, error: JournalError) -> None:
        now = time.monotonic()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            log.error("dead-letter-archive-failed: dead letters cannot be archived, and so stay: %s %s", error.message, error.fix)


def _is_held(queue: Queue, sequence: int) -> bool:
    reference = queue.references.get(sequence)
    return reference is not None and reference.where in (Where.DELIVERING, Where.IN_COMMIT, Where.GONE)
