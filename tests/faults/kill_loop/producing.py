"""Producers of the kill loop: plain and transacted sends, some delayed, short-lived, sent twice or doomed; some walk away unconfirmed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from homing.client import AckMode, Connection, HomingError, Producer, Session, TransactionError
from homing.client.outbox import Confirmation
from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN
from tests.faults.kill_loop.worker import DOOMED, QUORUM, WORK, Worker, close_quietly

_LARGEST_PADDING: Final = 2000
_ROLLED_BACK: Final = "transaction-rolled-back"


@dataclass(slots=True)
class Parcel:
    key: str
    queue: str
    body: bytes
    options: dict[str, Any]


@dataclass
class Sender:
    """One producing client. ``again``: what may or may not have been stored and carries a duplicate_id, so that it can be sent again."""

    worker: Worker
    rate_per_s: float
    numbers: Iterator[int] = field(default_factory=count)
    again: list[Parcel] = field(default_factory=list)
    watching: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        while self.worker.stage.producing:
            connection = await self.worker.connect()
            if self.worker.rng.random() < 0.65:
                await self._plain(connection)
            else:
                await self._transacted(connection)
        await asyncio.gather(*self.watching)
        while self.again:  # the last walk-away has left unknown ones
            connection = await self.worker.connect()
            await self._send_again(connection.session())
            await asyncio.gather(*self.watching)
            await close_quietly(self.worker, connection)

    # -- plain

    async def _plain(self, connection: Connection) -> None:
        worker = self.worker
        session = connection.session()
        await self._send_again(session)
        producers = {queue: session.producer(queue, max_unconfirmed=50) for queue in WORK}
        for _ in range(worker.rng.randint(5, 60)):
            if not worker.stage.producing:
                break
            batch = [self._parcel() for _ in range(worker.rng.randint(1, 12))]
            for parcel in batch:
                self._hand_over(producers[parcel.queue], parcel)
            for producer in producers.values():
                await producer.drain()
            await self._rest(len(batch))
        if worker.rng.random() < 0.3:
            await close_quietly(worker, connection, timeout_ms=0)  # walks away: what is out stays unknown
        else:
            await asyncio.gather(*self.watching)
            await close_quietly(worker, connection)

    async def _send_again(self, session: Session) -> None:
        again, self.again = self.again, []
        for parcel in again:
            self._hand_over(session.producer(parcel.queue), parcel)

    def _hand_over(self, producer: Producer, parcel: Parcel) -> None:
        self._invoked(parcel, None)
        task = asyncio.get_running_loop().create_task(self._watch(producer.send_nowait(parcel.body, **parcel.options), parcel))
        self.watching.add(task)
        task.add_done_callback(self.watching.discard)

    async def _watch(self, confirmation: Confirmation, parcel: Parcel) -> None:
        try:
            await confirmation
        except HomingError:
            self.worker.log("sent", key=parcel.key, outcome=UNKNOWN)
            if parcel.options.get("duplicate_id"):
                self.again.append(parcel)
        else:
            self.worker.log("sent", key=parcel.key, outcome=OK)

    # -- in transactions

    async def _transacted(self, connection: Connection) -> None:
        worker = self.worker
        session = connection.session(AckMode.TRANSACTED)
        producers = {queue: session.producer(queue) for queue in WORK}
        for _ in range(worker.rng.randint(3, 40)):
            if not worker.stage.producing:
                break
            size = worker.rng.randint(1, 6)
            await self._transaction(session, producers, size)
            await self._rest(size)
        await close_quietly(worker, connection)

    async def _transaction(self, session: Session, producers: dict[str, Producer], size: int) -> None:
        worker, tx = self.worker, f"{self.worker.name}-{uuid.uuid4()}"
        try:
            for _ in range(size):
                parcel = self._parcel()
                parcel.options.pop("ttl_ms", None)  # whether all of a transaction came is only known of what stays
                self._invoked(parcel, tx)
                await producers[parcel.queue].send(parcel.body, **parcel.options)
            if worker.rng.random() < 0.1:
                await session.rollback()
                worker.log("committed", tx=tx, outcome=FAIL)
                return
        except TransactionError as error:
            worker.log("committed", tx=tx, outcome=FAIL)
            await roll_back(worker, session, error)
            return
        await commit(worker, session, tx)

    # -- what is sent

    def _parcel(self) -> Parcel:
        rng = self.worker.rng
        key = f"{self.worker.name}-{next(self.numbers)}"
        options: dict[str, Any] = {"priority": rng.choice((4, 4, 4, 1, 9))}
        if rng.random() < 0.3:
            options["durable"] = False
        chance = rng.random()
        if chance < 0.03:
            options["properties"] = {DOOMED: True}
        elif chance < 0.08:
            options["ttl_ms"] = rng.randint(50, 2000)
        elif chance < 0.2:
            options["delay_ms"] = rng.randint(50, 800)
        elif chance < 0.35:
            options["duplicate_id"] = key
        return Parcel(key, rng.choice(WORK), b"%s\n%s" % (key.encode(), b"x" * rng.randint(0, _LARGEST_PADDING)), options)

    def _invoked(self, parcel: Parcel, tx: str | None) -> None:
        options = parcel.options
        self.worker.log(
            "send",
            key=parcel.key,
            queue=parcel.queue,
            delay_ms=options.get("delay_ms", 0),
            ttl_ms=options.get("ttl_ms", 0),
            tx=tx,
            durable=options.get("durable", True) or parcel.queue == QUORUM,
        )

    async def _rest(self, sent: int) -> None:
        most_ms = 2000 * sent / self.rate_per_s
        await self.worker.pause(0, most_ms)


async def commit(worker: Worker, session: Session, tx: str) -> bool:
    """Commits and logs how it ended. True: it is on disk."""
    worker.log("commit", tx=tx)
    try:
        await session.commit()
    except TransactionError as error:
        known = error.code != "outcome-unknown"
        worker.log("committed", tx=tx, outcome=FAIL if known else UNKNOWN)
        return False
    worker.log("committed", tx=tx, outcome=OK)
    return True


async def roll_back(worker: Worker, session: Session, error: HomingError) -> None:
    """After a transaction that its connection took along: the session begins anew."""
    worker.note(f"transaction: {error.code}")
    try:
        await session.rollback()
    except HomingError as again:
        worker.note(f"rollback: {again.code}")
