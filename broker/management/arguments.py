"""What a call takes are the named parameters of its handler: the type of each says how it is read of what was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

from ..broker import Broker
from ..core.queue import Queue as _Queue
from ..errors import Refused

#: The largest number that the journal can be asked for.
MOST: Final = (1 << 63) - 1
#: So many of an address's queues are named.
_NAMED: Final = 5
#: What is given under a name becomes what the handler has under it. Raises Refused.
_Read = Callable[[Broker, str, object], object]


class _Argument(NamedTuple):
    """``part``: the parameter of that it is a field, "" where it is one itself. ``says_none``: None is a value of its own, and does not
    stand for what is left out."""

    part: str
    parameter: str
    read: _Read
    needed: bool
    says_none: bool


class _Taken(NamedTuple):
    """``others``: it reads what has other names itself."""

    arguments: dict[str, _Argument]
    parts: dict[str, type]
    others: bool


@cache
def _taken_by(handler: Callable[..., object], part: str = "") -> _Taken:
    """Of the parameters that have to be named those whose types say how they are read; one that would hide a word of Python's has a line
    behind it."""
    hints, parameters = get_type_hints(handler, include_extras=True), signature(handler).parameters.values()
    found = _Taken({}, {}, any(each.kind is Parameter.VAR_KEYWORD for each in parameters))
    for each in parameters:
        hint = hints[each.name] if each.kind is Parameter.KEYWORD_ONLY else None
        if is_dataclass(hint) and isinstance(hint, type):
            found.parts[each.name] = hint
            found.arguments.update(_taken_by(hint, each.name).arguments)
        for type_ in (hint, *get_args(hint)):
            if hasattr(type_, "__metadata__"):
                says_none = type(None) in get_args(get_args(type_)[0])
                needed = each.default is Parameter.empty
                found.arguments[each.name.removesuffix("_")] = _Argument(part, each.name, type_.__metadata__[0], needed, says_none)
    return found


def taken(broker: Broker, handler: Callable[..., object], given: Mapping[str, object]) -> dict[str, Any]:
    """What the handler is called with. Raises Refused, also for an argument that it does not have."""
    arguments, parts, others = _taken_by(handler)
    if not others:
        only(given, arguments)
    found = {"": {name: value for name, value in given.items() if name not in arguments}, **{part: {} for part in parts}}
    for name, each in arguments.items():
        value = given.get(name)
        if value is not None or each.needed or (each.says_none and name in given):
            found[each.part][each.parameter] = each.read(broker, name, value)
    return found[""] | {part: shape(**found[part]) for part, shape in parts.items()}


def only(given: Iterable[str], names: Iterable[str]) -> None:
    """Raises Refused for an argument that there is not."""
    for name in given:
        if name not in names:
            raise Refused("invalid-argument", f"there is no argument {name!r}", "arguments: " + (", ".join(names) or "none"))


# -- how they are read ---------------------------------------------------------------------------------------------------


def text(_: Broker, name: str, value: object) -> str:
    if type(value) is not str or not value:
        raise Refused("invalid-argument", f"{name} must be text", f"give {name}")
    return value


def number(lowest: int, highest: int) -> Callable[[Broker, str, object], int]:
    """A whole one, both included."""

    def read(_: Broker, name: str, value: object) -> int:
        if type(value) is not int or not lowest <= value <= highest:
            raise Refused("invalid-argument", f"{name} must be a whole number from {lowest} to {highest}", f"give {name} such a value")
        return value

    return read


def _flag(_: Broker, name: str, value: object) -> bool:
    if type(value) is not bool:
        raise Refused("invalid-argument", f"{name} must be true or false", f"give {name} such a value")
    return value


def _contained(broker: Broker, name: str, value: object) -> Callable[[str], bool]:
    wanted = text(broker, name, value).lower()
    return lambda each: wanted in each.lower()


def queue_named(broker: Broker, name: str) -> _Queue:
    """Never makes one. Raises Refused."""
    found = broker.post_office.find_queue(name)
    if found is not None:
        return found
    if queues := broker.post_office.queues_of(name):
        more = f" and {len(queues) - _NAMED} more" if len(queues) > _NAMED else ""
        said = f"{name} is the address of {len(queues)} queues: {', '.join(queues[:_NAMED])}{more}"
        raise Refused("no-such-queue", said, "name one of them")
    raise Refused("no-such-queue", f"there is no queue {name}", "homing queues lists all of them")


def cursor(lowest: int, highest: int) -> _Read:
    """Two numbers, the first in these bounds."""

    def read(_: Broker, name: str, value: object) -> tuple[int, int]:
        if type(value) is list and len(value) == 2 and all(type(each) is int for each in value):
            first, second = value
            if lowest <= first <= highest and 0 <= second <= MOST:
                return first, second
        raise Refused("invalid-argument", f"{name} must be what next was", "leave it out for the first page")

    return read


Text = Annotated[str, text]
Flag = Annotated[bool, _flag]
#: There is such a one.
Queue = Annotated[_Queue, lambda broker, name, value: queue_named(broker, text(broker, name, value))]
#: Of a message, and where a page begins: ``next`` of the one before.
Number = Annotated[int, number(0, MOST)]
MessageNumber = Annotated[int, number(1, MOST)]
#: Whether a text has that in it, large or small.
Contained = Annotated[Callable[[str], bool], _contained]
