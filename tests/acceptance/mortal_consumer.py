"""A consumer as a process, for tests: the message ``guilty`` kills it at once. ``python -m … URL QUEUE alone|together``.

``together``: a hundred handlers at a time; an innocent message that is not yet suspected is held until the guilty one has struck.
Ends with 0 when the queue is empty.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import homing
from homing.client import AckMode, Message

#: Deliveries after which a message is delivered alone (max-delivery-attempts is 3 in the tests).
HELD_DELIVERIES = 2


async def handle(message: Message) -> None:
    if message.body == b"guilty":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.delivery_count <= HELD_DELIVERIES:
        await asyncio.sleep(20)


async def is_occupied(connection: homing.Connection, queue: str) -> bool:
    return any(each["name"] == queue and each["messages"] for each in await connection.call("queues"))


async def main(url: str, queue: str, behaviour: str) -> None:
    concurrency = 100 if behaviour == "together" else 1
    async with homing.connect(url) as connection, connection.session(AckMode.AUTO) as session:
        await session.listen(queue, handle, concurrency)
        while await is_occupied(connection, queue):  # noqa: ASYNC110 - the broker is what changes
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
