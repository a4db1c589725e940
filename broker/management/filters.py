"""The filter that verbs on dead letters take, read from a call's arguments."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from homing.journal.declarations import FilterContent

from ..answers.parts import Properties
from ..broker import Broker
from ..core.dead_letter import REASONS
from ..core.message_filter import Filter
from ..errors import Refused
from . import arguments as read

_Text = Literal["fault", "error_type", "reason", "from_queue", "key", "amqp_message_id", "app_id", "where"]
_Time = Literal["since_ms", "until_ms"]
_TEXTS: Final[tuple[_Text, ...]] = get_args(_Text)
_TIMES: Final[tuple[_Time, ...]] = get_args(_Time)
NAMES: Final = (*_TEXTS, *_TIMES, "message_ids", "properties", "body_contains")
_MOST_IDS: Final = 10_000
_TIME: Final = read.number(0, read.MOST)
#: Digits of a fault's number that have to be given: fewer are soon the beginning of many.
_LEAST_OF_FAULT: Final = 4
#: What each text is, for who gave none.
_WHAT: Final[dict[_Text, str]] = {
    "fault": "the number of a fault, which homing faults lists, or the beginning of it",
    "error_type": "the type of an error, such as ValueError",
    "reason": f"one of {', '.join(REASONS)}",
    "from_queue": "the name of the queue that they failed in",
    "key": "what the property has that message-key-property names",
    "amqp_message_id": "the message-id that an AMQP client gave it",
    "app_id": "the app-id that an AMQP client gave it",
    "where": "a selector, such as region = 'eu'",
}


def made(broker: Broker, content: FilterContent) -> Filter:
    """Raises Refused."""
    if "fault" in content:
        _check_fault(broker, content["fault"])
    return Filter.of(content, broker.resources.read_selector)


def _check_fault(broker: Broker, name: str) -> None:
    version, _, digits = name.rpartition("-")
    if len(digits) < _LEAST_OF_FAULT:
        fix = f"give at least {_LEAST_OF_FAULT} digits{f' behind {version}-' if version else ''}; homing faults lists them"
        raise Refused("invalid-argument", f"more than one fault may begin with {name}", fix)
    if not broker.fault_groups.knows(name):
        raise Refused("no-such-fault", f"there is no fault {name}", "homing faults lists them")


def _content(broker: Broker, _: str, given: object) -> FilterContent:
    """Plain values, each of the right type."""
    if type(given) is not dict:
        raise Refused("invalid-argument", "filter must be a map", f"its keys: {', '.join(NAMES)}")
    given = {name: value for name, value in given.items() if value is not None}
    read.only(given, NAMES)
    found = FilterContent()
    for text in _TEXTS:
        if text in given:
            if given[text] == "":
                raise Refused("invalid-argument", f"{text} is empty", f"give {_WHAT[text]}, or leave it out")
            found[text] = read.text(broker, text, given[text])
    for time in _TIMES:
        if time in given:
            found[time] = _TIME(broker, time, given[time])
    if found.get("reason") not in (None, *REASONS):
        raise Refused("invalid-argument", f"nothing is dead-lettered for {found['reason']!r}", f"reasons: {', '.join(REASONS)}")
    if "message_ids" in given:
        found["message_ids"] = _ids(given["message_ids"])
    if "properties" in given:
        found["properties"] = _properties(given["properties"])
    if "body_contains" in given:
        found["body_contains"] = _bytes(given["body_contains"])
    return found


def _properties(given: object) -> Properties:
    if type(given) is not dict or any(type(name) is not str or not name for name in given):
        raise Refused("invalid-argument", "properties must be a map of names to values", 'such as {"region": "eu"}')
    return given


def _ids(given: object) -> list[int]:
    if type(given) is not list or len(given) > _MOST_IDS or any(type(each) is not int or not 0 <= each <= read.MOST for each in given):
        raise Refused("invalid-argument", f"message_ids must be a list of at most {_MOST_IDS} message numbers", "leave it out for all")
    return given


def _bytes(given: object) -> bytes:
    if type(given) is str:
        return given.encode()
    if type(given) is not bytes:
        raise Refused("invalid-argument", "body_contains must be text or bytes", "give what the body has in it")
    return given


def wanted(broker: Broker, name: str, given: object) -> Filter:
    return made(broker, _content(broker, name, given))


#: As it was said; and ready to be asked, where it may take everything.
Content = Annotated[FilterContent, _content]
Wanted = Annotated[Filter, wanted]
ALL: Final = Filter()
