"""Counts of all that there is: of the journal's rows, and of messages that are in memory alone."""

from __future__ import annotations

from collections import Counter

from homing.journal.contract import FaultLife, FaultsNow

from ..broker import Broker
from ..core.letter_filter import Filter
from ..core.queue import Queue
from .host import Host, in_thread, in_turns


async def faults_now(broker: Broker, host: Host) -> FaultsNow:
    """Of fault groups, and of dead letters by why they are there."""
    now: FaultsNow = await in_thread(host.faults_now)
    dead = now.dead + await in_turns(broker, broker.dead_in_memory())
    names = {queue.queue_id: queue.name for queue in broker.post_office.queues.values()}
    return FaultsNow(_with_those_in_memory(broker, now.lives), dead, now.queues | names)


async def fault_lives(broker: Broker, host: Host) -> dict[int, FaultLife]:
    """Of fault groups, by their numbers."""
    return _with_those_in_memory(broker, await in_thread(host.fault_lives))


def _with_those_in_memory(broker: Broker, lives: dict[int, FaultLife]) -> dict[int, FaultLife]:
    for fault_id, number in broker.fault_groups.in_memory.items():
        life = lives.get(fault_id, FaultLife())
        lives[fault_id] = life._replace(waiting=life.waiting + number, transient=number)
    return lives


async def count_chosen(
    broker: Broker, host: Host, queue: Queue, wanted: Filter
) -> tuple[Counter[tuple[int, str | None]], Counter[tuple[int, str | None]]]:
    """How many the filter takes, by their fault (0: of what is not dead) and where that was; and of these the transient ones."""
    which = broker.choice_of(wanted)
    stored = Counter(await in_thread(lambda: host.count_chosen(queue.queue_id, which)))
    transient = await in_turns(broker, broker.count_in_memory(queue, wanted))
    return stored + transient, transient
