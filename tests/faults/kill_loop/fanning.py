"""A broker killed while it hands messages to many queues, a step at a time: each message is in all of them or in none, and never twice.

One client sends bursts and keeps its numbers over every kill, so that what was not confirmed is sent again. Between two brokers the journal
is looked at; once a burst is confirmed, every queue holds every message of it once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import homing
from homing.client import Connection, ReconnectPolicy
from tests.faults.kill_loop.events import Snapshot
from tests.faults.kill_loop.processes import Broker
from tests.faults.kill_loop.snapshots import take_snapshot
from tests.process import free_port

ADDRESS: Final = "fan"
#: Killed so long after a confirm of the burst came, at most: a few steps.
_LATER_S: Final = 0.03
_SETTLE_S: Final = 60.0
_RECONNECT: Final = ReconnectPolicy(
    maximum_time_ms=-1, initial_delay_ms=20, maximum_delay_ms=150, first_attempts=1_000_000, maximum_attempts=-1
)


@dataclass
class Fanning:
    """``within``: kills that came when the burst was stored in part, which is what this is for."""

    directory: Path
    seed: int
    queues: int = 60
    burst: int = 300
    violations: list[str] = field(default_factory=list)
    kills: int = 0
    within: int = 0

    def run(self, kills: int) -> None:
        broker = Broker(self.directory, {"journal": {"disk-reserve": 0}}, free_port())
        try:
            asyncio.run(self._run(broker, kills))
        finally:
            broker.close()

    async def _run(self, broker: Broker, kills: int) -> None:
        rng = Random(self.seed)
        broker.spawn()
        broker.wait_until_ready()
        async with homing.connect(broker.url, reconnect=_RECONNECT, rng=rng) as connection:
            for name in self._names:
                await connection.call("create-queue", queue=name, address=ADDRESS, routing_type="multicast")
            async with connection.session() as session:
                producer = session.producer(ADDRESS, max_unconfirmed=self.burst)
                for number in range(kills):
                    keys = [f"{number}-{place}" for place in range(self.burst)]
                    confirmations = [asyncio.ensure_future(producer.send_nowait(key.encode())) for key in keys]
                    await asyncio.wait({confirmations[0]})
                    await confirmations[rng.randrange(self.burst // 2)]
                    await asyncio.sleep(rng.uniform(0, _LATER_S))
                    broker.kill()
                    self._look(take_snapshot(broker.data, f"kill {number + 1}"), keys, confirmations)
                    broker.spawn()
                    broker.wait_until_ready()
                    await asyncio.wait_for(asyncio.gather(*confirmations), _SETTLE_S)
                    await self._settle(connection)
        if broker.stop():
            self.violations.append(f"the broker did not stop in order: {broker.log_tail()}")

    @property
    def _names(self) -> list[str]:
        return [f"fan.{number}" for number in range(self.queues)]

    def _look(self, snapshot: Snapshot, keys: list[str], confirmations: Sequence[asyncio.Future[Any]]) -> None:
        self.kills += 1
        self.violations += snapshot.problems
        there = Counter((entry.key, entry.queue) for entry in snapshot.entries)
        self.violations += [f"{key} is {count} times in {queue} at {snapshot.name}" for (key, queue), count in there.items() if count > 1]
        places = Counter(key for key, _ in there)
        stored = 0
        for key, confirmation in zip(keys, confirmations, strict=True):
            stored += places[key] == self.queues
            if places[key] not in (0, self.queues):
                self.violations.append(f"{key} is in {places[key]} of {self.queues} queues at {snapshot.name}")
            elif confirmation.done() and not places[key]:
                self.violations.append(f"{key} was confirmed and is nowhere at {snapshot.name}")
        self.within += 0 < stored < self.burst

    async def _settle(self, connection: Connection) -> None:
        """All is confirmed: every queue has all of the burst once; and then it is emptied for the next."""
        counts = {each["name"]: each["messages"] for each in await connection.call("queues") if each["name"] in set(self._names)}
        wrong = {name: count for name, count in counts.items() if count != self.burst}
        if wrong or len(counts) != self.queues:
            self.violations.append(f"after all {self.burst} were confirmed there were {wrong} messages, after kill {self.kills}")
        for name in self._names:
            await connection.call("purge", queue=name)
