"""Counts of what there is: of the journal's rows, and of messages that are in memory alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from homing.journal.contract import FaultLife

from ..broker import Broker
from ..core.message_filter import Filter
from ..core.queue import Queue
from .process import Process, in_steps, in_thread


async def fault_lives(broker: Broker, process: Process, fault_ids: Collection[int]) -> dict[int, FaultLife]:
    """Of these fault groups."""
    lives = await in_thread(lambda: process.past().fault_lives(broker.now_ms(), fault_ids))
    for fault_id in fault_ids:
        life, number = lives.get(fault_id, FaultLife()), broker.fault_groups.in_memory[fault_id]
        lives[fault_id] = life._replace(waiting=life.waiting + number, transient=number)
    return lives


async def count_chosen(
    broker: Broker, process: Process, queue: Queue, wanted: Filter
) -> tuple[Counter[tuple[int, str | None]], Counter[tuple[int, str | None]]]:
    """How many the filter takes, by their fault (0: of what is not dead) and where that was; and of these the transient ones."""
    transient = await in_steps(broker, broker.counting.in_memory(queue, wanted))
    known, which = broker.counting.known(queue, wanted)
    stored = Counter() if which is None else Counter(await in_thread(lambda: process.past().count_chosen(queue.queue_id, which)))
    return known - transient + stored + transient, transient
