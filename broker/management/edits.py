"""Messages that are edited and sent again."""

from __future__ import annotations

from typing import Any, Final

from ..auth.access import Who, asks
from ..broker import Broker
from ..core.edit import Edit, Edits
from ..core.queue import Queue
from ..errors import Refused
from ..steps import Steps
from . import arguments as read

#: Messages of one call.
_MOST: Final = 250


@asks("edit")
def edit(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Of messages of a queue: another body, other properties; the originals end as edited, unless ``keep_original``."""
    read.only(arguments, "queue", "edits", "to", "keep_original", "signed")
    queue = read.queue(broker, arguments)
    target = read.queue(broker, {"queue": arguments["to"]}) if arguments.get("to") is not None else None
    keep, signed = read.flag(arguments, "keep_original"), read.flag(arguments, "signed")
    wanted = Edits(_by_number(_maps(arguments.get("edits"))), target, keep, signed)
    done = yield from broker.edit(who, queue, wanted)
    return {"edits": [_answer(number, done.get(number), queue) for number in wanted.by_number]}


def _maps(given: Any) -> list[dict[str, Any]]:
    if type(given) is list and 0 < len(given) <= _MOST and all(type(each) is dict for each in given):
        return given
    raise Refused("invalid-argument", f"edits must be a list of 1 to {_MOST} maps", "of message_id, body, set and unset")


def _by_number(given: list[dict[str, Any]]) -> dict[int, Edit]:
    found: dict[int, Edit] = {}
    for each in given:
        number, edit = _edit(each)
        if number in found:
            raise Refused("invalid-argument", f"message {number} has two edits", "give one edit of each message")
        found[number] = edit
    return found


def _edit(given: dict[str, Any]) -> tuple[int, Edit]:
    read.only(given, "message_id", "body", "set", "unset")
    number = read.number(given, "message_id", 0, 1, read.MOST)
    body, changes, unset = given.get("body"), given.get("set", {}), given.get("unset", [])
    if not number:
        raise Refused("invalid-argument", "an edit is of a message_id", "say which message is meant")
    if body is not None and type(body) is not bytes:
        raise Refused("invalid-argument", "body must be bytes", "leave it out to keep it")
    if type(changes) is not dict or type(unset) is not list or any(type(name) is not str for name in (*changes, *unset)):
        raise Refused("invalid-argument", "set must be a map of properties, unset a list of their names", "leave out what stays")
    if both := changes.keys() & unset:
        raise Refused("invalid-argument", f"{min(both)[:64]} is both in set and in unset", "name a property in one of them")
    return number, Edit(body, changes, frozenset(unset))


def _answer(number: int, done: int | Refused | None, queue: Queue) -> dict[str, Any]:
    if isinstance(done, int):
        return {"message_id": number, "edited": done}
    why = done or Refused("no-such-message", f"message {number} is not in queue {queue.name}", f"homing history {number} shows more")
    return {"message_id": number, "edited": None, "code": why.code, "message": why.message, "fix": why.fix}
