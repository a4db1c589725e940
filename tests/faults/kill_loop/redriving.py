"""Redrive jobs on dead-letter queues: started, paused, resumed and cancelled while brokers are killed, and all ended before the end."""

from __future__ import annotations

from typing import Any, Final

from homing.client import Connection, HomingError
from tests.faults.kill_loop.worker import WORK, Worker, close_quietly

#: The others' dead letters stay, or are settled.
REDRIVEN: Final = WORK[1:]


async def redrive(worker: Worker) -> None:
    connection = await worker.connect()
    while worker.stage.producing:
        await worker.pause(20, 200)
        try:
            await _act(worker, connection)
        except HomingError as error:
            worker.note(f"redrive: {error.code}")
    for queue in REDRIVEN:
        # However slow the machine is, something was sent back.
        try:
            await connection.redrive(f"DLQ.{queue}")
        except HomingError as error:
            worker.note(f"redrive: {error.code}")
    while not await _all_ended(worker, connection):
        await worker.pause(20, 50)
    await close_quietly(worker, connection)


async def _act(worker: Worker, connection: Connection) -> None:
    rng, jobs = worker.rng, await _under_way(connection)
    if jobs and rng.random() < 0.5:
        verb = rng.choice(("pause-redrive", "resume-redrive", "resume-redrive", "cancel-redrive"))
        await connection.call(verb, redrive=rng.choice(jobs)["job_id"])
    else:
        how: dict[str, Any] = {"rate": rng.choice((0, 0, 50)), "canary": rng.choice((0, 0, 2)), "newest_first": rng.random() < 0.3}
        await connection.redrive(f"DLQ.{rng.choice(REDRIVEN)}", stop_above=rng.choice((None, 50)), **how)


async def _under_way(connection: Connection) -> list[dict[str, Any]]:
    return [each for each in await connection.call("redrives") if each["ended_ms"] is None]


async def _all_ended(worker: Worker, connection: Connection) -> bool:
    """What is paused goes on meanwhile."""
    try:
        jobs = await _under_way(connection)
        for job in jobs:
            await connection.call("resume-redrive", redrive=job["job_id"])
    except HomingError as error:
        worker.note(f"redrive: {error.code}")
        return False
    return not jobs
