"""What every client of the kill loop shares: its chance, its log, a connection that comes back, and what it does not know yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import homing
from homing.client import Connection, ConnectionState, HomingError, Message, ReconnectPolicy
from tests.faults.kill_loop.events import OK, UNKNOWN, VOID, ClientLog, now_ms
from tests.faults.kill_loop.snapshots import key_of

WORK: Final = tuple(f"work.{number}" for number in range(4))
#: Declared over AMQP and of type quorum: it keeps every message.
QUORUM: Final = WORK[2]
TOKENS: Final = ("tokens.a", "tokens.b")
#: Delay the broker's settings give a failure in a work queue that names none.
SETTINGS_DELAY_MS: Final = 100
NACK_DELAYS_MS: Final = (0, 50, 150, 400)
DOOMED: Final = "doomed"
_RECONNECT: Final = ReconnectPolicy(
    maximum_time_ms=-1, initial_delay_ms=20, maximum_delay_ms=150, first_attempts=1_000_000, maximum_attempts=-1
)


class Unwell(Exception):
    """A handler that fails."""


@dataclass
class Stage:
    """Where the run stands: clients produce and fail at will, then only finish what is there, then stop."""

    producing: bool = True
    running: bool = True


@dataclass(slots=True, eq=False)
class _Open:
    """A settlement that was written and whose way to the disk is not known yet."""

    event: str
    id: int
    queue: str
    era: int
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Worker:
    """One client: ``era`` counts its connections, so that an answer is never taken for an older connection's."""

    name: str
    url: str
    rng: Random
    log: ClientLog
    stage: Stage
    era: int = 0
    open: list[_Open] = field(default_factory=list)

    async def connect(self) -> Connection:
        self.era += 1
        connection = homing.connect(self.url, reconnect=_RECONNECT, rng=self.rng, close_timeout_ms=2000)
        connection.on_state.append(self._on_state)
        return await connection

    def _on_state(self, state: ConnectionState) -> None:
        self.era += 1
        if state is ConnectionState.CONNECTED:
            self.log.since_ms = now_ms()

    # -- what is received

    def got(self, message: Message, queue: str, mode: str) -> None:
        self.log(
            "deliver",
            key=key_of(message.body),
            id=message.message_id,
            queue=queue,
            count=message.delivery_count,
            mode=mode,
        )

    def wants_to_fail(self, message: Message) -> bool:
        if message.properties.get(DOOMED):
            return True
        return self.stage.producing and not message.expires_at_ms and self.rng.random() < 0.15

    # -- what is settled

    def acknowledging(self, message: Message, queue: str, tx: str | None = None) -> None:
        """To be called right before the acknowledgement. Its outcome follows by ``settled``, ``barrier`` or the transaction."""
        if tx is None:
            self.log("ack", id=message.message_id, queue=queue)
            self.open.append(_Open("acked", message.message_id, queue, self.era))
        else:
            self.log("ack", id=message.message_id, queue=queue, tx=tx)

    def failing(self, message: Message, queue: str, how: str, delay_ms: int = SETTINGS_DELAY_MS) -> None:
        count = message.delivery_count
        self.log("fail", id=message.message_id, queue=queue, count=count, delay_ms=delay_ms, how=how)
        self.open.append(_Open("failed", message.message_id, queue, self.era, {"count": count}))

    def settled(self, messages: Iterable[Message], queue: str, outcome: str) -> None:
        """What a client knows of its latest settlements of these: it asked about them, or they never left."""
        for message in messages:
            found = next((each for each in reversed(self.open) if each.id == message.message_id and each.queue == queue), None)
            if found is not None:
                self._close(found, outcome)

    def _close(self, settlement: _Open, outcome: str) -> None:
        self.open.remove(settlement)
        self.log(settlement.event, id=settlement.id, queue=settlement.queue, outcome=outcome, **settlement.fields)

    def nack(self, message: Message, queue: str) -> None:
        """Fails one message. Where the mode had acknowledged it by itself already, that is what happened to it instead."""
        delay_ms = self.rng.choice(NACK_DELAYS_MS)
        self.failing(message, queue, "nack", delay_ms)
        try:
            message.nack(reason="the loop failed it", error=Unwell("by chance or by doom"), delay_ms=delay_ms)
        except HomingError as error:
            self.settled([message], queue, VOID)
            if not error.connection_lost:
                self.acknowledging(message, queue)

    async def barrier(self, connection: Connection) -> None:
        """Learns that everything this connection settled so far is on disk: a broker answers a change once it is there, in order."""
        era = self.era
        asked = [each for each in self.open if each.era == era]
        for each in [each for each in self.open if each.era != era]:
            self._close(each, UNKNOWN)
        if not asked:
            return
        try:
            await connection.call("resume", queue=asked[0].queue)
        except HomingError:
            return
        for each in asked:
            if self.era == era and each in self.open:
                self._close(each, OK)

    def note(self, text: str) -> None:
        self.log("note", text=text)

    async def pause(self, least_ms: float, most_ms: float) -> None:
        await asyncio.sleep(self.rng.uniform(least_ms, most_ms) / 1000)


async def close_quietly(worker: Worker, closable: Any, **arguments: Any) -> None:
    """A close in the middle of an outage cannot finish, and says so."""
    try:
        await closable.close(**arguments)
    except HomingError as error:
        worker.note(f"close: {error.code}")
