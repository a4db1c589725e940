"""What people do with messages that failed: other times for them, and others in their place, while brokers are killed."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from homing.client import Connection, HomingError
from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN
from tests.faults.kill_loop.snapshots import key_of
from tests.faults.kill_loop.worker import DOOMED, QUORUM, WORK, Worker, close_quietly

_MOST: Final = 5
_PAGE: Final = 20
_AT_MS: Final = 600
_WAYS: Final = ("now", "at_ms", "hold", "release")


async def retry(worker: Worker) -> None:
    """Now, later, on hold and released, some or all of a queue."""
    names = map(f"{worker.name}-{{}}".format, itertools.count())
    connection = await worker.connect()
    await _while_producing(worker, lambda: _retry_some(worker, connection, next(names)))
    await close_quietly(worker, connection)


async def release(worker: Worker) -> None:
    """Nothing is on hold any more. Nobody may be editing: what takes the place of a message on hold is on hold, too."""
    names = map(f"{worker.name}-{{}}".format, itertools.count())
    connection = await worker.connect()
    while not await _all_released(worker, connection, names):
        await worker.pause(20, 50)
    await close_quietly(worker, connection)


async def edit(worker: Worker) -> None:
    """Messages that wait and dead ones, with another body, and some without what dooms them."""
    numbers = itertools.count()
    connection = await worker.connect()
    await _while_producing(worker, lambda: _edit_some(worker, connection, numbers))
    await close_quietly(worker, connection)


async def _while_producing(worker: Worker, act: Callable[[], Awaitable[None]]) -> None:
    while worker.stage.producing:
        await worker.pause(20, 200)
        try:
            await act()
        except HomingError as error:
            worker.note(f"{worker.name}: {error.code}")


async def _retry_some(worker: Worker, connection: Connection, name: str) -> None:
    rng = worker.rng
    queue, way = rng.choice(WORK), rng.choice(_WAYS)
    if rng.random() < 0.2:
        await _retry(worker, connection, name, queue, way, None)
        return
    page = await connection.call("peek-retrying", queue=queue, limit=_PAGE)
    waiting = [each["message_id"] for each in page["messages"] if (each["due_at_ms"] is None) is (way == "release")]
    if waiting:
        await _retry(worker, connection, name, queue, way, rng.sample(waiting, min(len(waiting), rng.randint(1, 3))))


async def _retry(worker: Worker, connection: Connection, name: str, queue: str, way: str, ids: list[int] | None) -> None:
    """``ids`` None: all that wait."""
    delay_ms = worker.rng.randint(1, _AT_MS)
    at_ms = worker.log("retry", retry=name, queue=queue, ids=ids, way=way, delay_ms=delay_ms) + delay_ms
    how: dict[str, Any] = {way: int(at_ms) + 1 if way == "at_ms" else True} | ({} if ids is None else {"message_ids": ids})
    try:
        number = await connection.retry(queue, **how)
    except HomingError as error:
        worker.log("retried", retry=name, outcome=UNKNOWN, cut=error.connection_lost)
        raise
    # Which of them had gone meanwhile nobody tells.
    worker.log("retried", retry=name, outcome=OK if ids is not None and number == len(ids) else UNKNOWN)


async def _all_released(worker: Worker, connection: Connection, names: Iterator[str]) -> bool:
    try:
        held = [each["queue"] for each in await connection.call("retrying") if each["on_hold"]]
        for queue in held:
            await _retry(worker, connection, next(names), queue, "release", None)
    except HomingError as error:
        worker.note(f"{worker.name}: {error.code}")
        return False
    return not held


async def _edit_some(worker: Worker, connection: Connection, numbers: itertools.count[int]) -> None:
    rng, work = worker.rng, worker.rng.choice(WORK)
    verb, queue = rng.choice((("peek-dead-letters", f"DLQ.{work}"), ("peek", work)))
    page = await connection.call(verb, queue=queue, limit=_PAGE)
    found = page["messages"] and rng.sample(page["messages"], min(len(page["messages"]), rng.randint(1, _MOST)))
    if not found:
        return
    keep, wanted, names = rng.random() < 0.1, list[dict[str, Any]](), dict[int, str]()
    for message in found:
        number, name = message["message_id"], f"{worker.name}-{next(numbers)}"
        names[number] = name
        # What has not died keeps its time to live.
        ends_ms = message["expires_at_ms"]
        ttl_ms = 0 if ends_ms is None else max(1, ends_ms - message["sent_at_ms"])
        durable = message["durable"] or work == QUORUM
        worker.log("send", key=name, queue=work, tx=name, of=number, ttl_ms=ttl_ms, durable=durable)
        if not keep:
            worker.log("ack", id=number, queue=queue, tx=name, edit=True, key=key_of(message["body"]))
        body = name.encode() + b"\n" + b"x" * rng.randint(0, 500)
        wanted.append({"message_id": number, "body": body, "unset": [DOOMED] * (rng.random() < 0.5), "set": {"edited": True}})
    try:
        reported = (await connection.call("edit", queue=queue, edits=wanted, keep_original=keep))["edits"]
    except HomingError as error:
        for name in names.values():
            worker.log("committed", tx=name, outcome=UNKNOWN if error.connection_lost else FAIL)
        raise
    for each in reported:
        worker.log("committed", tx=names[each["message_id"]], outcome=OK if each["edited"] is not None else FAIL)
