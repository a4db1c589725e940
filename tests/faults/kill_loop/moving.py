"""Tokens that transactions carry from one queue to another: whatever is killed, each is in exactly one place."""

from __future__ import annotations

import asyncio
import uuid

from homing.client import AckMode, HomingError, Message, Session
from tests.faults.kill_loop.events import FAIL, OK
from tests.faults.kill_loop.producing import commit, roll_back
from tests.faults.kill_loop.snapshots import key_of
from tests.faults.kill_loop.worker import TOKENS, WORK, Worker, close_quietly


async def seed(worker: Worker, tokens: int) -> None:
    """Puts the tokens into the first queue, confirmed."""
    connection = await worker.connect()
    producer = connection.session().producer(TOKENS[0])
    for number in range(tokens):
        key = f"token:{number}:0"
        worker.log("send", key=key, queue=TOKENS[0])
        await producer.send(key.encode(), duplicate_id=key)
        worker.log("sent", key=key, outcome=OK)
    await close_quietly(worker, connection)


async def move(worker: Worker, source: str, target: str) -> None:
    """Token by token: received from one queue, sent to the other with a receipt to a third, acknowledged, all in one transaction."""
    connection = await worker.connect()
    while worker.stage.running:
        session = connection.session(AckMode.TRANSACTED)
        try:
            await _move_some(worker, session, source, target)
        except HomingError as error:
            worker.note(f"mover: {error.code}")
        await close_quietly(worker, session)
    await close_quietly(worker, connection)


async def _move_some(worker: Worker, session: Session, source: str, target: str) -> None:
    consumer = session.consumer(source, prefetch=4)
    producer = session.producer(target)
    receipts = session.producer(worker.rng.choice(WORK))
    for _ in range(worker.rng.randint(5, 40)):
        if not worker.stage.producing:
            await asyncio.sleep(0.05)
            return
        message = await consumer.receive(timeout_ms=50)
        if message is None:
            continue
        worker.got(message, source, "TRANSACTED")
        tx = f"{worker.name}-{uuid.uuid4()}"
        key = _next_key(message, tx)
        worker.log("send", key=key, queue=target, tx=tx)
        worker.log("send", key=f"receipt-{tx}", queue=receipts.address, tx=tx)
        worker.acknowledging(message, source, tx)
        try:
            await producer.send(key.encode())
            await receipts.send(f"receipt-{tx}".encode())
            if worker.rng.random() < 0.15:
                worker.failing(message, source, "rollback", delay_ms=0)
                await session.rollback()
                worker.log("committed", tx=tx, outcome=FAIL)
                continue
        except HomingError as error:
            worker.log("committed", tx=tx, outcome=FAIL)
            await roll_back(worker, session, error)
            continue
        if not await commit(worker, session, tx):
            await roll_back(worker, session, HomingError("commit-failed", "see above", ""))
        await worker.pause(0, 5)


def _next_key(message: Message, tx: str) -> str:
    _, token, hop, *_ = key_of(message.body).split(":")
    return f"token:{token}:{int(hop) + 1}:{tx}"
