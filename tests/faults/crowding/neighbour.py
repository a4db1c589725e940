"""One good client: a durable message, its confirm, a short rest, again. ``python -m tests.faults.crowding.neighbour URL``.

Says ``ready``; ends with the first line on stdin and says of each send when it began (monotonic clock, s) and what its confirm took (ms).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import homing

_REST_S = 0.005


async def run(url: str) -> list[tuple[float, float]]:
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    times: list[tuple[float, float]] = []
    async with homing.connect(url) as connection, connection.session() as session:
        producer = session.producer("neighbour")
        await producer.send(b"first")
        print("ready", flush=True)
        while not ended.done():
            started = time.monotonic()
            sending = asyncio.ensure_future(producer.send(b"message"))
            await asyncio.wait({sending, ended}, return_when=asyncio.FIRST_COMPLETED)
            # One that is not confirmed yet has waited for so long at least.
            times.append((started, (time.monotonic() - started) * 1000))
            if sending.done():
                sending.result()
                await asyncio.sleep(_REST_S)
            else:
                sending.cancel()
    return times


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1]))))
