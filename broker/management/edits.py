"""Messages that are edited and sent again."""

from __future__ import annotations

from typing import Annotated, Final

from ..answers.lives import EditOfMessage
from ..answers.lives import Edits as Edited
from ..answers.parts import Properties
from ..auth.access import Who, asks
from ..broker import Broker
from ..core.edit import Edit, Edits
from ..core.queue import Queue
from ..delivery.editing import Editing
from ..errors import Refused
from ..steps import Steps
from . import arguments as read

#: Messages of one call.
_MOST: Final = 250


def _by_number(broker: Broker, name: str, given: object) -> dict[int, Edit]:
    if type(given) is not list or not 0 < len(given) <= _MOST or any(type(each) is not dict for each in given):
        raise Refused("invalid-argument", f"{name} must be a list of 1 to {_MOST} maps", "of message_id, body, set and unset")
    found: dict[int, Edit] = {}
    for each in given:
        number, edit = _edit(broker, each)
        if number in found:
            raise Refused("invalid-argument", f"message {number} has two edits", "give one edit of each message")
        found[number] = edit
    return found


def _edit(broker: Broker, given: Properties) -> tuple[int, Edit]:
    read.only(given, ("message_id", "body", "set", "unset"))
    if given.get("message_id") is None:
        raise Refused("invalid-argument", "an edit is of a message_id", "say which message is meant")
    number: int = read.number(1, read.MOST)(broker, "message_id", given["message_id"])
    body, changes, unset = given.get("body"), given.get("set", {}), given.get("unset", [])
    if body is not None and type(body) is not bytes:
        raise Refused("invalid-argument", "body must be bytes", "leave it out to keep it")
    if type(changes) is not dict or type(unset) is not list or any(type(name) is not str for name in (*changes, *unset)):
        raise Refused("invalid-argument", "set must be a map of properties, unset a list of their names", "leave out what stays")
    if both := changes.keys() & unset:
        raise Refused("invalid-argument", f"{min(both)[:64]} is both in set and in unset", "name a property in one of them")
    return number, Edit(body, changes, frozenset(unset))


@asks(Editing.edit)
def edit(
    broker: Broker,
    who: Who,
    *,
    queue: read.Queue,
    edits: Annotated[dict[int, Edit], _by_number],
    to: read.Queue | None = None,
    keep_original: read.Flag = False,
    signed: read.Flag = False,
) -> Steps[Edited]:
    """Of messages of a queue: another body, other properties; the originals end as edited, unless ``keep_original``."""
    done = yield from broker.editing.edit(who, queue, Edits(edits, to, keep_original, signed))
    return {"edits": [_answer(number, done.get(number), queue) for number in edits]}


def _answer(number: int, done: int | Refused | None, queue: Queue) -> EditOfMessage:
    if isinstance(done, int):
        return {"message_id": number, "edited": done}
    why = done or Refused("no-such-message", f"message {number} is not in queue {queue.name}", f"homing history {number} shows more")
    return {"message_id": number, "edited": None, "code": why.code, "message": why.message, "fix": why.fix}
