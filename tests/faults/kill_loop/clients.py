"""A process full of clients: ``python -m tests.faults.kill_loop.clients SPEC``, SPEC a JSON object (see ``Crew``).

Says ``here``, and begins at a line on stdin. Reads its stage from there: ``finish`` (send and fail no more; answers ``finished`` when all
is confirmed), ``flush`` (write the logs so far; answers ``flushed``) and ``stop``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests.faults.kill_loop.consuming import Taker, settle_dead_letters
from tests.faults.kill_loop.events import ClientLog
from tests.faults.kill_loop.moving import move, seed
from tests.faults.kill_loop.producing import Sender
from tests.faults.kill_loop.publishing import publish
from tests.faults.kill_loop.redriving import redrive
from tests.faults.kill_loop.repairing import edit, release, retry
from tests.faults.kill_loop.worker import TOKENS, WORK, Stage, Worker


@dataclass(frozen=True)
class Crew:
    """Who works in one process. ``first`` numbers its clients apart from other processes'; ``tokens``: it seeds and moves so many."""

    url: str
    amqp_port: int
    seed: int
    log: str
    first: int
    producers: int
    consumers: int
    rate_per_s: float
    tokens: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Process:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._stage = Stage()
        self._rng = Random(crew.seed)
        self._workers: list[Worker] = []

    def _worker(self, name: str) -> Worker:
        path = Path(self._crew.log)
        log = ClientLog(path.with_name(f"{path.name}.{name}.jsonl"), name)
        worker = Worker(name, self._crew.url, Random(self._rng.getrandbits(64)), log, self._stage)
        self._workers.append(worker)
        return worker

    async def run(self) -> None:
        crew = self._crew
        numbers = range(crew.first, crew.first + max(crew.producers, crew.consumers))
        async with asyncio.TaskGroup() as tasks:
            senders = [
                tasks.create_task(Sender(self._worker(f"producer{number}"), crew.rate_per_s).run()) for number in numbers[: crew.producers]
            ]
            for number in numbers[: crew.consumers]:
                tasks.create_task(Taker(self._worker(f"consumer{number}"), number).run())
            if crew.tokens:
                senders.append(tasks.create_task(asyncio.to_thread(publish, self._worker("publisher"), crew.amqp_port)))
                tasks.create_task(self._carry())
                tasks.create_task(settle_dead_letters(self._worker("settler"), f"DLQ.{WORK[0]}"))
                # What is sent back is as good as sent: it has to have come before all can settle.
                senders.append(tasks.create_task(redrive(self._worker("redriver"))))
                senders.append(tasks.create_task(self._repair()))
            try:
                await self._obey(senders)
            finally:
                # Also where a client ended by itself: threads are not cancelled.
                self._stage.producing = self._stage.running = False
        self._flush()

    async def _repair(self) -> None:
        """A redrive job may wait for what is on hold, so that is released before all jobs have ended."""
        await asyncio.gather(retry(self._worker("retrier")), edit(self._worker("editor")))
        await release(self._worker("releaser"))

    async def _carry(self) -> None:
        seeder, there, back = (self._worker(name) for name in ("seeder", "mover0", "mover1"))
        await seed(seeder, self._crew.tokens)
        await asyncio.gather(move(there, *TOKENS), move(back, *reversed(TOKENS)))

    def _flush(self) -> None:
        for worker in self._workers:
            worker.log.flush()

    async def _obey(self, senders: list[asyncio.Task[None]]) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while line := await commands.readline():
            if line.strip() == b"finish":
                self._stage.producing = False
                await asyncio.gather(*senders)
                print("finished", flush=True)
            elif line.strip() == b"flush":
                self._flush()
                print("flushed", flush=True)
            elif line.strip() == b"stop":
                break


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    print("here", flush=True)
    sys.stdin.readline()
    asyncio.run(Process(Crew(**json.loads(sys.argv[1]))).run())
