"""The filter that verbs on dead letters take, read from a call's arguments."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from ..broker import Broker
from ..core.dead_letter import REASONS
from ..core.letter_filter import Filter, FilterContent
from ..errors import Refused
from . import arguments as read

_Text = Literal["fault", "error_type", "reason", "from_queue", "key", "amqp_message_id", "app_id", "where"]
_Time = Literal["since_ms", "until_ms"]
_TEXTS: Final[tuple[_Text, ...]] = get_args(_Text)
_TIMES: Final[tuple[_Time, ...]] = get_args(_Time)
NAMES: Final = (*_TEXTS, *_TIMES, "message_ids", "properties", "body_contains")
_MOST_IDS: Final = 10_000
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


def read_filter(broker: Broker, arguments: dict[str, Any]) -> Filter:
    """``filter``, or what takes everything. Raises Refused."""
    wanted = said(arguments)
    if "fault" in wanted:
        _check_fault(broker, wanted["fault"])
    return Filter.of(wanted, broker.resources.read_selector)


def _check_fault(broker: Broker, name: str) -> None:
    version, _, digits = name.rpartition("-")
    if len(digits) < _LEAST_OF_FAULT:
        fix = f"give at least {_LEAST_OF_FAULT} digits{f' behind {version}-' if version else ''}; homing faults lists them"
        raise Refused("invalid-argument", f"more than one fault may begin with {name}", fix)
    if not broker.fault_groups.knows(name):
        raise Refused("no-such-fault", f"there is no fault {name}", "homing faults lists them")


def said(arguments: dict[str, Any]) -> FilterContent:
    """``filter`` as plain values, each of the right type. Raises Refused."""
    given = arguments.get("filter")
    if given is None:
        return {}
    if type(given) is not dict:
        raise Refused("invalid-argument", "filter must be a map", f"its keys: {', '.join(NAMES)}")
    given = {name: value for name, value in given.items() if value is not None}
    read.only(given, *NAMES)
    found = FilterContent()
    for text in _TEXTS:
        if text in given:
            if given[text] == "":
                raise Refused("invalid-argument", f"{text} is empty", f"give {_WHAT[text]}, or leave it out")
            found[text] = read.text(given, text)
    for time in _TIMES:
        if time in given:
            found[time] = read.number(given, time, 0, 0, read.MOST)
    if found.get("reason") not in (None, *REASONS):
        raise Refused("invalid-argument", f"nothing is dead-lettered for {found['reason']!r}", f"reasons: {', '.join(REASONS)}")
    if "message_ids" in given:
        found["message_ids"] = _ids(given["message_ids"])
    if "properties" in given:
        found["properties"] = _properties(given["properties"])
    if "body_contains" in given:
        found["body_contains"] = _bytes(given["body_contains"])
    return found


def _properties(given: Any) -> dict[str, Any]:
    if type(given) is not dict or any(type(name) is not str or not name for name in given):
        raise Refused("invalid-argument", "properties must be a map of names to values", 'such as {"region": "eu"}')
    return given


def _ids(given: Any) -> list[int]:
    if type(given) is not list or len(given) > _MOST_IDS or any(type(each) is not int or not 0 <= each <= read.MOST for each in given):
        raise Refused("invalid-argument", f"message_ids must be a list of at most {_MOST_IDS} message numbers", "leave it out for all")
    return given


def _bytes(given: Any) -> bytes:
    if type(given) is str:
        return given.encode()
    if type(given) is not bytes:
        raise Refused("invalid-argument", "body_contains must be text or bytes", "give what the body has in it")
    return given


def cursor(arguments: dict[str, Any]) -> int:
    """``after``: ``next`` of the answer before."""
    return read.number(arguments, "after", 0, 0, read.MOST)
