"""A process that does to a journal what a broker does, claiming each operation before and after; to be run under the recorder.

``python -m tests.faults.power_loss.journal_workload DIRECTORY LOG STEPS SEED``. Sends small and large, failures with counts,
dead-letter moves, acknowledgements, transactions, messages shared by two queues; a clean stop and a new start in the middle;
at the end the process is gone without closing anything.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from homing.journal.contract import QueueStat, ReferenceRecord
from homing.journal.journal import Journal, JournalOptions
from tests.faults.power_loss.recording import ROOT, Claims, Recording
from tests.unit.journal_support import attempt, counted, hop, keep_attempt, message, outcome, queue, reference, stored

ORDERS, DEAD, RESULTS, LEFT, RIGHT = range(1, 6)
NAMES = {ORDERS: "orders", DEAD: "DLQ.orders", RESULTS: "results", LEFT: "left", RIGHT: "right"}
MINUTES_A_STEP, MINUTE_MS = 3, 60_000
#: Small, so that checkpoints, new blocks of ids, and old counts that are folded at the second start are among what is cut.
OPTIONS = JournalOptions(disk_reserve_bytes=0, id_block=24, checkpoint_every_bytes=400_000, history_retention_ms=30 * MINUTE_MS)


class Workload:
    """What the broker would know: which messages are where. One operation at a time joins the open batch; several share one."""

    def __init__(self, claims: Claims, chance: Random) -> None:
        self._claims = claims
        self._chance = chance
        self._here: dict[str, ReferenceRecord] = {}
        self._fans: dict[int, int] = {}
        self._names = 0
        self._minute = 0
        self.journal: Journal

    def declare(self) -> None:
        for queue_id, name in NAMES.items():
            self.journal.batch.queue(queue(queue_id, name))

    def step(self) -> None:
        self._minute += MINUTES_A_STEP
        orders = [key for key, found in self._here.items() if found.queue_id == ORDERS]
        kinds: list[Callable[[], None]] = [self._send, self._send_to_two]
        if len(orders) > 4:
            kinds += [partial(self._fail, orders), partial(self._dead_letter, orders), partial(self._transaction, orders)]
            kinds += [self._acknowledge] * (2 if len(orders) < 12 else 5)
        self._chance.choice(kinds)()

    # -- operations --------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        added = [self._new(ORDERS) for _ in range(self._chance.randint(1, 4))]
        self._claim(added[-1][1].sequence, sends=[key for key, _ in added])
        for key, record in added:
            self._add(key, record, QueueStat.SENT)

    def _send_to_two(self) -> None:
        key, record = self._new(LEFT, "fan")
        other = record._replace(queue_id=RIGHT, sequence=self.journal.next_id(), shared=True)
        self._claim(other.sequence, sends=[f"{key}@left", f"{key}@right"])
        self.journal.batch.add_message(record.message)
        self._fans[record.message.message_id] = 2
        self._add(f"{key}@left", record._replace(shared=True), QueueStat.SENT)
        self._add(f"{key}@right", other, QueueStat.SENT)

    def _fail(self, orders: list[str]) -> None:
        key = self._chance.choice(orders)
        count = self._here[key].delivery_count + 1
        found = self._here[key] = self._here[key]._replace(delivery_count=count, failed=count)
        self._claim(0, counts={key: count})
        self.journal.batch.change([found.sequence], counted(delivery_count=count, failed=count))
        keep_attempt(self.journal.batch, attempt(found.message.message_id, found.sequence, count))
        self._count(ORDERS, QueueStat.FAILED)

    def _dead_letter(self, orders: list[str]) -> None:
        key = self._chance.choice(orders)
        found = self._here[key]
        moved = found._replace(queue_id=DEAD, sequence=self.journal.next_id(), delivery_count=0, failed=0)
        moved = moved._replace(hops=[hop(found.sequence)])
        self._claim(moved.sequence, dead=[key])
        self._remove(key, QueueStat.DEAD_LETTERED)
        self.journal.batch.outcome(outcome(found.message.message_id, found.sequence, outcome="dead-lettered"))
        self._add(key, moved, QueueStat.MOVED_IN)

    def _acknowledge(self) -> None:
        keys = self._chance.sample(sorted(self._here), self._chance.randint(1, min(3, len(self._here))))
        for key in keys:
            self._claim(0, acks=[key])
            self._remove(key, QueueStat.SUCCEEDED)

    def _transaction(self, orders: list[str]) -> None:
        taken = self._chance.sample(orders, self._chance.randint(1, 2))
        added = [self._new(RESULTS) for _ in range(self._chance.randint(1, 3))]
        self._names += 1
        name = f"transaction-{self._names}"
        self._claim(added[-1][1].sequence, acks=taken, sends=[key for key, _ in added], transaction=name)
        for key in taken:
            self._remove(key, QueueStat.SUCCEEDED)
        for key, record in added:
            self._add(key, record, QueueStat.SENT)
        self.journal.batch.committed(name, self._minute * MINUTE_MS)

    # -- their parts -------------------------------------------------------------------------------------------------

    def _claim(self, highest_id: int, **effects: Any) -> None:
        operation = self._claims.begin(highest_id=highest_id, **effects)
        self.journal.batch.clock(self._minute * MINUTE_MS)
        self.journal.batch.after.append(partial(self._claims.done, operation))

    def _new(self, queue_id: int, stem: str = "m") -> tuple[str, ReferenceRecord]:
        self._names += 1
        key = f"{stem}{self._names}"
        size = self._chance.choice((40, 400, 400, 3_000, 40_000))
        sequence = self.journal.next_id()
        return key, reference(sequence, queue_id, of=message(sequence, key.encode() + b"|" + self._chance.randbytes(size)))

    def _add(self, key: str, record: ReferenceRecord, how: QueueStat) -> None:
        self.journal.batch.add(record)
        self._count(record.queue_id, how)
        self._here[key] = record

    def _remove(self, key: str, how: QueueStat) -> None:
        found = self._here.pop(key)
        self.journal.batch.delete_all((found.sequence,))
        self._count(found.queue_id, how)
        message_id = found.message.message_id
        if message_id in self._fans:
            self._fans[message_id] -= 1
            if not self._fans[message_id]:
                self.journal.batch.delete_message(message_id)

    def _count(self, queue_id: int, how: QueueStat) -> None:
        self.journal.batch.counts(queue_id, self._minute)[how] += 1


def record(recording: Recording, steps: int, seed: int, *launcher: str) -> None:
    """Run it in a process of its own, under the recorder. ``launcher``: a module that starts it, and that module's own arguments."""
    command = [sys.executable, "-m", *launcher, __name__, str(recording.data), str(recording.log), str(steps), str(seed)]
    subprocess.run(command, cwd=ROOT, env=recording.environment(), check=True, timeout=120)


async def run(directory: Path, claims: Claims, steps: int, chance: Random) -> None:
    workload = Workload(claims, chance)
    for life in range(2):
        workload.journal, recovered = await Journal.open(directory, OPTIONS, 0)
        if not recovered.queues:
            workload.declare()
        for _ in range(steps):
            workload.step()
            # Some operations share a batch, some have one to themselves, some join while another is being written.
            await asyncio.sleep(0)
            # Small commits that are waited for one at a time stand packed, until something has them go to the tables.
            how = chance.random()
            if how < 0.5:
                await stored(workload.journal)
            elif how < 0.6:
                await workload.journal.flush()
        await workload.journal.flush()
        if life == 0:
            await workload.journal.close()


def main() -> None:
    directory, log, steps, seed = sys.argv[1:]
    asyncio.run(_until_the_end(Path(directory), Claims(Path(log)), int(steps), Random(int(seed))))


async def _until_the_end(directory: Path, claims: Claims, steps: int, chance: Random) -> None:
    await run(directory, claims, steps, chance)
    os._exit(0)


if __name__ == "__main__":
    main()
