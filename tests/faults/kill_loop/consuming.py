"""Consumers of the kill loop: stint after stint in every ack mode, acknowledging, failing, returning, leaving things held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from homing.client import AckMode, Connection, Consumer, HomingError, Message, Session
from tests.faults.kill_loop.events import OK, UNKNOWN
from tests.faults.kill_loop.producing import commit, roll_back
from tests.faults.kill_loop.worker import DOOMED, WORK, Unwell, Worker, close_quietly

_PREFETCHES: Final = (1, 10, 100, 1000)
_PULL: Final = 0
_LAZY_MS: Final = 300  # how long DUPS_OK may hold acknowledgements
_RECEIVE_MS: Final = 40
_SOUND: Final = f"{DOOMED} IS NULL"

Behaviour = Callable[["Taker", Session, str, float], Awaitable[None]]


@dataclass
class Taker:
    """One consuming client. ``number`` shifts where it begins in the order of modes and queues, so that all pairs come."""

    worker: Worker
    number: int

    async def run(self) -> None:
        stint = self.number
        connection = await self.worker.connect()
        while self.worker.stage.running:
            mode, behaviour = BEHAVIOURS[stint % len(BEHAVIOURS)]
            queue = WORK[stint % len(WORK)]  # seven ways to work and four queues: every pair comes
            stint += 1
            try:
                await self._stint(connection, mode, behaviour, queue)
            except HomingError as error:
                self.worker.note(f"{mode.name}: {error.code}")
            if self.worker.rng.random() < 0.1:
                await close_quietly(self.worker, connection)
                connection = await self.worker.connect()
        await self.worker.barrier(connection)
        await close_quietly(self.worker, connection)

    async def _stint(self, connection: Connection, mode: AckMode, behaviour: Behaviour, queue: str) -> None:
        worker = self.worker
        self._connection = connection
        session = connection.session(mode)
        try:
            loop = asyncio.get_running_loop()
            await behaviour(self, session, queue, loop.time() + worker.rng.uniform(0.2, 0.9))
            if mode is AckMode.DUPS_OK:
                await asyncio.sleep((_LAZY_MS + 100) / 1000)  # what it holds back goes by time
            await worker.barrier(connection)
        finally:
            await close_quietly(worker, session)

    def _consumer(self, session: Session, queue: str, selector: str | None = None) -> Consumer:
        return session.consumer(queue, prefetch=self.worker.rng.choice((_PULL, *_PREFETCHES)), selector=selector)

    async def _some(self, session: Session, consumer: Consumer, queue: str, most: int) -> list[Message]:
        """Up to ``most`` messages, but no more than its window holds; logged as delivered."""
        messages: list[Message] = []
        while len(messages) < min(most, max(1, consumer.prefetch)):
            message = await consumer.receive(timeout_ms=_RECEIVE_MS)
            if message is None:
                break
            self.worker.got(message, queue, session.mode.name)
            messages.append(message)
        return messages

    def _works_until(self, end: float) -> bool:
        return self.worker.stage.running and asyncio.get_running_loop().time() < end

    # -- AUTO and DUPS_OK

    async def auto_receive(self, session: Session, queue: str, end: float) -> None:
        """Acknowledged before it is handed out: nothing can be failed, so the doomed ones are left to others."""
        consumer = self._consumer(session, queue, _SOUND)
        while self._works_until(end):
            message = await consumer.receive(timeout_ms=_RECEIVE_MS)
            if message is not None:
                self.worker.got(message, queue, "AUTO")
                self.worker.acknowledging(message, queue)

    async def listen(self, session: Session, queue: str, end: float) -> None:
        worker = self.worker

        async def handle(message: Message) -> None:
            worker.got(message, queue, session.mode.name)
            if worker.rng.random() < 0.05:
                await worker.pause(0, 20)
            if worker.wants_to_fail(message):
                worker.failing(message, queue, "listener")
                raise Unwell("by chance or by doom")
            worker.acknowledging(message, queue)

        listener = await session.listen(queue, handle, concurrency=worker.rng.choice((1, 4)), prefetch=worker.rng.choice(_PREFETCHES))
        while self._works_until(end):
            await worker.pause(30, 60)
            if session.mode is AckMode.AUTO:
                await worker.barrier(self._connection)
        await listener.stop()

    async def dups_ok_receive(self, session: Session, queue: str, end: float) -> None:
        consumer = self._consumer(session, queue)
        while self._works_until(end):
            message = await consumer.receive(timeout_ms=_RECEIVE_MS)
            if message is None:
                continue
            self.worker.got(message, queue, "DUPS_OK")
            if self.worker.wants_to_fail(message):
                self.worker.nack(message, queue)
            else:
                self.worker.acknowledging(message, queue)

    # -- CLIENT and INDIVIDUAL

    async def client(self, session: Session, queue: str, end: float) -> None:
        worker, consumer = self.worker, self._consumer(session, queue)
        while self._works_until(end):
            held: list[Message] = []
            for message in await self._some(session, consumer, queue, worker.rng.randint(1, 20)):
                if worker.wants_to_fail(message):
                    worker.nack(message, queue)
                else:
                    held.append(message)
            if not held:
                continue
            if worker.stage.producing and worker.rng.random() < 0.05:
                for message in held:
                    worker.failing(message, queue, "recover")
                await session.recover()
            else:
                await self._acknowledge_all(session, consumer, held, queue)

    async def _acknowledge_all(self, session: Session, consumer: Consumer, held: list[Message], queue: str) -> None:
        way = self.worker.rng.choice((session.acknowledge, consumer.acknowledge, held[-1].acknowledge))
        confirm = self.worker.rng.random() < 0.6
        for message in held:
            self.worker.acknowledging(message, queue)
        await self._confirmed(way(confirm=confirm), held, queue, confirm)

    async def _confirmed(self, answer: Awaitable[None], messages: list[Message], queue: str, confirm: bool) -> None:
        try:
            await answer
        except HomingError as error:
            self.worker.note(f"acknowledge: {error.code}")
            self.worker.settled(messages, queue, UNKNOWN)
        else:
            if confirm:
                self.worker.settled(messages, queue, OK)

    async def individual(self, session: Session, queue: str, end: float) -> None:
        worker, consumer = self.worker, self._consumer(session, queue)
        while self._works_until(end):
            messages = await self._some(session, consumer, queue, worker.rng.randint(1, 12))
            worker.rng.shuffle(messages)
            answers: list[Awaitable[None]] = []
            for message in messages:
                if worker.wants_to_fail(message):
                    worker.nack(message, queue)
                else:
                    answers.append(self._one(message, queue))
            await asyncio.gather(*answers)
            if worker.stage.producing and worker.rng.random() < 0.03:
                break  # leaves the rest of its window, unread, to the others

    async def _one(self, message: Message, queue: str) -> None:
        confirm = self.worker.rng.random() < 0.6
        self.worker.acknowledging(message, queue)
        try:
            answer = message.acknowledge(confirm=confirm)
        except HomingError as error:
            self.worker.note(f"acknowledge: {error.code}")
            self.worker.settled([message], queue, UNKNOWN)
            return
        await self._confirmed(answer, [message], queue, confirm)

    # -- TRANSACTED

    async def transacted(self, session: Session, queue: str, end: float) -> None:
        worker, consumer = self.worker, self._consumer(session, queue)
        number = 0
        while self._works_until(end):
            number += 1
            tx = f"{worker.name}-{asyncio.get_running_loop().time()}-{number}"
            messages = await self._some(session, consumer, queue, worker.rng.randint(1, 3))
            if not messages:
                continue
            if any(worker.wants_to_fail(message) for message in messages):
                for message in messages:
                    worker.failing(message, queue, "rollback")
                await session.rollback()
                continue
            for message in messages:
                worker.acknowledging(message, queue, tx)
            if not await commit(worker, session, tx):
                await roll_back(worker, session, HomingError("commit-failed", "see above", ""))


BEHAVIOURS: Final[tuple[tuple[AckMode, Behaviour], ...]] = (
    (AckMode.INDIVIDUAL, Taker.individual),
    (AckMode.AUTO, Taker.listen),
    (AckMode.CLIENT, Taker.client),
    (AckMode.TRANSACTED, Taker.transacted),
    (AckMode.DUPS_OK, Taker.dups_ok_receive),
    (AckMode.AUTO, Taker.auto_receive),
    (AckMode.DUPS_OK, Taker.listen),
)


async def _appears(worker: Worker, connection: Connection, queue: str) -> bool:
    """Waits until a queue is there. False: the run is over."""
    while worker.stage.running:
        try:
            if any(each["name"] == queue for each in await connection.call("queues")):
                return True
        except HomingError as error:
            worker.note(f"queues: {error.code}")
        await asyncio.sleep(0.05)
    return False


async def settle_dead_letters(worker: Worker, dead_letter_queue: str) -> None:
    """Takes dead letters off their queue, once that has made itself: one made by subscribing would be another."""
    connection = await worker.connect()
    if not await _appears(worker, connection, dead_letter_queue):
        await close_quietly(worker, connection)
        return
    session = connection.session(AckMode.INDIVIDUAL)
    consumer = session.consumer(dead_letter_queue, prefetch=10)
    while worker.stage.running:
        message = await consumer.receive(timeout_ms=_RECEIVE_MS)
        if message is None:
            continue
        worker.got(message, dead_letter_queue, "INDIVIDUAL")
        worker.acknowledging(message, dead_letter_queue)
        try:
            await message.acknowledge(confirm=True)
        except HomingError as error:
            worker.note(f"acknowledge: {error.code}")
            worker.settled([message], dead_letter_queue, UNKNOWN)
        else:
            worker.settled([message], dead_letter_queue, OK)
    await close_quietly(worker, connection)
