"""Reading the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..broker import Broker
from ..core.queue import Queue
from ..errors import Refused

#: The largest number that the journal can be asked for.
MOST: Final = (1 << 63) - 1
#: So many of an address's queues are named.
_NAMED: Final = 5
#: Queue entries that one call asks about.
MOST_ENTRIES: Final = 100


def only(arguments: dict[str, Any], *names: str) -> None:
    """Raises Refused for an argument the verb does not have."""
    for name in arguments:
        if name not in names:
            raise Refused("invalid-argument", f"there is no argument {name!r}", "arguments: " + (", ".join(names) or "none"))


def text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if type(value) is not str or not value:
        raise Refused("invalid-argument", f"{name} must be text", f"give {name}")
    return value


def contained(arguments: dict[str, Any]) -> Callable[[str], bool]:
    """Whether a text has that of ``contains`` in it, large or small; any, where none is given."""
    wanted = text(arguments, "contains").lower() if arguments.get("contains") is not None else ""
    return lambda each: wanted in each.lower()


def number(arguments: dict[str, Any], name: str, default: int, lowest: int, highest: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if type(value) is not int or not lowest <= value <= highest:
        raise Refused("invalid-argument", f"{name} must be a whole number from {lowest} to {highest}", f"give {name} such a value")
    return value


def flag(arguments: dict[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if type(value) is not bool:
        raise Refused("invalid-argument", f"{name} must be true or false", f"give {name} such a value")
    return value


def entries(arguments: dict[str, Any]) -> list[tuple[int, int]]:
    """(message id, sequence) of each, as ``hops`` name them."""
    value = arguments.get("stays")
    if type(value) is list and len(value) <= MOST_ENTRIES and all(type(each) is list and len(each) == 2 for each in value):
        found = [(message_id, sequence) for message_id, sequence in value]
        if all(type(number) is int and 0 <= number <= MOST for each in found for number in each):
            return found
    raise Refused("invalid-argument", f"stays must be at most {MOST_ENTRIES} pairs of message id and sequence", "hops name both")


def queue(broker: Broker, arguments: dict[str, Any]) -> Queue:
    """The queue that ``queue`` names; raises Refused when there is none. Never makes one."""
    name = text(arguments, "queue")
    found = broker.post_office.find_queue(name)
    if found is not None:
        return found
    if queues := broker.queues_of(name):
        more = f" and {len(queues) - _NAMED} more" if len(queues) > _NAMED else ""
        said = f"{name} is the address of {len(queues)} queues: {', '.join(queues[:_NAMED])}{more}"
        raise Refused("no-such-queue", said, "name one of them")
    raise Refused("no-such-queue", f"there is no queue {name}", "homing queues lists all of them")
