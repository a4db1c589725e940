"""One message edited: found where it is, its difference before it is sent, and sent."""

from __future__ import annotations

from typing import NamedTuple

import homing

from ..answers.failures import Message
from ..words.edits import Change
from .problems import Problem


class Found(NamedTuple):
    """A message, and the queue that it stands in."""

    queue: str
    message: Message


async def find(connection: homing.Connection, message_id: int, queue: str | None) -> Found:
    """``queue``: where it is meant; None where it is in one alone. Raises Problem."""
    if queue is None:
        found = await connection.call("history", message_id=message_id)
        places = [each["queue"] for each in found["references"]]
        if len(places) != 1:
            where = ", ".join(places) or "no queue any more"
            raise Problem("no-such-message", f"message {message_id} is in {where}", "name one queue that it is in", 404)
        queue = str(places[0])
    page = await connection.call("peek-dead-letters", queue=queue, filter={"message_ids": [message_id]}, limit=1)
    for message in page["messages"]:
        return Found(queue, message)
    raise Problem("no-such-message", f"message {message_id} is not in queue {queue}", "its own page says where it is", 404)


async def send(connection: homing.Connection, found: Found, change: Change, **how: object) -> int:
    """``how``: to, keep_original, signed. The number of what takes its place. Raises Problem, homing.HomingError."""
    answer = await connection.call("edit", queue=found.queue, edits=[change.of(found.message)], **how)
    (done,) = answer["edits"]
    if done["edited"] is None:
        raise Problem(done["code"], done["message"], done["fix"], 409)
    return int(done["edited"])
